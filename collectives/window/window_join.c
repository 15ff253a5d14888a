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
 * they wait (window_join_refuse). The sockets are closed then: tutti_mem_alloc's memory comes over
 * a pair of sockets of which the leader has one end, and all others the other. */
#include "collectives/window/window_join.h"

#include "collectives/window/doorbell.h"
#include "collectives/window/run_progress.h"
#include "collectives/window/window_internal.h"
#include "core/admission.h"
#include "core/cancel.h"
#include "core/clock.h"
#include "core/long_wait.h"
#include "core/net.h"
#include "core/rank_list.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Where the ranks of a node meet to share a window, and where one says that it cannot. */

void window_socket_name(char *name, size_t bytes, const uint64_t comm_id[2])
{
	uint64_t h = comm_id[0] ^ (comm_id[1] << 32 | comm_id[1] >> 32);

	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	snprintf(name, bytes, "tutti-window-%016llx", (unsigned long long)(h ^ h >> 31));
}

/* A rank that could not join listens here. That it listens tells the others not to wait for it
 * until their deadline. */
static void window_join_refusal_name(char *name, size_t bytes, const struct window_config *config)
{
	size_t n;

	window_socket_name(name, bytes, config->comm_id);
	n = strlen(name);
	snprintf(name + n, bytes - n, "-refused");
}

/* Where this fails the others wait until their deadline. */
static void window_join_refuse(const struct window_config *config)
{
	char name[64];

	window_join_refusal_name(name, sizeof name, config);
	if (config->refusal)
		net_unix_listen(name, config->size, config->refusal);
}

/* Whether to go on waiting for the others: not when a rank has refused, or is_over says so. */
static tutti_status window_join_still_worth(const struct join_wait *p,
					    const struct window_config *config)
{
	char name[64];
	tutti_status status;
	int fd, pid = 0;

	if (p->is_over && p->is_over(p->arg))
		return fail(TUTTI_ERR_ABORTED, "the window is no longer needed");
	window_join_refusal_name(name, sizeof name, config);
	if (net_unix_connect(name, &fd) != TUTTI_OK)
		return TUTTI_OK;
	status = net_unix_check(fd, &pid);
	close(fd);
	return status == TUTTI_OK ? fail(TUTTI_ERR_PEER,
					 "process %d, another of these ranks, has given up", pid)
				  : TUTTI_OK;
}

static bool window_allocate(struct window *w)
{
	size_t n = (size_t)w->size;
	bool is_whole = true;

	for (int word = 0; word < WORDS; word++) {
		w->seen[word] = calloc(n, sizeof *w->seen[word]);
		is_whole = is_whole && w->seen[word];
	}
	w->scratch.src = calloc(n, sizeof *w->scratch.src);
	w->scratch.dst = calloc(n, sizeof *w->scratch.dst);
	w->scratch.peer_send = calloc(n, sizeof *w->scratch.peer_send);
	w->scratch.peer_recv = calloc(n, sizeof *w->scratch.peer_recv);
	w->scratch.deals = calloc(n, sizeof *w->scratch.deals);
	return is_whole && w->scratch.src && w->scratch.dst && w->scratch.peer_send &&
	       w->scratch.peer_recv && w->scratch.deals;
}

/* The window of config's rank on a segment, which it holds from then on. */
static tutti_status window_create(struct window **window, struct segment *segment,
				  const struct window_config *config)
{
	struct window *w = calloc(1, sizeof *w);

	if (!w)
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory for a window of %d ranks.",
			    config->rank, config->size);
	w->memory.mail = -1;
	atomic_init(&w->doorbell, -1);
	w->rank = config->rank;
	w->size = config->size;
	w->policy = config->policy;
	memcpy(w->memory.comm_id, config->comm_id, sizeof w->memory.comm_id);
	w->number = w->others = w->met = WINDOW_FIRST_NUMBER;
	w->at = segment_places(segment);
	w->area = w->at.areas + w->rank;
	same_cpu_begin(w, config->spreads);
	w->geometry = segment->geometry;
	w->board = (struct board){.rank = config->rank,
				  .size = config->size,
				  .places = w->at.board,
				  .failures = &w->at.head->failures,
				  .pid_fds = segment->pid_fds,
				  .wake_all = doorbell_wake_all,
				  .arg = w};
	board_begin(&w->board);
	if (!window_allocate(w)) {
		window_destroy(w);
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory for a window of %d ranks.",
			    config->rank, config->size);
	}
	read_say_process(w);
	w->segment = segment;
	doorbell_open(w);
	*window = w;
	return TUTTI_OK;
}

void window_destroy(struct window *w)
{
	if (!w)
		return;
	if (w->memory.mail >= 0)
		close(w->memory.mail);
	if (atomic_load(&w->doorbell) >= 0)
		close(atomic_load(&w->doorbell));
	for (int word = 0; word < WORDS; word++)
		free(w->seen[word]);
	if (w->segment)
		board_leave(&w->board);
	segment_drop(w->segment);
	free(w->scratch.src);
	free(w->scratch.dst);
	free(w->scratch.peer_send);
	free(w->scratch.deals);
	free(w->scratch.peer_recv);
	free(w);
}

/* The leader's part in joining: it gathers the others, makes the segment and passes it to each. */

/* The connections so far: ranks, and those that have said nothing yet. */
struct gathering {
	const struct window_config *config;
	int *sockets, *pids, missing;
	struct admission pending;
	struct pending_connection {
		struct admission_entry entry; /* on no list: this place is free */
		int fd;
	} connections[JOIN_PENDING_MAX];
};

/* False: no message has arrived yet. Closes a connection that is not a rank's silently. That it is
 * this user's was checked by window_join_accept_pending. */
static bool window_join_take_hello(struct gathering *g, int fd)
{
	const struct window_config *c = g->config;
	struct join_hello hello;
	int pid = 0;
	ssize_t n = recv(fd, &hello, sizeof hello, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n != (ssize_t)sizeof hello || hello.magic != HELLO_MAGIC ||
	    memcmp(hello.comm_id, c->comm_id, sizeof c->comm_id) || hello.size != c->size ||
	    hello.rank <= 0 || hello.rank >= c->size || g->sockets[hello.rank] >= 0 ||
	    net_unix_check(fd, &pid) != TUTTI_OK) {
		close(fd);
		return true;
	}
	g->sockets[hello.rank] = fd;
	g->pids[hello.rank] = pid;
	g->missing--;
	return true;
}

static void window_join_drop(struct gathering *g, struct pending_connection *c)
{
	admission_remove(&g->pending, &c->entry);
	close(c->fd);
}

/* The name of the socket is secret, but others on the machine can look it up. Connections of other
 * users, and those that say nothing, must keep no rank out. */
static tutti_status window_join_accept_pending(struct gathering *g, int listener,
					       uint64_t deadline_ns)
{
	struct pending_connection *c = g->connections;
	tutti_status status;
	int fd;

	TRY(net_accept(listener, deadline_ns, &fd));
	status = net_unix_check(fd, NULL);
	if (status != TUTTI_OK) {
		close(fd);
		return status == TUTTI_ERR_SYSTEM ? status : TUTTI_OK;
	}
	if (window_join_take_hello(g, fd))
		return TUTTI_OK;
	while (!admission_has_room(&g->pending))
		window_join_drop(g,
				 (struct pending_connection *)admission_oldest(&g->pending, false));
	while (c->entry.link)
		c++;
	c->fd = fd;
	admission_add(&g->pending, &c->entry);
	return TUTTI_OK;
}

static tutti_status window_join_gather_some(struct gathering *g, int listener,
					    const struct join_wait *p)
{
	struct pollfd fds[JOIN_PENDING_MAX + 1];
	int sleep_ms = cancel_poll_ms(p->deadline_ns, JOIN_ASK_MS);
	struct admission_entry *next;
	nfds_t n = 0;

	for (struct admission_entry *e = g->pending.oldest; e; e = e->next)
		fds[n++] = (struct pollfd){((struct pending_connection *)e)->fd, POLLIN, 0};
	fds[n] = (struct pollfd){listener, POLLIN, 0};
	if (poll(fds, n + 1, sleep_ms) < 0)
		return errno == EINTR ? TUTTI_OK : fail_errno("cannot wait for sockets (poll)");
	n = 0;
	for (struct admission_entry *e = g->pending.oldest; e; e = next) {
		next = e->next;
		if (fds[n++].revents &&
		    window_join_take_hello(g, ((struct pending_connection *)e)->fd))
			admission_remove(&g->pending, e);
	}
	if (fds[n].revents)
		TRY(window_join_accept_pending(g, listener, p->deadline_ns));
	return g->missing > 0 ? window_join_still_worth(p, g->config) : TUTTI_OK;
}

static void window_join_say_missing(const struct gathering *g)
{
	char text[180];
	struct rank_list list;

	rank_list_begin(&list, text, sizeof text);
	for (int r = 1; r < g->config->size; r++)
		if (g->sockets[r] < 0)
			rank_list_add(&list, r);
	long_wait_say("%s of the node's %d to share memory", rank_list_end(&list), g->config->size);
}

static tutti_status window_join_gather(struct gathering *g, int listener, const struct join_wait *p)
{
	tutti_status status = TUTTI_OK;
	struct long_wait wait = {0};

	while (g->missing > 0 && status == TUTTI_OK) {
		if (long_wait_is_due(&wait, clock_now_ns()))
			window_join_say_missing(g);
		status = window_join_gather_some(g, listener, p);
		if (g->missing > 0 && status == TUTTI_OK &&
		    clock_now_ns() >= cancel_deadline(p->deadline_ns))
			status = fail(TUTTI_ERR_TIMEOUT, "%d of %d ranks did not come", g->missing,
				      g->config->size);
	}
	while (g->pending.oldest)
		window_join_drop(g, (struct pending_connection *)g->pending.oldest);
	return status;
}

static void window_join_open_processes(struct segment *s, const int *pids)
{
	for (int rank = 0; rank < s->size; rank++) {
		if (pids[rank] > 0)
			s->pid_fds[rank] = (int)syscall(SYS_pidfd_open, pids[rank], 0);
	}
}

/* Ranks of one process cannot die alone. All have answered by now, and none has begun. */
static void window_join_forget_own_process(struct segment *s, const int *pids)
{
	for (int rank = 0; rank < s->size; rank++) {
		if (s->pid_fds[rank] < 0 || pids[rank] != pids[0])
			continue;
		close(s->pid_fds[rank]);
		s->pid_fds[rank] = -1;
	}
}

/* fds: the segment's memory, and the members' end of the mail. */
static tutti_status window_join_welcome_one(const struct segment *s, const int fds[2],
					    const struct gathering *g, int to, uint64_t deadline_ns)
{
	struct join_welcome welcome = {TUTTI_OK, {0}};
	int socket = g->sockets[to];

	for (int rank = 0; rank < s->size; rank++)
		welcome.has_process[rank] = s->pid_fds[rank] >= 0 && g->pids[rank] != g->pids[to];
	TRY(net_send_fds(socket, &welcome, sizeof welcome, fds, 2, deadline_ns));
	for (int rank = 0; rank < s->size; rank++)
		if (welcome.has_process[rank])
			TRY(net_send_fds(socket, &rank, sizeof rank, &s->pid_fds[rank], 1,
					 deadline_ns));
	return TUTTI_OK;
}

/* Passes the segment to all, and finds out whether all have it. */
static tutti_status window_join_welcome_all(const struct segment *s, const int fds[2],
					    const struct gathering *g, uint64_t deadline_ns)
{
	int32_t answer;

	for (int rank = 1; rank < s->size; rank++)
		TRY(window_join_welcome_one(s, fds, g, rank, deadline_ns));
	for (int rank = 1; rank < s->size; rank++) {
		TRY(net_recv_all(g->sockets[rank], &answer, sizeof answer, deadline_ns));
		if (answer != TUTTI_OK)
			return fail(status_said(answer),
				    "rank %d of the node could not map the window (%s)", rank,
				    tutti_status_string(status_said(answer)));
	}
	return TUTTI_OK;
}

static tutti_status window_join_open_mail(struct window *w, int *members_end)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
		return fail_errno("Rank %d cannot make the sockets that memory goes over", w->rank);
	w->memory.mail = ends[0];
	*members_end = ends[1];
	return TUTTI_OK;
}

static tutti_status window_join_make_window(struct window **window,
					    const struct window_config *config, struct gathering *g,
					    uint64_t deadline_ns)
{
	struct geometry geometry;
	struct segment *segment;
	tutti_status status;
	int fds[2] = {-1, -1};

	TRY(geometry_choose(&geometry, config));
	TRY(window_segment_create(&geometry, &segment, &fds[0]));
	window_join_open_processes(segment, g->pids);
	status = window_create(window, segment, config);
	if (status != TUTTI_OK) {
		segment_drop(segment);
	} else {
		status = window_join_open_mail(*window, &fds[1]);
		if (status == TUTTI_OK)
			status = window_join_welcome_all(segment, fds, g, deadline_ns);
		window_join_forget_own_process(segment, g->pids);
	}
	close(fds[0]);
	if (fds[1] >= 0)
		close(fds[1]);
	return status;
}

static tutti_status window_join_lead(struct window **window, const struct window_config *config,
				     struct gathering *g, int listener, const struct join_wait *p)
{
	tutti_status status;

	g->pids[0] = (int)getpid();
	TRY(window_join_gather(g, listener, p));
	status = window_join_make_window(window, config, g, p->deadline_ns);
	if (status == TUTTI_OK) {
		segment_share_processes((*window)->segment);
		read_find_out(*window, config->read_bytes);
	}
	/* A member that cannot be told any more finds out at its deadline. */
	for (int rank = 1; rank < config->size; rank++) {
		int32_t result = (int32_t)status;
		(void)!send(g->sockets[rank], &result, sizeof result, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	return status;
}

tutti_status window_lead_at(struct window **window, const struct window_config *config,
			    int listener, const struct join_wait *p)
{
	size_t n = (size_t)config->size;
	struct gathering g = {.config = config,
			      .sockets = malloc(n * sizeof(int)),
			      .pids = calloc(n, sizeof(int)),
			      .missing = config->size - 1};
	struct window *w = NULL;
	tutti_status status = TUTTI_ERR_MEMORY;

	/* Only their number is bounded here: window_join_gather() has a deadline of its own. */
	admission_init(&g.pending, JOIN_PENDING_MAX, 0);
	for (size_t i = 0; g.sockets && i < n; i++)
		g.sockets[i] = -1;
	if (!g.sockets || !g.pids)
		fail(status, "Rank %d has no memory to gather %d ranks.", config->rank,
		     config->size);
	else
		status = window_join_lead(&w, config, &g, listener, p);
	close(listener);
	for (size_t i = 0; g.sockets && i < n; i++)
		if (g.sockets[i] >= 0)
			close(g.sockets[i]);
	free(g.sockets);
	free(g.pids);
	if (status == TUTTI_OK)
		*window = w;
	else
		window_destroy(w);
	return status;
}

static tutti_status window_join_receive_processes(struct segment *s,
						  const struct join_welcome *welcome, int socket,
						  int size, uint64_t deadline_ns)
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

static tutti_status window_join_receive_segment(struct segment **segment, int *mail, int socket,
						int size, uint64_t deadline_ns)
{
	struct join_welcome welcome;
	struct segment *s;
	int fds[2];
	tutti_status status;

	TRY(net_recv_fds(socket, &welcome, sizeof welcome, fds, 2, deadline_ns));
	status = window_segment_open(&s, fds[0]);
	close(fds[0]);
	if (status == TUTTI_OK) {
		status = window_join_receive_processes(s, &welcome, socket, size, deadline_ns);
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
	TRY(window_join_receive_segment(&segment, &mail, socket, config->size, deadline_ns));
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

static tutti_status window_join_as_leader(struct window **window,
					  const struct window_config *config,
					  const struct join_wait *p)
{
	char name[64];
	int listener;

	window_socket_name(name, sizeof name, config->comm_id);
	TRY(net_unix_listen(name, config->size + JOIN_PENDING_MAX, &listener));
	return window_lead_at(window, config, listener, p);
}

/* Retries until the leader listens. */
static tutti_status window_join_connect_to_leader(const struct window_config *config,
						  const struct join_wait *p, int *fd)
{
	char name[64];
	tutti_status status;
	struct long_wait wait = {0};

	window_socket_name(name, sizeof name, config->comm_id);
	for (int attempt = 0;; attempt++) {
		status = net_unix_connect(name, fd);
		if (status != TUTTI_IN_PROGRESS)
			return status;
		TRY(window_join_still_worth(p, config));
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

static tutti_status window_join_as_member(struct window **window,
					  const struct window_config *config,
					  const struct join_wait *p)
{
	int socket;

	TRY(window_join_connect_to_leader(config, p, &socket));
	return window_follow_over(window, config, socket, p->deadline_ns);
}

tutti_status window_join(struct window **window, const struct window_config *config,
			 uint64_t deadline_ns, bool (*is_over)(void *arg), void *arg)
{
	struct join_wait wait_limit = {deadline_ns, is_over, arg};
	struct window *w = NULL;
	tutti_status status = config->rank == 0 ? window_join_as_leader(&w, config, &wait_limit)
						: window_join_as_member(&w, config, &wait_limit);
	if (status != TUTTI_OK) {
		char why[ERROR_BYTES];
		snprintf(why, sizeof why, "%s", last_error());
		window_join_refuse(config);
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
