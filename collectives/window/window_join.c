/* How the ranks of a node come to share a window: the leader, rank 0, makes the segment and passes
 * it to each of the others over an abstract Unix socket. Both ends check that the other is this
 * user's; the socket's name and the hello are made from the communicator's id, which strangers do
 * not know.
 *
 *     member -> leader   hello     who am I
 *     leader -> member   welcome   the segment; then, rank by rank, its doorbell and its process
 *     member -> leader   a status
 *     leader -> member   a status: OK when all ranks said OK
 *
 * So all ranks get their window or none does; and one that cannot come leaves word of it, in a
 * place where the others look while they wait (refuse). The sockets stay, to pass tutti_mem_alloc's
 * memory.
 */
#include "collectives/window/window_internal.h"

#include "core/clock.h"
#include "core/net.h"
#include "core/cancel.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HELLO_MAGIC 0x7475747469303177u
/* Connections that have not said hello yet: more than that, and the oldest goes. */
#define PENDING_MAX 32

struct hello {
	uint64_t magic, comm_id[2];
	int32_t rank, size;
};

struct welcome {
	int32_t status;
	uint8_t has_process[WINDOW_MAX_RANKS]; /* a pidfd follows the doorbell */
};

void window_socket_name(char *name, size_t bytes, const uint64_t comm_id[2])
{
	uint64_t h = comm_id[0] ^ (comm_id[1] << 32 | comm_id[1] >> 32);

	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	snprintf(name, bytes, "tutti-window-%016llx", (unsigned long long)(h ^ h >> 31));
}

/* ---- the window of one rank, once the segment is mapped -------------------------------- */

static bool allocate(struct window *w)
{
	size_t n = (size_t)w->size;
	bool is_whole = true;

	for (int word = 0; word < WORDS; word++) {
		w->seen[word] = calloc(n, sizeof *w->seen[word]);
		is_whole = is_whole && w->seen[word];
	}
	w->src = calloc(n, sizeof *w->src);
	w->dst = calloc(n, sizeof *w->dst);
	w->peer_send = calloc(n, sizeof *w->peer_send);
	w->peer_recv = calloc(n, sizeof *w->peer_recv);
	w->deals = calloc(n, sizeof *w->deals);
	return is_whole && w->src && w->dst && w->peer_send && w->peer_recv && w->deals;
}

static tutti_status window_new(struct window **window, struct segment *segment,
			       const struct window_config *config)
{
	const struct geometry *g = &segment->geometry;
	uint8_t *base = (uint8_t *)segment->head;
	struct window *w = calloc(1, sizeof *w);

	if (!w)
		return fail(TUTTI_ERR_MEMORY, "No memory for a window.");
	w->rank = config->rank;
	w->size = config->size;
	w->policy = config->policy;
	w->spread.is_on = config->spreads && config->policy.apart;
	memcpy(w->comm_id, config->comm_id, sizeof w->comm_id);
	w->number = w->others = w->met = WINDOW_FIRST_NUMBER;
	w->head = segment->head;
	w->areas = (struct rank_area *)(void *)(base + g->areas_at);
	w->area = w->areas + w->rank;
	w->lines = base + g->lines_at;
	w->bodies = base + g->bodies_at;
	w->rows = base + g->rows_at;
	w->slots = base + g->slots_at;
	w->recorders = (struct recorder *)(void *)(base + g->recorders_at);
	w->line_bytes = g->line_bytes;
	w->body_bytes = g->body_bytes;
	w->row_bytes = g->row_bytes;
	w->slot_bytes = g->slot_bytes;
	w->shares_cores = g->shares_cores;
	w->small_bytes = g->small_bytes;
	w->small_all_reduce = g->small_all_reduce;
	w->by_root_bytes = g->by_root_bytes;
	if (!allocate(w)) {
		window_destroy(w);
		return fail(TUTTI_ERR_MEMORY, "No memory for a window of %d ranks.", config->size);
	}
	read_say_process(w);
	w->segment = segment;
	doorbell_open(w);
	*window = w;
	return TUTTI_OK;
}

void window_leave(struct window *w)
{
	atomic_store_explicit(&w->recorders[w->rank].has_left, 1, memory_order_release);
}

void window_destroy(struct window *w)
{
	if (!w)
		return;
	for (int i = 0; w->sockets && i < (w->rank == 0 ? w->size : 1); i++) {
		if (w->sockets[i] >= 0)
			close(w->sockets[i]);
	}
	for (int word = 0; word < WORDS; word++)
		free(w->seen[word]);
	if (w->segment)
		window_leave(w);
	segment_drop(w->segment);
	free(w->sockets);
	free(w->src);
	free(w->dst);
	free(w->peer_send);
	free(w->deals);
	free(w->peer_recv);
	free(w);
}

/* ---- the leader ------------------------------------------------------------------------ */

#define ASK_MS 20 /* while waiting, for whether that makes sense */

/* A rank that could not come to a window listens here, and says nothing: that somebody listens is
 * what the others want to know, who would wait for it until their deadline. */
static void refusal_name(char *name, size_t bytes, const struct window_config *config)
{
	size_t n;

	window_socket_name(name, bytes, config->comm_id);
	n = strlen(name);
	snprintf(name + n, bytes - n, "-refused");
}

/* Nothing is lost where this fails, too. */
static void refuse(const struct window_config *config)
{
	char name[64];

	refusal_name(name, sizeof name, config);
	if (config->refusal)
		net_unix_listen(name, config->size, config->refusal);
}

static tutti_status still_worth(const struct join_wait *p, const struct window_config *config)
{
	char name[64];
	tutti_status status;
	int fd, pid = 0;

	if (p->is_over && p->is_over(p->arg))
		return fail(TUTTI_ERR_ABORTED, "it is not needed any more");
	refusal_name(name, sizeof name, config);
	if (net_unix_connect(name, 0, &fd) != TUTTI_OK)
		return TUTTI_OK;
	status = net_unix_check(fd, &pid);
	close(fd);
	return status == TUTTI_OK
		       ? fail(TUTTI_ERR_PEER, "process %d, one of them, has given up", pid)
		       : TUTTI_OK;
}

/* The connections so far: those that said who they are, and those that have not yet. */
struct gathering {
	const struct window_config *config;
	int *sockets, *pids, missing;
	int pending[PENDING_MAX]; /* oldest first */
	size_t pending_count;
};

/* False: nothing has come yet. A connection that is nobody's is closed, and nobody is told. */
static bool take_hello(struct gathering *g, int fd)
{
	const struct window_config *c = g->config;
	struct hello hello;
	int pid;
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

/* The name of the socket is secret, but who is on the machine can look it up: other users, and
 * those who say nothing, keep no place from a rank. */
static tutti_status accept_pending(struct gathering *g, int listener, uint64_t deadline_ns)
{
	int fd;

	TRY(net_accept(listener, deadline_ns, &fd));
	if (net_unix_check(fd, NULL) != TUTTI_OK) {
		close(fd);
		return TUTTI_OK;
	}
	if (take_hello(g, fd))
		return TUTTI_OK;
	if (g->pending_count == PENDING_MAX) {
		close(g->pending[0]);
		memmove(g->pending, g->pending + 1, --g->pending_count * sizeof g->pending[0]);
	}
	g->pending[g->pending_count++] = fd;
	return TUTTI_OK;
}

static tutti_status gather_some(struct gathering *g, int listener, const struct join_wait *p)
{
	struct pollfd fds[PENDING_MAX + 1];
	size_t n = g->pending_count;
	int sleep_ms = cancel_poll_ms(p->deadline_ns, ASK_MS);

	for (size_t i = 0; i < n; i++)
		fds[i] = (struct pollfd){g->pending[i], POLLIN, 0};
	fds[n] = (struct pollfd){listener, POLLIN, 0};
	if (poll(fds, (nfds_t)n + 1, sleep_ms) < 0)
		return TUTTI_OK; /* EINTR: the caller comes again */
	g->pending_count = 0;
	for (size_t i = 0; i < n; i++)
		if (!fds[i].revents || !take_hello(g, fds[i].fd))
			g->pending[g->pending_count++] = fds[i].fd;
	if (fds[n].revents)
		TRY(accept_pending(g, listener, p->deadline_ns));
	return g->missing > 0 ? still_worth(p, g->config) : TUTTI_OK;
}

static tutti_status gather(struct gathering *g, int listener, const struct join_wait *p)
{
	tutti_status status = TUTTI_OK;

	while (g->missing > 0 && status == TUTTI_OK) {
		status = gather_some(g, listener, p);
		if (g->missing > 0 && status == TUTTI_OK &&
		    clock_now_ns() >= cancel_deadline(p->deadline_ns))
			status = fail(TUTTI_ERR_TIMEOUT, "%d of %d ranks did not come", g->missing,
				      g->config->size);
	}
	for (size_t i = 0; i < g->pending_count; i++)
		close(g->pending[i]);
	return status;
}

static void open_processes(struct segment *s, const int *pids)
{
	for (int rank = 0; rank < s->size; rank++) {
		if (pids[rank] > 0)
			s->pid_fds[rank] = (int)syscall(SYS_pidfd_open, pids[rank], 0);
	}
}

/* Ranks of one process cannot die alone. All have answered, and none has been told to begin. */
static void forget_own_process(struct segment *s, const int *pids)
{
	for (int rank = 0; rank < s->size; rank++) {
		if (s->pid_fds[rank] < 0 || pids[rank] != pids[0])
			continue;
		close(s->pid_fds[rank]);
		s->pid_fds[rank] = -1;
	}
}

static tutti_status welcome_one(const struct segment *s, int memory, const struct gathering *g,
				int to, uint64_t deadline_ns)
{
	struct welcome welcome = {TUTTI_OK, {0}};
	int socket = g->sockets[to];

	for (int rank = 0; rank < s->size; rank++)
		welcome.has_process[rank] = s->pid_fds[rank] >= 0 && g->pids[rank] != g->pids[to];
	TRY(net_send_fds(socket, &welcome, sizeof welcome, &memory, 1, deadline_ns));
	for (int rank = 0; rank < s->size; rank++) {
		int fds[2] = {s->event_fds[rank], s->pid_fds[rank]};
		TRY(net_send_fds(socket, &rank, sizeof rank, fds, 1 + welcome.has_process[rank],
				 deadline_ns));
	}
	return TUTTI_OK;
}

/* Passes the segment to all, and finds out whether all have it. */
static tutti_status welcome_all(const struct segment *s, int memory, const struct gathering *g,
				uint64_t deadline_ns)
{
	int32_t answer;

	for (int rank = 1; rank < s->size; rank++)
		TRY(welcome_one(s, memory, g, rank, deadline_ns));
	for (int rank = 1; rank < s->size; rank++) {
		TRY(net_recv_all(g->sockets[rank], &answer, sizeof answer, deadline_ns));
		if (answer != TUTTI_OK)
			return fail(status_said(answer), "rank %d could not map it (%s)", rank,
				    tutti_status_string(status_said(answer)));
	}
	return TUTTI_OK;
}

static tutti_status make_window(struct window **window, const struct window_config *config,
				struct gathering *g, uint64_t deadline_ns)
{
	struct geometry geometry;
	struct segment *segment;
	tutti_status status;
	int memory;

	TRY(segment_geometry(&geometry, config));
	TRY(window_segment_create(&geometry, &segment, &memory));
	open_processes(segment, g->pids);
	status = window_new(window, segment, config);
	if (status != TUTTI_OK) {
		segment_drop(segment);
	} else {
		status = welcome_all(segment, memory, g, deadline_ns);
		forget_own_process(segment, g->pids);
	}
	close(memory);
	return status;
}

static tutti_status lead(struct window **window, const struct window_config *config,
			 struct gathering *g, int listener, const struct join_wait *p)
{
	tutti_status status;

	g->pids[0] = (int)getpid();
	TRY(gather(g, listener, p));
	status = make_window(window, config, g, p->deadline_ns);
	if (status == TUTTI_OK)
		read_find_out(*window, config->read_bytes);
	/* A member that cannot be told any more finds out at its deadline. */
	for (int rank = 1; rank < config->size; rank++) {
		int32_t verdict = (int32_t)status;
		(void)!send(g->sockets[rank], &verdict, sizeof verdict,
			    MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	return status;
}

tutti_status window_lead_at(struct window **window, const struct window_config *config,
			    int listener, const struct join_wait *p)
{
	size_t n = (size_t)config->size;
	struct gathering g = {
		config, malloc(n * sizeof(int)), calloc(n, sizeof(int)), config->size - 1, {0}, 0};
	struct window *w = NULL;
	tutti_status status = TUTTI_ERR_MEMORY;

	for (size_t i = 0; g.sockets && i < n; i++)
		g.sockets[i] = -1;
	if (!g.sockets || !g.pids)
		fail(status, "No memory to gather %d ranks.", config->size);
	else
		status = lead(&w, config, &g, listener, p);
	close(listener);
	free(g.pids);
	if (w)
		w->sockets = g.sockets;
	if (status == TUTTI_OK) {
		*window = w;
		return status;
	}
	for (size_t i = 0; !w && g.sockets && i < n; i++) {
		if (g.sockets[i] >= 0)
			close(g.sockets[i]);
	}
	if (!w)
		free(g.sockets);
	window_destroy(w);
	return status;
}

static tutti_status join_as_leader(struct window **window, const struct window_config *config,
				   const struct join_wait *p)
{
	char name[64];
	int listener;

	window_socket_name(name, sizeof name, config->comm_id);
	TRY(net_unix_listen(name, config->size + PENDING_MAX, &listener));
	return window_lead_at(window, config, listener, p);
}

/* ---- the others ------------------------------------------------------------------------ */

static tutti_status receive_segment(struct segment **segment, int socket, int size,
				    uint64_t deadline_ns)
{
	struct welcome welcome;
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
	struct hello hello = {
		HELLO_MAGIC, {config->comm_id[0], config->comm_id[1]}, config->rank, config->size};
	struct segment *segment;
	int32_t verdict = TUTTI_OK;
	tutti_status status;

	TRY(net_unix_check(socket, NULL));
	TRY(net_send_all(socket, &hello, sizeof hello, deadline_ns));
	TRY(receive_segment(&segment, socket, config->size, deadline_ns));
	status = sockets ? window_new(window, segment, config)
			 : fail(TUTTI_ERR_MEMORY, "No memory to join a window.");
	if (status != TUTTI_OK) {
		segment_drop(segment);
		verdict = (int32_t)status;
	}
	TRY(net_send_all(socket, &verdict, sizeof verdict, deadline_ns));
	TRY(status);
	TRY(net_recv_all(socket, &verdict, sizeof verdict, deadline_ns));
	if (verdict != TUTTI_OK)
		return fail(status_said(verdict), "the leader gave up (%s)",
			    tutti_status_string(status_said(verdict)));
	read_find_out(*window, config->read_bytes);
	return TUTTI_OK;
}

/* Retries until the leader listens. */
static tutti_status connect_to_leader(const struct window_config *config, const struct join_wait *p,
				      int *fd)
{
	char name[64];
	tutti_status status;

	window_socket_name(name, sizeof name, config->comm_id);
	do {
		uint64_t soon = deadline_after_ms(ASK_MS);
		status = net_unix_connect(name, soon < p->deadline_ns ? soon : p->deadline_ns, fd);
		if (status == TUTTI_ERR_TIMEOUT)
			TRY(still_worth(p, config));
	} while (status == TUTTI_ERR_TIMEOUT && clock_now_ns() < cancel_deadline(p->deadline_ns));
	return status;
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
		w->sockets = sockets;
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

static tutti_status join_as_member(struct window **window, const struct window_config *config,
				   const struct join_wait *p)
{
	int socket;

	TRY(connect_to_leader(config, p, &socket));
	return window_follow_over(window, config, socket, p->deadline_ns);
}

tutti_status window_join(struct window **window, const struct window_config *config,
			 uint64_t deadline_ns)
{
	return window_join_unless(window, config, deadline_ns, NULL, NULL);
}

tutti_status window_join_unless(struct window **window, const struct window_config *config,
				uint64_t deadline_ns, bool (*is_over)(void *arg), void *arg)
{
	struct join_wait wait_limit = {deadline_ns, is_over, arg};
	struct window *w = NULL;
	tutti_status status = config->rank == 0 ? join_as_leader(&w, config, &wait_limit)
						: join_as_member(&w, config, &wait_limit);
	if (status != TUTTI_OK) {
		char why[ERROR_BYTES];
		snprintf(why, sizeof why, "%s", last_error());
		refuse(config);
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "Rank %d shares no memory with the other ranks of its node: %s",
			    config->rank, why);
	}
	*window = w;
	return TUTTI_OK;
}

/* ---- ranks as threads ------------------------------------------------------------------ */

tutti_status window_join_all(struct window **windows, const struct window_config *configs, int n)
{
	struct geometry geometry;
	struct segment *segment;
	tutti_status status = TUTTI_OK;
	int memory, made = 0;

	TRY(segment_geometry(&geometry, configs));
	TRY(window_segment_create(&geometry, &segment, &memory));
	close(memory);
	for (; made < n && status == TUTTI_OK; made++) {
		status = window_new(&windows[made], segment, &configs[made]);
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
