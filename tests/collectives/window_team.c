/* Teams of ranks and calls with known values: see window_team.h. */
#include "window_team.h"

#include "core/clock.h"
#include "core/status.h"
#include "memory/dtype.h"
#include "memory/ops.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RANKS 16
#define GUARD     64

/* ---- teams ----------------------------------------------------------------------------- */

struct member {
	const struct team *team;
	struct window *window;
	int rank;
};

static struct window_config config_for(const struct team *team, int rank, const uint64_t id[2])
{
	struct window_config config = {
		rank, team->size, {id[0], id[1]}, team->window_bytes, wait_policy_for(team->size)};
	if (!config.window_bytes)
		config.window_bytes = 8u << 20;
	if (team->is_crowded)
		config.policy = (struct wait_policy){0, 20};
	return config;
}

static void *thread_main(void *arg)
{
	struct member *m = arg;
	m->team->member(m->window, m->rank, m->team->arg);
	return NULL;
}

void team_open(const struct team *team, struct window **windows)
{
	uint64_t id[2] = {team_random(1, (uint64_t)getpid(), clock_now_ns()), 7};
	struct window_config configs[MAX_RANKS];

	for (int rank = 0; rank < team->size; rank++)
		configs[rank] = config_for(team, rank, id);
	team_check(window_join_all(windows, configs, team->size) == TUTTI_OK, "%s", last_error());
}

void team_close(struct window **windows, int size)
{
	for (int rank = 0; rank < size; rank++)
		window_destroy(windows[rank]);
}

static int run_threads(const struct team *team)
{
	struct window *windows[MAX_RANKS];
	struct member members[MAX_RANKS];
	pthread_t threads[MAX_RANKS];

	team_open(team, windows);
	for (int rank = 0; rank < team->size; rank++) {
		members[rank] = (struct member){team, windows[rank], rank};
		team_check(!pthread_create(&threads[rank], NULL, thread_main, &members[rank]),
			   "pthread_create");
	}
	for (int rank = 0; rank < team->size; rank++)
		pthread_join(threads[rank], NULL);
	team_close(windows, team->size);
	return 0;
}

static void process_main(const struct team *team, int rank, const uint64_t id[2])
{
	struct window_config config = config_for(team, rank, id);
	struct window *window;

	alarm(100);
	team_check(window_join(&window, &config, deadline_after_ms(60000)) == TUTTI_OK, "%s",
		   last_error());
	team->member(window, rank, team->arg);
	window_destroy(window);
}

static int run_processes(const struct team *team)
{
	uint64_t id[2] = {team_random(2, (uint64_t)getpid(), clock_now_ns()), 9};
	pid_t pids[MAX_RANKS];
	int bad = 0;

	fflush(NULL);
	for (int rank = 0; rank < team->size; rank++) {
		pids[rank] = fork();
		team_check(pids[rank] >= 0, "fork");
		if (pids[rank] == 0) {
			process_main(team, rank, id);
			_exit(0);
		}
	}
	for (int rank = 0; rank < team->size; rank++) {
		int status = 0;
		waitpid(pids[rank], &status, 0);
		bad += status != 0;
	}
	return bad;
}

int team_run(const struct team *team)
{
	team_check(team->size <= MAX_RANKS, "%d ranks", team->size);
	return team->are_processes ? run_processes(team) : run_threads(team);
}

uint64_t team_seed(void)
{
	const char *text = getenv("TEST_SEED");
	uint64_t seed = 0;

	if (text)
		seed = strtoull(text, NULL, 0);
	else
		team_check(getrandom(&seed, sizeof seed, 0) == sizeof seed, "getrandom");
	printf("TEST_SEED=0x%llx\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

uint64_t team_random(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t h = a * 0x9e3779b97f4a7c15u + b * 0xd6e8feb86659fd93u + c * 0xa0761d6478bd642fu;

	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	return h ^ h >> 31;
}

/* ---- values ---------------------------------------------------------------------------- */

/* What rank contributes at index: small enough to be exact in dtype, and so are all results. */
static int64_t value_at(const struct call *call, int rank, size_t index)
{
	uint64_t h = team_random(call->seed, (uint64_t)rank, index);
	bool is_tiny = call->dtype == TUTTI_F8_E4M3 || call->dtype == TUTTI_F8_E5M2;

	if (call->collective != COLL_ALL_REDUCE && call->collective != COLL_REDUCE_SCATTER)
		return (int64_t)(h % 8);
	switch (call->op) {
	case TUTTI_PROD:
		return 1 + (int64_t)(h % 2);
	case TUTTI_AVG:
		if (dtype_is_float(call->dtype)) /* the same on all ranks */
			return (int64_t)(team_random(call->seed, 99, index) % 4);
		return (int64_t)(h % 100);
	case TUTTI_SUM:
		return (int64_t)(h % (is_tiny ? 2 : 9));
	default:
		return (int64_t)(h % 8);
	}
}

static int64_t combine(tutti_op op, int64_t a, int64_t b)
{
	switch (op) {
	case TUTTI_PROD:
		return a * b;
	case TUTTI_MIN:
		return a < b ? a : b;
	case TUTTI_MAX:
		return a > b ? a : b;
	case TUTTI_BAND:
		return a & b;
	case TUTTI_BOR:
		return a | b;
	case TUTTI_BXOR:
		return a ^ b;
	default:
		return a + b;
	}
}

static int64_t reduced_at(const struct call *call, int size, size_t index)
{
	int64_t result = value_at(call, 0, index);

	for (int rank = 1; rank < size; rank++)
		result = combine(call->op, result, value_at(call, rank, index));
	return call->op == TUTTI_AVG ? result / size : result;
}

/* A float with so many bits; value is a small whole number that it holds exactly. */
static uint64_t small_float(int64_t value, int mantissa_bits, int bias)
{
	int exponent = 0;

	if (value == 0)
		return 0;
	while (value >> (exponent + 1))
		exponent++;
	return ((uint64_t)(exponent + bias) << mantissa_bits) |
	       (((uint64_t)value << mantissa_bits >> exponent) & ((1u << mantissa_bits) - 1));
}

static void put(uint8_t *at, tutti_dtype dtype, int64_t value)
{
	uint64_t bits = (uint64_t)value;
	float f = (float)value;
	double d = (double)value;

	switch (dtype) {
	case TUTTI_F32:
		memcpy(at, &f, sizeof f);
		return;
	case TUTTI_F64:
		memcpy(at, &d, sizeof d);
		return;
	case TUTTI_F16:
		bits = small_float(value, 10, 15);
		break;
	case TUTTI_BF16:
		bits = small_float(value, 7, 127);
		break;
	case TUTTI_F8_E4M3:
		bits = small_float(value, 3, 7);
		break;
	case TUTTI_F8_E5M2:
		bits = small_float(value, 2, 15);
		break;
	default:
		break;
	}
	memcpy(at, &bits, dtype_bytes(dtype)); /* little-endian */
}

/* ---- calls ----------------------------------------------------------------------------- */

size_t call_send_bytes(const struct call *call, int size)
{
	size_t bytes = call->count * dtype_bytes(call->dtype);

	if (call->collective == COLL_BARRIER)
		return 0;
	return call->collective == COLL_REDUCE_SCATTER ? bytes * (size_t)size : bytes;
}

size_t call_recv_bytes(const struct call *call, int size)
{
	size_t bytes = call->count * dtype_bytes(call->dtype);

	if (call->collective == COLL_BARRIER)
		return 0;
	return call->collective == COLL_ALL_GATHER ? bytes * (size_t)size : bytes;
}

struct call_args call_args_for(const struct call *call, const void *send, void *recv)
{
	uint64_t print = team_random((uint64_t)call->collective << 32 | (uint64_t)call->dtype,
				     (uint64_t)call->op << 32 | (uint64_t)call->root, call->count);

	return (struct call_args){.collective = call->collective,
				  .dtype = call->dtype,
				  .op = call->op,
				  .root = call->root,
				  .count = call->count,
				  .send = send,
				  .recv = recv,
				  .sequence = call->seed,
				  .fingerprint = (uint32_t)print | 1};
}

static void fill(const struct call *call, int rank, int size, uint8_t *send)
{
	size_t each = dtype_bytes(call->dtype), n = call_send_bytes(call, size) / each;

	if (call->collective == COLL_BROADCAST && rank != call->root)
		return;
	for (size_t i = 0; i < n; i++)
		put(send + i * each, call->dtype, value_at(call, rank, i));
}

static int64_t expected_at(const struct call *call, int rank, int size, size_t i)
{
	switch (call->collective) {
	case COLL_ALL_REDUCE:
		return reduced_at(call, size, i);
	case COLL_REDUCE_SCATTER:
		return reduced_at(call, size, (size_t)rank * call->count + i);
	case COLL_ALL_GATHER:
		return value_at(call, (int)(i / call->count), i % call->count);
	default:
		return value_at(call, call->root, i);
	}
}

static void verify(const struct call *call, int rank, int size, const uint8_t *recv)
{
	size_t each = dtype_bytes(call->dtype), n = call_recv_bytes(call, size) / each;

	for (size_t i = 0; i < n; i++) {
		uint8_t want[8];
		put(want, call->dtype, expected_at(call, rank, size, i));
		team_check(!memcmp(want, recv + i * each, each),
			   "rank %d of %d: collective %d, %s, %s, count %zu, root %d: element %zu",
			   rank, size, (int)call->collective, dtype_name(call->dtype),
			   op_name(call->op), call->count, call->root, i);
	}
}

static void check_guard(const uint8_t *at, const char *which)
{
	for (int i = 0; i < GUARD; i++)
		team_check(at[i] == 0xa5, "the bytes %s the result were written to", which);
}

static tutti_status advance_until_done(struct window *window, struct window_run *run)
{
	uint64_t deadline = clock_now_ns() + TEAM_TIMEOUT_NS;
	tutti_status status;
	bool moved;

	while ((status = window_advance(window, run, &moved)) == TUTTI_IN_PROGRESS) {
		team_check(clock_now_ns() < deadline, "an asynchronous run hangs");
		if (!moved)
			sched_yield();
	}
	return status;
}

/* An arena is the rank's own shared memory: send at its begin, recv in its second half. */
struct buffers {
	uint8_t *send_room, *recv_room, *send, *recv;
};

static struct buffers make_buffers(const struct call *call, int rank, int size,
				   const struct manner *m)
{
	size_t send_bytes = call_send_bytes(call, size), recv_bytes = call_recv_bytes(call, size);
	size_t own = (size_t)rank * call->count * dtype_bytes(call->dtype);
	struct buffers b = {m->send_arena, m->recv_arena, NULL, NULL};

	if (!b.send_room)
		b.send_room = malloc(send_bytes + 2 * GUARD + m->send_shift);
	if (!b.recv_room)
		b.recv_room = malloc(recv_bytes + 2 * GUARD + m->recv_shift);
	b.send = b.send_room + GUARD + m->send_shift;
	b.recv = b.recv_room + GUARD + m->recv_shift;
	if (m->is_in_place && call->collective == COLL_REDUCE_SCATTER)
		b.recv = b.send + own;
	else if (m->is_in_place && call->collective == COLL_ALL_GATHER)
		b.send = b.recv + own;
	else if (m->is_in_place)
		b.recv = b.send;
	if (b.recv != b.send + own || call->collective != COLL_REDUCE_SCATTER)
		memset(b.recv - GUARD, 0xa5, recv_bytes + 2 * GUARD);
	if (!m->is_in_place)
		memset(b.send - GUARD, 0xa5, send_bytes + 2 * GUARD);
	fill(call, rank, size, b.send);
	return b;
}

void call_make(struct window *window, int rank, int size, const struct call *call,
	       const struct manner *m)
{
	struct buffers b = make_buffers(call, rank, size, m);
	struct call_args args = call_args_for(call, b.send, b.recv);
	size_t send_bytes = call_send_bytes(call, size), recv_bytes = call_recv_bytes(call, size);
	struct window_run run;
	tutti_status status;

	window_begin(window, &run, &args);
	status = m->is_async ? advance_until_done(window, &run)
			     : window_drive(window, &run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
	team_check(status == TUTTI_OK, "rank %d: %s", rank, last_error());
	verify(call, rank, size, b.recv);
	if (!m->is_in_place || call->collective != COLL_REDUCE_SCATTER) {
		check_guard(b.recv - GUARD, "before");
		check_guard(b.recv + recv_bytes, "after");
	}
	if (!m->is_in_place) {
		uint8_t *again = malloc(send_bytes + 1);
		memcpy(again, b.send, send_bytes);
		fill(call, rank, size, again);
		team_check(!memcmp(again, b.send, send_bytes), "rank %d: send was changed", rank);
		free(again);
	}
	if (!m->send_arena)
		free(b.send_room);
	if (!m->recv_arena)
		free(b.recv_room);
}

tutti_status team_drive(struct window *window, const struct call_args *args)
{
	struct window_run run;

	window_begin(window, &run, args);
	return window_drive(window, &run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
}

uint8_t *team_alloc(struct window *window, size_t bytes)
{
	struct call_args args = {.collective = COLL_MEM_ALLOC,
				 .count = bytes,
				 .fingerprint = (uint32_t)(bytes * 2 + 1)};
	struct window_run run;
	tutti_status status;

	window_begin(window, &run, &args);
	status = window_drive(window, &run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
	team_check(status == TUTTI_OK, "%s", last_error());
	return window_run_memory(&run);
}
