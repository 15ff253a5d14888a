/* The leader's part in joining: it gathers the others, makes the segment and passes it to each. */
#include "collectives/window/window_join.h"

#include "collectives/window/window_internal.h"
#include "core/admission.h"
#include "core/cancel.h"
#include "core/clock.h"
#include "core/long_wait.h"
#include "core/net.h"
#include "core/rank_list.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

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
 * this user's was checked by accept_pending. */
static bool join_leader_take_hello(struct gathering *g, int fd)
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

static void join_leader_drop(struct gathering *g, struct pending_connection *c)
{
	admission_remove(&g->pending, &c->entry);
	close(c->fd);
}

/* The name of the socket is secret, but others on the machine can look it up. Connections of other
 * users, and those that say nothing, must keep no rank out. */
static tutti_status accept_pending(struct gathering *g, int listener, uint64_t deadline_ns)
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
	if (join_leader_take_hello(g, fd))
		return TUTTI_OK;
	while (!admission_has_room(&g->pending))
		join_leader_drop(g,
				 (struct pending_connection *)admission_oldest(&g->pending, false));
	while (c->entry.link)
		c++;
	c->fd = fd;
	admission_add(&g->pending, &c->entry);
	return TUTTI_OK;
}

static tutti_status gather_some(struct gathering *g, int listener, const struct join_wait *p)
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
		    join_leader_take_hello(g, ((struct pending_connection *)e)->fd))
			admission_remove(&g->pending, e);
	}
	if (fds[n].revents)
		TRY(accept_pending(g, listener, p->deadline_ns));
	return g->missing > 0 ? join_still_worth(p, g->config) : TUTTI_OK;
}

static void join_leader_say_missing(const struct gathering *g)
{
	char text[180];
	struct rank_list list;

	rank_list_begin(&list, text, sizeof text);
	for (int r = 1; r < g->config->size; r++)
		if (g->sockets[r] < 0)
			rank_list_add(&list, r);
	long_wait_say("%s of the node's %d to share memory", rank_list_end(&list), g->config->size);
}

static tutti_status join_leader_gather(struct gathering *g, int listener, const struct join_wait *p)
{
	tutti_status status = TUTTI_OK;
	struct long_wait wait = {0};

	while (g->missing > 0 && status == TUTTI_OK) {
		if (long_wait_is_due(&wait, clock_now_ns()))
			join_leader_say_missing(g);
		status = gather_some(g, listener, p);
		if (g->missing > 0 && status == TUTTI_OK &&
		    clock_now_ns() >= cancel_deadline(p->deadline_ns))
			status = fail(TUTTI_ERR_TIMEOUT, "%d of %d ranks did not come", g->missing,
				      g->config->size);
	}
	while (g->pending.oldest)
		join_leader_drop(g, (struct pending_connection *)g->pending.oldest);
	return status;
}

static void open_processes(struct segment *s, const int *pids)
{
	for (int rank = 0; rank < s->size; rank++) {
		if (pids[rank] > 0)
			s->pid_fds[rank] = (int)syscall(SYS_pidfd_open, pids[rank], 0);
	}
}

/* Ranks of one process cannot die alone. All have answered by now, and none has begun. */
static void forget_own_process(struct segment *s, const int *pids)
{
	for (int rank = 0; rank < s->size; rank++) {
		if (s->pid_fds[rank] < 0 || pids[rank] != pids[0])
			continue;
		close(s->pid_fds[rank]);
		s->pid_fds[rank] = -1;
	}
}

/* fds: the segment's memory, and the members' end of the mail. */
static tutti_status welcome_one(const struct segment *s, const int fds[2],
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
static tutti_status welcome_all(const struct segment *s, const int fds[2],
				const struct gathering *g, uint64_t deadline_ns)
{
	int32_t answer;

	for (int rank = 1; rank < s->size; rank++)
		TRY(welcome_one(s, fds, g, rank, deadline_ns));
	for (int rank = 1; rank < s->size; rank++) {
		TRY(net_recv_all(g->sockets[rank], &answer, sizeof answer, deadline_ns));
		if (answer != TUTTI_OK)
			return fail(status_said(answer),
				    "rank %d of the node could not map the window (%s)", rank,
				    tutti_status_string(status_said(answer)));
	}
	return TUTTI_OK;
}

static tutti_status open_mail(struct window *w, int *members_end)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
		return fail_errno("Rank %d cannot make the sockets that memory goes over", w->rank);
	w->memory.mail = ends[0];
	*members_end = ends[1];
	return TUTTI_OK;
}

static tutti_status make_window(struct window **window, const struct window_config *config,
				struct gathering *g, uint64_t deadline_ns)
{
	struct geometry geometry;
	struct segment *segment;
	tutti_status status;
	int fds[2] = {-1, -1};

	TRY(geometry_choose(&geometry, config));
	TRY(window_segment_create(&geometry, &segment, &fds[0]));
	open_processes(segment, g->pids);
	status = window_create(window, segment, config);
	if (status != TUTTI_OK) {
		segment_drop(segment);
	} else {
		status = open_mail(*window, &fds[1]);
		if (status == TUTTI_OK)
			status = welcome_all(segment, fds, g, deadline_ns);
		forget_own_process(segment, g->pids);
	}
	close(fds[0]);
	if (fds[1] >= 0)
		close(fds[1]);
	return status;
}

static tutti_status join_leader_lead(struct window **window, const struct window_config *config,
				     struct gathering *g, int listener, const struct join_wait *p)
{
	tutti_status status;

	g->pids[0] = (int)getpid();
	TRY(join_leader_gather(g, listener, p));
	status = make_window(window, config, g, p->deadline_ns);
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

	/* Only their number is bounded here: join_leader_gather() has a deadline of its own. */
	admission_init(&g.pending, JOIN_PENDING_MAX, 0);
	for (size_t i = 0; g.sockets && i < n; i++)
		g.sockets[i] = -1;
	if (!g.sockets || !g.pids)
		fail(status, "Rank %d has no memory to gather %d ranks.", config->rank,
		     config->size);
	else
		status = join_leader_lead(&w, config, &g, listener, p);
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
