/* How the ranks of a node come to share a window. The leader, rank 0, makes the segment and passes
 * it to each member over an abstract Unix socket. Both ends check that the other belongs to this
 * user. The socket's name and the hello are made from the communicator's id, which only its ranks
 * know.
 *
 *     member -> leader   hello     its rank
 *     leader -> member   welcome   the segment, and where memory will come; then the processes
 *     member -> leader   a status
 *     leader -> member   a status: OK when all ranks said OK
 *
 * So all ranks get their window, or none does. A rank that cannot join lets the others know while
 * they wait (join_refuse). The sockets are closed then: tutti_mem_alloc's memory comes over a pair
 * of sockets of which the leader has one end, and all others the other. */
#include "collectives/window/window_join.h"

#include "collectives/window/window_internal.h"
#include "core/cancel.h"
#include "core/clock.h"
#include "core/long_wait.h"
#include "core/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static tutti_status receive_processes(struct segment *s, const struct join_welcome *welcome,
				      int socket, int size, uint64_t deadline_ns)
{
	if (s->size != size)
		return fail(TUTTI_ERR_MISMATCH, "the window is for %d ranks, not %d", s->size,
			    size);
	for (int i = 0; i < size; i++) {
		int rank, pid_fd;
		if (!welcome->has_process[i])
			continue;
		TRY(net_recv_fds(socket, &rank, sizeof rank, &pid_fd, 1, deadline_ns));
		segment_take_process(s, i, pid_fd);
	}
	return TUTTI_OK;
}

static tutti_status receive_segment(struct segment **segment, int *mail, int socket, int size,
				    uint64_t deadline_ns)
{
	struct join_welcome welcome;
	struct segment *s;
	int fds[2];
	tutti_status status;

	TRY(net_recv_fds(socket, &welcome, sizeof welcome, fds, 2, deadline_ns));
	status = window_segment_open(&s, fds[0]);
	close(fds[0]);
	if (status == TUTTI_OK) {
		status = receive_processes(s, &welcome, socket, size, deadline_ns);
		if (status != TUTTI_OK)
			segment_drop(s);
	}
	if (status != TUTTI_OK) {
		close(fds[1]);
		return status;
	}
	*segment = s;
	*mail = fds[1];
	return TUTTI_OK;
}

static tutti_status window_join_follow(struct window **window, const struct window_config *config,
				       int socket, uint64_t deadline_ns)
{
	struct join_hello hello = {
		HELLO_MAGIC, {config->comm_id[0], config->comm_id[1]}, config->rank, config->size};
	struct segment *segment;
	int32_t result = TUTTI_OK;
	tutti_status status;
	int mail;

	TRY(net_unix_check(socket, NULL));
	TRY(net_send_all(socket, &hello, sizeof hello, deadline_ns));
	TRY(receive_segment(&segment, &mail, socket, config->size, deadline_ns));
	status = window_create(window, segment, config);
	if (status == TUTTI_OK) {
		(*window)->memory.mail = mail;
	} else {
		close(mail);
		segment_drop(segment);
		result = (int32_t)status;
	}
	TRY(net_send_all(socket, &result, sizeof result, deadline_ns));
	TRY(status);
	TRY(net_recv_all(socket, &result, sizeof result, deadline_ns));
	if (result != TUTTI_OK)
		return fail(status_said(result), "the leader gave up (%s)",
			    tutti_status_string(status_said(result)));
	segment_share_processes(segment);
	read_find_out(*window, config->read_bytes);
	return TUTTI_OK;
}

tutti_status window_follow_over(struct window **window, const struct window_config *config,
				int socket, uint64_t deadline_ns)
{
	struct window *w = NULL;
	tutti_status status = window_join_follow(&w, config, socket, deadline_ns);

	close(socket);
	if (status == TUTTI_OK)
		*window = w;
	else
		window_destroy(w);
	return status;
}

static tutti_status join_as_leader(struct window **window, const struct window_config *config,
				   const struct join_wait *p)
{
	char name[64];
	int listener;

	window_socket_name(name, sizeof name, config->comm_id);
	TRY(net_unix_listen(name, config->size + JOIN_PENDING_MAX, &listener));
	return window_lead_at(window, config, listener, p);
}

/* Retries until the leader listens. */
static tutti_status connect_to_leader(const struct window_config *config, const struct join_wait *p,
				      int *fd)
{
	char name[64];
	tutti_status status;
	struct long_wait wait = {0};

	window_socket_name(name, sizeof name, config->comm_id);
	for (int attempt = 0;; attempt++) {
		status = net_unix_connect(name, fd);
		if (status != TUTTI_IN_PROGRESS)
			return status;
		TRY(join_still_worth(p, config));
		if (clock_now_ns() >= cancel_deadline(p->deadline_ns))
			return fail(TUTTI_ERR_TIMEOUT,
				    "the node's first rank did not listen at the Unix socket @%s "
				    "before the deadline: is its process stopped?",
				    name);
		if (long_wait_is_due(&wait, clock_now_ns()))
			long_wait_say("rank 0 of the node's %d to share memory", config->size);
		net_pause(attempt % JOIN_PAUSES, p->deadline_ns);
	}
}

static tutti_status join_as_member(struct window **window, const struct window_config *config,
				   const struct join_wait *p)
{
	int socket;

	TRY(connect_to_leader(config, p, &socket));
	return window_follow_over(window, config, socket, p->deadline_ns);
}

tutti_status window_join(struct window **window, const struct window_config *config,
			 uint64_t deadline_ns, bool (*is_over)(void *arg), void *arg)
{
	struct join_wait wait_limit = {deadline_ns, is_over, arg};
	struct window *w = NULL;
	tutti_status status = config->rank == 0 ? join_as_leader(&w, config, &wait_limit)
						: join_as_member(&w, config, &wait_limit);
	if (status != TUTTI_OK) {
		char why[ERROR_BYTES];
		snprintf(why, sizeof why, "%s", last_error());
		join_refuse(config);
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "Rank %d shares no memory with the other ranks of its node: %s",
			    config->rank, why);
	}
	*window = w;
	return TUTTI_OK;
}

tutti_status window_join_all(struct window **windows, const struct window_config *configs, int n)
{
	struct geometry geometry;
	struct segment *segment;
	tutti_status status = TUTTI_OK;
	int memory, made = 0;

	TRY(geometry_choose(&geometry, configs));
	TRY(window_segment_create(&geometry, &segment, &memory));
	close(memory);
	for (; made < n && status == TUTTI_OK; made++) {
		status = window_create(&windows[made], segment, &configs[made]);
		if (status != TUTTI_OK)
			break;
		segment_hold(segment);
	}
	segment_drop(segment); /* the windows hold it now */
	for (int i = 0; i < n && status == TUTTI_OK; i++)
		read_find_out(windows[i], configs[i].read_bytes);
	while (status != TUTTI_OK && made > 0)
		window_destroy(windows[--made]);
	return status;
}
