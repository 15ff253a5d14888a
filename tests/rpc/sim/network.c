/* The network of the simulated world: what rpc/ calls of tutti.h. */
#include "tests/rpc/sim/rpc_sim.h"
#include "tests/rpc/sim/sim_threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

tutti_status __wrap_tutti_send(const void *data, size_t count, tutti_dtype type, int to,
			       tutti_comm *comm, const tutti_call *call);
tutti_status __wrap_tutti_recv(void *data, size_t count, tutti_dtype type, int from,
			       tutti_comm *comm, const tutti_call *call);
tutti_status __wrap_tutti_group_begin(void);
tutti_status __wrap_tutti_group_end(const tutti_call *call);
tutti_status __wrap_tutti_work_wait(tutti_work **work, int timeout_ms);
tutti_status __wrap_tutti_work_test(tutti_work *work, int *is_done);
tutti_status __wrap_tutti_work_cancel(tutti_work *work);
void __wrap_tutti_work_release(tutti_work **work);
tutti_status __wrap_tutti_comm_dup(tutti_comm *comm, tutti_comm **copy);
tutti_status __wrap_tutti_comm_status(tutti_comm *comm);
void __wrap_tutti_comm_abort(tutti_comm *comm);
void __wrap_tutti_comm_destroy(tutti_comm *comm);
int __wrap_tutti_rank(const tutti_comm *comm);
int __wrap_tutti_size(const tutti_comm *comm);
tutti_status __wrap_libtutti_error_agree(tutti_comm *comm, tutti_status own);

struct tutti_comm {
	int rank;
};

/* Of one call, or of a group. */
struct tutti_work {
	bool is_done, is_released;
	int parts; /* that are not over */
	tutti_status status;
	tutti_done_fn done;
	void *done_arg;
	int rank;
	struct part *part; /* of a recv that can be cancelled */
	/* For done, and the test: */
	struct world_message message;
	uint8_t copy[256];
	struct tutti_work *next;
};

struct part {
	bool sends;
	int from, to, tag;
	uint8_t *data;
	size_t bytes;
	int *source;
	uint8_t *copy; /* a send's, which is over before it is received */
	tutti_work *work;
	uint64_t due_ns;
	struct part *other; /* of a transfer: the recv */
	struct part *next;
};

static struct {
	struct tutti_comm comms[WORLD_RANKS];
	struct part *links[WORLD_RANKS][WORLD_RANKS]; /* sends, in order           */
	struct part *arrived[WORLD_RANKS];            /* without a recv, in order  */
	struct part *recvs[WORLD_RANKS];              /* posted, in order          */
	struct part *transfers;
	struct tutti_work *dones[WORLD_RANKS]; /* due, in order             */
	bool has_dones[WORLD_RANKS], is_closing[WORLD_RANKS];
	pthread_t helpers[WORLD_RANKS];
	int works;
} net;

static _Thread_local struct {
	bool is_open;
	struct part *parts;
} group;

static void append(struct part **list, struct part *p)
{
	while (*list)
		list = &(*list)->next;
	p->next = NULL;
	*list = p;
}

static void remove_part(struct part **list, const struct part *p)
{
	while (*list != p)
		list = &(*list)->next;
	*list = p->next;
}

/* ---- ends ---- */

static void free_work(tutti_work *w)
{
	net.works--;
	free(w);
}

static void work_over(tutti_work *w)
{
	w->is_done = true;
	w->part = NULL;
	if (w->done) {
		struct tutti_work **at = &net.dones[w->rank];
		while (*at)
			at = &(*at)->next;
		w->next = NULL;
		*at = w;
		net.has_dones[w->rank] = true;
		return;
	}
	if (w->message.data)
		world_on_dealt(&w->message);
	if (w->is_released)
		free_work(w);
}

static void part_over(struct part *p, tutti_status status)
{
	tutti_work *w = p->work;

	if (status != TUTTI_OK)
		w->status = status;
	free(p->copy);
	free(p);
	if (--w->parts == 0)
		work_over(w);
}

/* The threads that call done, one of each rank. */
static void *call_dones(void *arg)
{
	int rank = (int)(intptr_t)arg;

	while (world_wait(&net.has_dones[rank], UINT64_MAX)) {
		struct tutti_work *w = net.dones[rank];
		if (!w) {
			if (net.is_closing[rank])
				break;
			net.has_dones[rank] = false;
			continue;
		}
		net.dones[rank] = w->next;
		struct world_message m = w->message;
		uint8_t copy[256];
		memcpy(copy, w->copy, sizeof copy);
		m.data = m.data ? copy : NULL;
		w->done(w->done_arg, w->status);
		if (m.data)
			world_on_dealt(&m);
		w->done = NULL;
		if (w->is_released)
			free_work(w);
	}
	return NULL;
}

/* ---- messages ---- */

static bool matches(const struct part *recv, const struct part *send)
{
	return recv->tag == send->tag && (recv->from == TUTTI_ANY || recv->from == send->from);
}

static void finish(struct part *send, struct part *recv)
{
	if (send->bytes != recv->bytes)
		world_fail("%zu bytes from %d to %d, tag %d, into %zu", send->bytes, send->from,
			   send->to, send->tag, recv->bytes);
	if (send->bytes)
		memcpy(recv->data, send->copy ? send->copy : send->data, send->bytes);
	if (recv->source)
		*recv->source = send->from;
	if (recv->work->parts == 1 && send->bytes <= sizeof recv->work->copy) {
		memcpy(recv->work->copy, recv->data, send->bytes);
		recv->work->message = (struct world_message){send->from, send->to, send->tag,
							     recv->work->copy, send->bytes};
	}
	part_over(recv, TUTTI_OK);
	if (send->work) {
		part_over(send, TUTTI_OK);
		return;
	}
	free(send->copy);
	free(send);
}

/* A short message is there at once; the bytes of a long one move for some time. */
static void match(struct part *send, struct part *recv)
{
	if (send->copy) {
		finish(send, recv);
		return;
	}
	send->other = recv;
	send->due_ns = world_now_ns() + world_random(world_random(4) ? 100000 : 30000000);
	append(&net.transfers, send);
}

static void arrive(struct part *send)
{
	struct part *recv = net.recvs[send->to];

	while (recv && !matches(recv, send))
		recv = recv->next;
	if (!recv) {
		append(&net.arrived[send->to], send);
		return;
	}
	remove_part(&net.recvs[send->to], recv);
	match(send, recv);
}

/* ---- for the clock ---- */

/* Calls visit for each event that can happen at its time. */
static int each_event(void (*visit)(struct part **list, struct part *p, void *arg), void *arg)
{
	int n = 0;

	for (int i = 0; i < WORLD_RANKS * WORLD_RANKS; i++) {
		struct part **link = &net.links[i / WORLD_RANKS][i % WORLD_RANKS];
		if (*link && ++n)
			visit(link, *link, arg);
	}
	for (struct part *p = net.transfers, *next; p; p = next) {
		next = p->next;
		n++;
		visit(&net.transfers, p, arg);
	}
	return n;
}

static void find_due(struct part **list, struct part *p, void *arg)
{
	uint64_t *due = arg;

	(void)list;
	if (p->due_ns < *due)
		*due = p->due_ns;
}

uint64_t world_network_due(void)
{
	uint64_t due = UINT64_MAX;

	each_event(find_due, &due);
	return due;
}

struct search {
	int left; /* of the events that are due, until the one that is looked for */
	struct part **list, *part;
};

static void count_due(struct part **list, struct part *p, void *arg)
{
	struct search *s = arg;

	if (p->due_ns > world_now_ns())
		return;
	if (s->left-- == 0) {
		s->list = list;
		s->part = p;
	}
}

int world_network_events(void)
{
	struct search s = {.left = 0};

	each_event(count_due, &s);
	return -s.left;
}

void world_network_event(int event)
{
	struct search s = {.left = event};

	each_event(count_due, &s);
	remove_part(s.list, s.part);
	if (s.list == &net.transfers)
		finish(s.part, s.part->other);
	else
		arrive(s.part);
}

/* ---- calls ---- */

static tutti_work *make_work(int rank, const tutti_call *call)
{
	tutti_work *w = calloc(1, sizeof *w);

	if (!w)
		world_fail("no memory");
	net.works++;
	w->rank = rank;
	w->done = call->done;
	w->done_arg = call->done_arg;
	if (call->work)
		*call->work = w;
	else
		w->is_released = true;
	return w;
}

static void start_send(struct part *p)
{
	struct part *last = net.links[p->from][p->to];
	uint64_t latency = world_random(8) ? world_random(200000) : world_random(30000000);

	world_on_send(&(struct world_message){p->from, p->to, p->tag, p->data, p->bytes});
	while (last && last->next)
		last = last->next;
	p->due_ns = world_now_ns() + latency;
	if (last && last->due_ns > p->due_ns)
		p->due_ns = last->due_ns;
	append(&net.links[p->from][p->to], p);
	if (p->bytes > WORLD_COPY_BYTES)
		return;
	tutti_work *w = p->work;
	p->copy = malloc(p->bytes + 1);
	if (!p->copy)
		world_fail("no memory");
	memcpy(p->copy, p->data, p->bytes);
	p->work = NULL;
	if (--w->parts == 0)
		work_over(w);
}

static void start_recv(struct part *p)
{
	struct part *send = net.arrived[p->to];

	while (send && !matches(p, send))
		send = send->next;
	if (!send) {
		p->work->part = p;
		append(&net.recvs[p->to], p);
		return;
	}
	remove_part(&net.arrived[p->to], send);
	match(send, p);
}

static void start_parts(struct part *parts, tutti_work *w)
{
	for (struct part *p = parts; p; p = p->next) {
		p->work = w;
		w->parts++;
	}
	for (struct part *p = parts, *next; p; p = next) {
		next = p->next;
		p->sends ? start_send(p) : start_recv(p);
	}
}

static tutti_status issue(struct part one, int rank, const tutti_call *call)
{
	struct part *p = malloc(sizeof *p);

	if (!p)
		world_fail("no memory");
	*p = one;
	p->tag = call->tag;
	p->source = call->source;
	if (group.is_open)
		append(&group.parts, p);
	else
		start_parts(p, make_work(rank, call));
	return TUTTI_OK;
}

tutti_status __wrap_tutti_send(const void *data, size_t count, tutti_dtype type, int to,
			       tutti_comm *comm, const tutti_call *call)
{
	(void)type;
	return issue((struct part){.sends = true,
				   .from = comm->rank,
				   .to = to,
				   .data = (uint8_t *)(uintptr_t)data,
				   .bytes = count},
		     comm->rank, call);
}

tutti_status __wrap_tutti_recv(void *data, size_t count, tutti_dtype type, int from,
			       tutti_comm *comm, const tutti_call *call)
{
	(void)type;
	return issue((struct part){.from = from, .to = comm->rank, .data = data, .bytes = count},
		     comm->rank, call);
}

tutti_status __wrap_tutti_group_begin(void)
{
	group.is_open = true;
	return TUTTI_OK;
}

tutti_status __wrap_tutti_group_end(const tutti_call *call)
{
	struct part *parts = group.parts;

	group.is_open = false;
	group.parts = NULL;
	start_parts(parts, make_work(parts->sends ? parts->from : parts->to, call));
	return TUTTI_OK;
}

tutti_status __wrap_tutti_work_wait(tutti_work **work, int timeout_ms)
{
	tutti_work *w = *work;
	uint64_t ns = (uint64_t)timeout_ms * 1000000u;

	if (!w)
		return TUTTI_OK;
	if (!w->is_done && world_is_locked())
		world_fail("tutti_work_wait with a lock");
	if (!w->is_done && !world_wait(&w->is_done, timeout_ms ? world_now_ns() + ns : UINT64_MAX))
		return TUTTI_IN_PROGRESS;
	tutti_status status = w->status;
	__wrap_tutti_work_release(work);
	return status;
}

tutti_status __wrap_tutti_work_test(tutti_work *work, int *is_done)
{
	*is_done = work->is_done;
	return work->status;
}

void __wrap_tutti_work_release(tutti_work **work)
{
	tutti_work *w = *work;

	*work = NULL;
	if (w && w->is_done && !w->done)
		free_work(w);
	else if (w)
		w->is_released = true;
}

tutti_status __wrap_tutti_work_cancel(tutti_work *work)
{
	struct part *p = work->part;

	if (!p)
		return TUTTI_ERR_INVALID;
	remove_part(&net.recvs[p->to], p);
	part_over(p, TUTTI_ERR_ABORTED);
	return TUTTI_OK;
}

/* ---- communicators ---- */

tutti_comm *world_comm(int rank)
{
	net.comms[rank].rank = rank;
	return &net.comms[rank];
}

tutti_status __wrap_tutti_comm_dup(tutti_comm *comm, tutti_comm **copy)
{
	int rank = comm->rank;

	net.is_closing[rank] = net.has_dones[rank] = false;
	if (pthread_create(&net.helpers[rank], NULL, call_dones, (void *)(intptr_t)rank) != 0)
		world_fail("pthread_create");
	*copy = comm;
	return TUTTI_OK;
}

tutti_status __wrap_tutti_comm_status(tutti_comm *comm)
{
	(void)comm;
	return TUTTI_OK;
}

void __wrap_tutti_comm_abort(tutti_comm *comm)
{
	world_fail("rank %d gives up", comm->rank);
}

void __wrap_tutti_comm_destroy(tutti_comm *comm)
{
	net.is_closing[comm->rank] = net.has_dones[comm->rank] = true;
	pthread_join(net.helpers[comm->rank], NULL);
}

int __wrap_tutti_rank(const tutti_comm *comm)
{
	return comm->rank;
}

int __wrap_tutti_size(const tutti_comm *comm)
{
	(void)comm;
	return WORLD_RANKS;
}

tutti_status __wrap_libtutti_error_agree(tutti_comm *comm, tutti_status own)
{
	(void)comm;
	return own;
}

int world_left(void)
{
	int n = net.works;

	for (int i = 0; i < WORLD_RANKS * WORLD_RANKS; i++)
		n += net.links[i / WORLD_RANKS][i % WORLD_RANKS] != NULL;
	for (int r = 0; r < WORLD_RANKS; r++)
		n += net.arrived[r] != NULL || net.recvs[r] != NULL;
	return n + (net.transfers != NULL);
}
