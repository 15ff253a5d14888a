/* One device's operations of a queue: a stream of our own, and what is on it. */
#ifndef CUDA_LINE_H
#define CUDA_LINE_H

#include "cuda/device.h"
#include "core/memory/memory.h"

struct cuda_line {
	struct cuda_device *device;
	CUstream stream;
	struct tutti_io *head, **tail;   /* on the stream, in its order                     */
	struct tutti_io *after, **after_tail; /* on streams of callers, in each one's order */
	int prompt;                      /* how many that somebody waits for, perhaps        */
	uint64_t look_at_ns;             /* when to look next at those that nobody waits for */
	CUevent *events;                 /* that are free                                   */
	size_t event_count, event_room;
};

tutti_status cuda_line_create(struct cuda_line **line, struct cuda_device *device);
/* Afterwards nothing of it runs on the device. NULL is fine. */
void cuda_line_destroy(struct cuda_line *line);
/* Puts a copy, a reduction, an end of one, a scaling or an AFTER on its stream. */
tutti_status cuda_line_post(struct cuda_line *line, struct memory_io *io);
/* Appends what has ended; returns how many. error: of the last that failed. */
int cuda_line_progress(struct cuda_line *line, struct tutti_done *done, char *error,
                       size_t error_bytes);
/* Forgets what is posted, when the device is done with it. */
void cuda_line_cancel(struct cuda_line *line);

#endif
