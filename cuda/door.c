/* The latest descriptor of each rank and kind waits in a slot: those of calls that have failed are
 * closed when the next one comes. */
#include "cuda/door.h"

#include "core/auth.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/net.h"
#include "core/status.h"
#include "cuda/kernels/channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG (4 * CHANNEL_RANKS * CUDA_DOOR_KINDS) /* a rank is one call ahead at the most */
#define SEND_MS 1000u                                 /* a new connection has room at once    */

struct cuda_door {
	int listener;
	struct slot {
		uint64_t token;
		int fd; /* token 0: none */
	} slots[CHANNEL_RANKS][CUDA_DOOR_KINDS];
};

static void door_name_of(const uint8_t name[CUDA_DOOR_NAME], char text[64])
{
	int n = snprintf(text, 64, "tutti-gpu-");

	for (int i = 0; i < CUDA_DOOR_NAME; i++)
		n += snprintf(text + n, (size_t)(64 - n), "%02x", name[i]);
}

tutti_status cuda_door_open(struct cuda_door **out, uint8_t name[CUDA_DOOR_NAME])
{
	struct cuda_door *door = calloc(1, sizeof *door);
	char text[64];

	if (!door)
		return fail(TUTTI_ERR_MEMORY, "no memory for a door of descriptors");
	auth_random(name, CUDA_DOOR_NAME);
	door_name_of(name, text);
	tutti_status status = net_unix_listen(text, BACKLOG, &door->listener);
	if (status != TUTTI_OK) {
		free(door);
		return status;
	}
	*out = door;
	return TUTTI_OK;
}

static void door_empty(struct slot *slot)
{
	if (slot->token)
		close(slot->fd);
	slot->token = 0;
}

void cuda_door_close(struct cuda_door *door)
{
	if (!door)
		return;
	close(door->listener);
	for (int r = 0; r < CHANNEL_RANKS; r++)
		for (int k = 0; k < CUDA_DOOR_KINDS; k++)
			door_empty(&door->slots[r][k]);
	free(door);
}

tutti_status cuda_door_send(const uint8_t name[CUDA_DOOR_NAME], const struct cuda_door_note *note,
			    int fd)
{
	char text[64];
	int socket;

	door_name_of(name, text);
	tutti_status status = net_unix_connect(text, &socket);
	if (status == TUTTI_IN_PROGRESS)
		return fail_errno("cannot connect to the Unix socket @%s (connect)", text);
	TRY(status);
	status = net_send_fds(socket, note, sizeof *note, &fd, 1, deadline_after_ms(SEND_MS));
	close(socket);
	return status;
}

/* Another process of this user that has found the name can take a slot from a rank. Without the
 * token its descriptor is not used. */
static void door_take_in(struct cuda_door *door, int socket)
{
	struct cuda_door_note note;
	int fd;

	if (net_unix_check(socket, NULL) != TUTTI_OK ||
	    net_recv_fds(socket, &note, sizeof note, &fd, 1, clock_now_ns()) != TUTTI_OK) {
		log_seldom("cannot receive a descriptor of GPU memory: %s", last_error());
		return;
	}
	if (note.rank >= CHANNEL_RANKS || note.what >= CUDA_DOOR_KINDS || note.token == 0) {
		close(fd);
		return;
	}
	struct slot *slot = &door->slots[note.rank][note.what];
	door_empty(slot);
	*slot = (struct slot){note.token, fd};
}

int cuda_door_take(struct cuda_door *door, const struct cuda_door_note *note)
{
	struct slot *slot = &door->slots[note->rank][note->what];
	int socket;

	while (net_has_caller(door->listener) &&
	       net_accept(door->listener, clock_now_ns(), &socket) == TUTTI_OK) {
		door_take_in(door, socket);
		close(socket);
	}
	if (slot->token != note->token || note->token == 0)
		return -1;
	slot->token = 0;
	return slot->fd;
}
