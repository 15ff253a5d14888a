/* A member's part in joining: it says who it is, and gets the segment. */
#include "collectives/window/window_join.h"

#include "collectives/window/reading.h"
#include "core/net.h"

#include <stdlib.h>
#include <unistd.h>

static tutti_status receive_segment(struct segment **segment, int socket, int size,
				    uint64_t deadline_ns)
{
	struct join_welcome welcome;
	struct segment *s;
	int memory;
	tutti_status status;

	TRY(net_recv_fds(socket, &welcome, sizeof welcome, &memory, 1, deadline_ns));
	status = window_segment_open(&s, memory);
	close(memory);
	TRY(status);
	if (s->size != size)
		status = fail(TUTTI_ERR_MISMATCH, "the window is for %d ranks, not %d", s->size,
			      size);
	for (int i = 0; i < size && status == TUTTI_OK; i++) {
		int rank, fds[2] = {-1, -1};
		status = net_recv_fds(socket, &rank, sizeof rank, fds,
				      welcome.has_process[i] ? 2 : 1, deadline_ns);
		if (status == TUTTI_OK)
			segment_take_fds(s, i, fds[0], fds[1]);
	}
	if (status != TUTTI_OK) {
		segment_drop(s);
		return status;
	}
	*segment = s;
	return TUTTI_OK;
}

/* sockets NULL: there is no memory for it, which the leader must hear. */
static tutti_status follow(struct window **window, const struct window_config *config,
			   const int *sockets, int socket, uint64_t deadline_ns)
{
	struct join_hello hello = {
		HELLO_MAGIC, {config->comm_id[0], config->comm_id[1]}, config->rank, config->size};
	struct segment *segment;
	int32_t result = TUTTI_OK;
	tutti_status status;

	TRY(net_unix_check(socket, NULL));
	TRY(net_send_all(socket, &hello, sizeof hello, deadline_ns));
	TRY(receive_segment(&segment, socket, config->size, deadline_ns));
	status = sockets ? window_create(window, segment, config)
			 : fail(TUTTI_ERR_MEMORY, "No memory to join a window.");
	if (status != TUTTI_OK) {
		segment_drop(segment);
		result = (int32_t)status;
	}
	TRY(net_send_all(socket, &result, sizeof result, deadline_ns));
	TRY(status);
	TRY(net_recv_all(socket, &result, sizeof result, deadline_ns));
	if (result != TUTTI_OK)
		return fail(status_said(result), "the leader gave up (%s)",
			    tutti_status_string(status_said(result)));
	read_find_out(*window, config->read_bytes);
	return TUTTI_OK;
}

tutti_status window_follow_over(struct window **window, const struct window_config *config,
				int socket, uint64_t deadline_ns)
{
	int *sockets = malloc(sizeof *sockets);
	struct window *w = NULL;
	tutti_status status;

	status = follow(&w, config, sockets, socket, deadline_ns);
	if (w) {
		sockets[0] = socket;
		w->memory.sockets = sockets;
	} else {
		close(socket);
		free(sockets);
	}
	if (status == TUTTI_OK)
		*window = w;
	else
		window_destroy(w);
	return status;
}
