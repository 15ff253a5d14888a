/* The threads of the ranks, and their programs. */
#include "crossed_orders.h"

#include "gpu.h"
#include "turn_ranks.h"

#include "tests/random.h"

#include <pthread.h>
#include <sched.h>

#define COMMS   5 /* the first is the world */
#define BATCHES 6
#define FLIGHT  8 /* calls of a batch       */
#define MOST    ((size_t)40000)
#define STREAMS 3 /* beside one for each communicator */
#define SALTS   1000003u

enum crossed_what { ALL_REDUCE, BROADCAST, ALL_GATHER, WHATS };
enum crossed_state { PENDING, ISSUED, ENDED };

/* A call: what all ranks agree on, and then this rank's part. */
struct crossed_call {
	int comm;
	enum crossed_what what;
	size_t count;
	uint32_t salt;
	enum crossed_state state;
	tutti_work *work;
	CUstream stream;
	int32_t *in, *out; /* pinned */
	int32_t *send, *recv;
};

struct crossed_stream {
	CUstream stream;
	int last; /* of this batch, the latest call in it */
};

struct crossed_child {
	tutti_comm *comm;
	CUgraphExec graph; /* NULL: calls are made one by one */
	int32_t *send, *recv;
	size_t count;
};

struct crossed {
	struct crossed_rank *r;
	struct crossed_child comms[COMMS];
	struct crossed_call steps[FLIGHT];
	struct crossed_stream streams[STREAMS + COMMS];
	uint64_t shared, own;
};

static void wrong(struct crossed_rank *r, const char *what, const tutti_comm *comm)
{
	if (!r->why[0])
		snprintf(r->why, sizeof r->why, "rank %d: %s: %.150s", r->rank, what,
			 tutti_comm_error(comm));
}

static void expect_ok(struct crossed_rank *r, const char *what, const tutti_comm *comm,
		      tutti_status status)
{
	if (status != TUTTI_OK)
		wrong(r, what, comm);
}

/* ---- calls ---- */

static int32_t value(uint32_t salt, int rank, size_t i)
{
	return (int32_t)(salt + (uint32_t)rank * 7919u + (uint32_t)i * 31u);
}

static tutti_status issue(const struct crossed_call *s, tutti_comm *comm, const tutti_call *call)
{
	switch (s->what) {
	case ALL_REDUCE:
		return tutti_all_reduce(s->send, s->recv, s->count, TUTTI_I32, TUTTI_SUM, comm,
					call);
	case BROADCAST:
		return tutti_broadcast(s->send, s->recv, s->count, TUTTI_I32, 0, comm, call);
	default:
		return tutti_all_gather(s->send, s->recv, s->count, TUTTI_I32, comm, call);
	}
}

static bool is_right(const struct crossed_call *s, int size)
{
	size_t all = s->what == ALL_GATHER ? s->count * (size_t)size : s->count;

	for (size_t i = 0; i < all; i++) {
		uint32_t sum = 0;
		for (int k = 0; k < size; k++)
			sum += (uint32_t)value(s->salt, k, i);
		int32_t wanted = s->what == ALL_REDUCE ? (int32_t)sum
				 : s->what == BROADCAST
					 ? value(s->salt, 0, i)
					 : value(s->salt, (int)(i / s->count), i % s->count);
		if (s->out[i] != wanted)
			return false;
	}
	return true;
}

/* ---- communicators ---- */

static void capture(struct crossed *p, struct crossed_child *c, CUstream stream)
{
	struct crossed_call s = {
		.what = ALL_REDUCE, .send = c->send, .recv = c->recv, .count = c->count};
	tutti_call call = {.stream = stream};
	CUgraph graph;

	GPU(stream_begin_capture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	expect_ok(p->r, "a captured call", c->comm, issue(&s, c->comm, &call));
	GPU(stream_end_capture, stream, &graph);
	GPU(graph_instantiate, &c->graph, graph, 0);
	GPU(graph_destroy, graph);
}

/* Ranks of one color, of three at the most; some have graphs. */
static void open_child(struct crossed *p, int i)
{
	struct crossed_child *c = &p->comms[i];
	struct crossed_rank *r = p->r;
	int colors[CROSSED_RANKS];

	for (int k = 0; k < r->size; k++)
		colors[k] = (int)random_below(&p->shared, 1 + (uint64_t)i % 3);
	bool has_graph = random_below(&p->shared, 4) == 0;
	size_t count = 1 + random_below(&p->shared, MOST);
	expect_ok(r, "split", r->world,
		  tutti_comm_split(r->world, colors[r->rank], 0, NULL, &c->comm));
	if (r->why[0])
		return;
	if (c->comm->device)
		atomic_fetch_add(cuda_channels_take_turns(channels_of(c->comm))
					 ? &r->machine->ways->turns
					 : &r->machine->ways->kernels,
				 1);
	c->count = count;
	if (has_graph)
		capture(p, c, p->streams[STREAMS + i].stream);
}

static void close_child(struct crossed_child *c)
{
	if (c->graph)
		GPU(graph_exec_destroy, c->graph);
	c->graph = NULL;
	tutti_comm_destroy(c->comm);
	c->comm = NULL;
}

/* ---- the order of a rank ---- */

static int first_pending(const struct crossed *p)
{
	int i = 0;

	while (i < FLIGHT && p->steps[i].state != PENDING)
		i++;
	return i;
}

/* Any call, but those of a communicator in their order. */
static int choose(struct crossed *p)
{
	int found[FLIGHT], n = 0;

	for (int i = 0; i < FLIGHT; i++) {
		bool is_next = p->steps[i].state == PENDING;
		for (int k = 0; k < i; k++)
			is_next &= p->steps[k].state != PENDING ||
				   p->steps[k].comm != p->steps[i].comm;
		if (is_next)
			found[n++] = i;
	}
	return found[random_below(&p->own, (uint64_t)n)];
}

/* Whose latest call comes before this one in the order of all. */
static struct crossed_stream *choose_stream(struct crossed *p, int i)
{
	struct crossed_stream *own = &p->streams[STREAMS + p->steps[i].comm];
	struct crossed_stream *s = &p->streams[random_below(&p->own, STREAMS)];

	return p->comms[p->steps[i].comm].graph || s->last > i ? own : s;
}

/* A kernel of the program's own, of each device. */
static CUfunction fills[8];

/* The first time a driver may wait for what runs. */
static void load_fill(int device)
{
	CUlibrary library;
	CUkernel kernel;

	gpu_use(device);
	GPU(library_load_data, &library, "any", NULL, NULL, 0, NULL, NULL, 0);
	GPU(library_get_kernel, &kernel, library, "fake_fill");
	GPU(kernel_get_function, &fills[device], kernel);
}

/* It waits for nothing, and wants more blocks than there are places. */
static void launch_fill(struct crossed *p, CUstream stream, int32_t *to)
{
	struct {
		uint32_t *to;
		size_t n;
		uint32_t add;
	} args = {(uint32_t *)to, 16, 0};
	void *parameters[] = {&args};

	if (random_below(&p->own, 4) == 0)
		GPU(launch_kernel, fills[p->r->device], 12, 1, 1, 32, 1, 1, 0, stream, parameters,
		    NULL);
}

static size_t bytes_of(const struct crossed_call *s, const tutti_comm *comm)
{
	return s->count * sizeof(int32_t) * (s->what == ALL_GATHER ? (size_t)tutti_size(comm) : 1);
}

static void begin(struct crossed *p, int i)
{
	struct crossed_call *s = &p->steps[i];
	struct crossed_stream *stream = choose_stream(p, i);
	struct crossed_child *c = &p->comms[s->comm];
	bool is_first = first_pending(p) == i, has_work = random_below(&p->own, 3) == 0;
	tutti_call call = {.stream = stream->stream};
	tutti_call *how = is_first && random_below(&p->own, 6) == 0 ? NULL : &call;

	s->stream = stream->stream;
	stream->last = i;
	for (size_t k = 0; k < s->count; k++)
		s->in[k] = value(s->salt, tutti_rank(c->comm), k);
	gpu_copy_in(s->stream, c->graph ? c->send : s->send, s->in, s->count * sizeof *s->in);
	launch_fill(p, s->stream, s->send);
	if (c->graph) {
		GPU(graph_launch, c->graph, s->stream);
		gpu_copy_in(s->stream, s->out, c->recv, bytes_of(s, c->comm));
	} else {
		call.work = has_work ? &s->work : NULL;
		if (!how)
			gpu_sync(s->stream);
		expect_ok(p->r, "a call", c->comm, issue(s, c->comm, how));
		if (!has_work || !how)
			gpu_copy_in(s->stream, s->out, s->recv, bytes_of(s, c->comm));
	}
	s->state = ISSUED;
}

static void await(struct crossed *p, struct crossed_call *s)
{
	tutti_comm *comm = p->comms[s->comm].comm;

	if (s->work) {
		expect_ok(p->r, "work_wait", comm, tutti_work_wait(&s->work, 0));
		gpu_copy_in(s->stream, s->out, s->recv, bytes_of(s, comm));
	}
	s->state = ENDED;
}

/* The host waits for some call that comes before all that are to be issued yet, perhaps by what is
 * in its stream, if all of that does. */
static void await_some(struct crossed *p)
{
	int i = (int)random_below(&p->own, FLIGHT), next = first_pending(p);
	struct crossed_call *s = &p->steps[i];

	if (s->state != ISSUED || i > next)
		return;
	if (s->work) {
		await(p, s);
		return;
	}
	for (int k = 0; k < STREAMS + COMMS; k++)
		if (p->streams[k].stream == s->stream && p->streams[k].last < next)
			gpu_sync(s->stream);
}

static void draw(struct crossed *p, struct crossed_call *s)
{
	static const size_t counts[] = {1, 100, 1000, 3000, 12000, MOST};

	s->comm = (int)random_below(&p->shared, COMMS);
	s->what = (enum crossed_what)random_below(&p->shared, WHATS);
	s->count = counts[random_below(&p->shared, sizeof counts / sizeof *counts)];
	s->salt = (uint32_t)random_next(&p->shared) % SALTS;
	if (p->comms[s->comm].graph) {
		s->what = ALL_REDUCE;
		s->count = p->comms[s->comm].count;
	}
	s->state = PENDING;
}

static void run_batch(struct crossed *p, int batch)
{
	struct crossed_rank *r = p->r;
	char text[100];

	for (int i = 0; i < FLIGHT; i++)
		draw(p, &p->steps[i]);
	for (int i = 0; i < STREAMS + COMMS; i++)
		p->streams[i].last = -1;
	for (int n = 0; n < FLIGHT && !r->why[0]; n++) {
		begin(p, choose(p));
		if (random_below(&p->own, 2))
			await_some(p);
	}
	for (int i = 0; i < FLIGHT; i++)
		await(p, &p->steps[i]);
	for (int i = 0; i < STREAMS + COMMS; i++)
		gpu_sync(p->streams[i].stream);
	for (int i = 0; i < FLIGHT && !r->why[0]; i++) {
		const struct crossed_call *s = &p->steps[i];
		const struct crossed_child *c = &p->comms[s->comm];
		snprintf(text, sizeof text, "batch %d, call %d: %d of communicator %d, count %zu",
			 batch, i, (int)s->what, s->comm, s->count);
		expect_ok(r, text, c->comm, tutti_comm_status(c->comm));
		if (!is_right(s, tutti_size(c->comm)))
			wrong(r, text, c->comm);
	}
}

/* Memory is taken before a kernel runs, for which a driver may wait. */
static void open_program(struct crossed *p)
{
	size_t bytes = MOST * sizeof(int32_t), all = bytes * (size_t)p->r->size;

	for (int i = 0; i < STREAMS + COMMS; i++)
		p->streams[i].stream = gpu_stream();
	for (int i = 0; i < COMMS; i++) {
		p->comms[i].send = gpu_alloc(bytes);
		p->comms[i].recv = gpu_alloc(bytes);
	}
	for (int i = 0; i < FLIGHT; i++) {
		struct crossed_call *s = &p->steps[i];
		s->send = gpu_alloc(bytes);
		s->recv = gpu_alloc(all);
		s->in = gpu_alloc_pinned(bytes);
		s->out = gpu_alloc_pinned(all);
	}
}

void crossed_program(struct crossed_rank *r)
{
	struct crossed *p = calloc(1, sizeof *p);

	p->r = r;
	p->shared = r->machine->seed;
	p->own = r->machine->seed * 31 + (uint64_t)r->rank;
	open_program(p);
	p->comms[0].comm = r->world;
	for (int i = 1; i < COMMS && !r->why[0]; i++)
		open_child(p, i);
	for (int batch = 0; batch < BATCHES && !r->why[0]; batch++) {
		run_batch(p, batch);
		int again = (int)random_below(&p->shared, 2 * COMMS);
		if (again > 0 && again < COMMS && !r->why[0]) {
			close_child(&p->comms[again]);
			open_child(p, again);
		}
	}
	for (int i = 1; i < COMMS; i++)
		close_child(&p->comms[i]);
	free(p);
}

/* ---- two communicators ---- */

static struct crossed_call open_step(const struct crossed_rank *r, size_t count)
{
	struct crossed_call s = {
		.what = ALL_REDUCE, .count = count, .salt = 1, .stream = gpu_stream()};

	s.send = gpu_alloc(count * sizeof *s.send);
	s.recv = gpu_alloc(count * sizeof *s.recv);
	s.in = gpu_alloc_pinned(count * sizeof *s.in);
	s.out = gpu_alloc_pinned(count * sizeof *s.out);
	for (size_t i = 0; i < count; i++)
		s.in[i] = value(s.salt, r->rank, i);
	gpu_write(s.send, s.in, count * sizeof *s.in);
	return s;
}

static void begin_of_pair(struct crossed_rank *r, struct crossed_call *s, tutti_comm *comm)
{
	tutti_call call = {.stream = s->stream};

	expect_ok(r, "a call", comm, issue(s, comm, &call));
	gpu_copy_in(s->stream, s->out, s->recv, s->count * sizeof *s->out);
}

static void end_of_pair(struct crossed_rank *r, struct crossed_call *s, tutti_comm *comm)
{
	gpu_sync(s->stream);
	expect_ok(r, "a call", comm, tutti_comm_status(comm));
	if (!is_right(s, r->size))
		wrong(r, "a result", comm);
}

void crossed_pair(struct crossed_rank *r)
{
	struct crossed_call lines = open_step(r, (size_t)1 << 20), packets = open_step(r, 10);
	tutti_comm *other;

	expect_ok(r, "dup", r->world, tutti_comm_dup(r->world, &other));
	if (r->why[0])
		return;
	if (r->rank == 0) {
		begin_of_pair(r, &lines, r->world);
		while (!cuda_channels_is_running(channels_of(r->world), NULL))
			sched_yield();
	}
	begin_of_pair(r, &packets, other);
	end_of_pair(r, &packets, other);
	if (r->rank == 1)
		begin_of_pair(r, &lines, r->world);
	end_of_pair(r, &lines, r->world);
	tutti_comm_destroy(other);
}

/* ---- threads ---- */

struct thread {
	struct crossed_rank rank;
	crossed_body *body;
	pthread_t thread;
};

static void *enter(void *arg)
{
	struct thread *t = arg;

	gpu_use(t->rank.device);
	t->body(&t->rank);
	return NULL;
}

int crossed_run(const struct crossed_machine *m, int process, crossed_body *body)
{
	tutti_config config = {.device = 1 + m->first_device[process],
			       .timeout_ms = 30000,
			       .local_ranks = m->processes > 1 ? m->locals : 0};
	struct thread threads[CROSSED_RANKS];
	tutti_comm *comms[CROSSED_RANKS];
	int failed = 0;

	for (int device = 0; device < m->devices; device++)
		load_fill(device);
	gpu_use(m->first_device[process]);
	if (tutti_init_all(comms, m->locals, &config) != TUTTI_OK) {
		fprintf(stderr, "process %d: init: %s\n", process, tutti_comm_error(NULL));
		return 1;
	}
	for (int i = 0; i < m->locals; i++) {
		threads[i].body = body;
		threads[i].rank = (struct crossed_rank){.machine = m,
							.world = comms[i],
							.rank = tutti_rank(comms[i]),
							.size = tutti_size(comms[i]),
							.device = (m->first_device[process] + i) %
								  m->devices};
		must(pthread_create(&threads[i].thread, NULL, enter, &threads[i]) == 0, "a thread");
	}
	for (int i = 0; i < m->locals; i++)
		pthread_join(threads[i].thread, NULL);
	for (int i = 0; i < m->locals; i++) {
		if (threads[i].rank.why[0])
			fprintf(stderr, "%s\n", threads[i].rank.why);
		failed |= threads[i].rank.why[0];
		tutti_comm_destroy(comms[i]);
	}
	return failed ? 1 : 0;
}
