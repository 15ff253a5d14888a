/* Where a rank takes descriptors from ranks that may be other processes: a Unix socket of an
 * abstract name, to which each sender connects, and sends. Nobody waits: what was sent before an
 * agreement of the ranks is there behind it.
 *
 * A descriptor of a GPU's memory must be sent. To open /proc/PID/fd/N opens the driver's device
 * anew, without that memory, and pidfd_getfd needs the rights of a debugger. */
#ifndef CUDA_DOOR_H
#define CUDA_DOOR_H

#include <tutti/tutti.h>

#include <stdint.h>

#define CUDA_DOOR_NAME 16

struct cuda_door;

enum cuda_door_what { CUDA_DOOR_PART, CUDA_DOOR_MULTICAST, CUDA_DOOR_KINDS };

struct cuda_door_note {
	uint64_t token; /* drawn by the sender, for this descriptor  */
	uint32_t rank;  /* the sender                                */
	uint32_t what;
};

/* Draws its name. SYSTEM, MEMORY. */
tutti_status cuda_door_open(struct cuda_door **door, uint8_t name[CUDA_DOOR_NAME]);
void cuda_door_close(struct cuda_door *door); /* NULL is fine */
/* SYSTEM, PEER, IN_PROGRESS without a message: it cannot be reached, from another network namespace
 * for one. fd stays the caller's. */
tutti_status cuda_door_send(const uint8_t name[CUDA_DOOR_NAME], const struct cuda_door_note *note,
                            int fd);
/* The descriptor that has come with this note, the caller's then, or -1. */
int cuda_door_take(struct cuda_door *door, const struct cuda_door_note *note);

#endif
