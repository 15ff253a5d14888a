/* Would break: bytes lost, mixed up or late when ranks in processes or threads of their own post,
 * move and sleep as chance has it. A lost wake-up ends in the alarm. TEST_SEED=n repeats a run's
 * choices. */
#include "transport/shm/shm.h"

#include "core/clock.h"
#include "core/status.h"
#include "tests/limit.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS    3
#define MESSAGES 60 /* of an ordered pair */
#define POSTED   4  /* at a time          */

#define check(claim)                                                                               \
	do {                                                                                       \
		if (!(claim)) {                                                                    \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #claim,    \
				last_error());                                                     \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* What the ranks share before they have rings. */
struct board {
	pthread_barrier_t barrier;
	uint64_t seed;
	uint8_t address[RANKS][TUTTI_ADDRESS_BYTES];
	size_t address_bytes[RANKS];
};

/* One direction to or from one peer. */
struct flow {
	int from, to;
	struct tutti_conn *conn;
	struct tutti_io ios[POSTED];
	int posted, finished;
};

struct rank {
	struct board *board;
	int rank;
	struct tutti_endpoint *endpoint;
	struct tutti_conn *conns[RANKS];
	struct flow flows[2 * RANKS]; /* sends to each, then receives from each */
	uint64_t random;
	int left;
};

static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	return z ^ (z >> 31);
}

static uint64_t message_seed(const struct board *board, const struct flow *flow, int i)
{
	uint64_t state =
		board->seed + (uint64_t)(flow->from * RANKS + flow->to) * 1000 + (uint64_t)i;
	return next(&state);
}

static size_t message_bytes(uint64_t seed)
{
	static const size_t limits[] = {1, 65, 5000, 70000, 300000, (1u << 20) + 1};
	size_t limit = limits[seed % (sizeof limits / sizeof limits[0])];
	return (size_t)(next(&seed) % limit);
}

/* Compares (is_send false) or fills. */
static void pattern(uint8_t *buf, size_t bytes, uint64_t seed, bool is_send)
{
	for (size_t at = 0; at < bytes; at += sizeof seed) {
		uint64_t word = next(&seed);
		size_t n = bytes - at < sizeof word ? bytes - at : sizeof word;
		if (is_send)
			memcpy(buf + at, &word, n);
		else
			check(memcmp(buf + at, &word, n) == 0);
	}
}

static void post(struct rank *me, struct flow *flow)
{
	bool is_send = flow->from == me->rank;
	uint64_t seed = message_seed(me->board, flow, flow->posted);
	struct tutti_io *io = &flow->ios[flow->posted++ % POSTED];

	*io = (struct tutti_io){.bytes = message_bytes(seed), .tag = (uint32_t)seed};
	io->buf = malloc(io->bytes + 1);
	check(io->buf);
	if (is_send)
		pattern(io->buf, io->bytes, seed, true);
	(is_send ? transport_shm.send : transport_shm.recv)(flow->conn, io);
}

static void finish(struct rank *me, struct flow *flow, struct tutti_io *io)
{
	check(io->status == TUTTI_OK);
	check(io == &flow->ios[flow->finished % POSTED]);
	if (flow->to == me->rank)
		pattern(io->buf, io->bytes, message_seed(me->board, flow, flow->finished), false);
	flow->finished++;
	me->left--;
	free(io->buf);
}

static bool progress(struct rank *me)
{
	struct tutti_done done;
	struct tutti_io *io;

	tutti_done_init(&done);
	bool is_moving = transport_shm.progress(me->endpoint, &done);
	while ((io = tutti_done_pop(&done)))
		for (int i = 0; i < 2 * RANKS; i++) {
			struct flow *flow = &me->flows[i];
			if (io >= flow->ios && io < flow->ios + POSTED) {
				finish(me, flow, io);
				break;
			}
		}
	return is_moving;
}

static void maybe_sleep(struct rank *me)
{
	struct pollfd fd = {.fd = transport_shm.event_fd(me->endpoint), .events = POLLIN};

	if (transport_shm.arm(me->endpoint))
		return;
	/* Awake, it may also look at something else first: post a receive, say. */
	struct flow *flow = &me->flows[RANKS + next(&me->random) % RANKS];
	if (flow->conn && flow->posted - flow->finished < POSTED && flow->posted < MESSAGES)
		post(me, flow);
	check(poll(&fd, 1, -1) == 1);
}

static void open_rank(struct rank *me)
{
	struct board *board = me->board;
	struct tutti_endpoint_config config = {.rank = me->rank,
					       .size = RANKS,
					       .host_id = "stress",
					       .comm_id = {board->seed, 1},
					       .timeout_ms = 60000};

	check(transport_shm.open(&me->endpoint, &config) == TUTTI_OK);
	board->address_bytes[me->rank] = me->endpoint->address_bytes;
	memcpy(board->address[me->rank], me->endpoint->address, TUTTI_ADDRESS_BYTES);
	pthread_barrier_wait(&board->barrier);
	for (int peer = 0; peer < RANKS; peer++) {
		if (peer == me->rank)
			continue;
		check(transport_shm.connect(me->endpoint, peer, 0, board->address[peer],
					    board->address_bytes[peer],
					    &me->conns[peer]) == TUTTI_OK);
		me->flows[peer] =
			(struct flow){.from = me->rank, .to = peer, .conn = me->conns[peer]};
		me->flows[RANKS + peer] =
			(struct flow){.from = peer, .to = me->rank, .conn = me->conns[peer]};
	}
}

static void *run_rank(void *arg)
{
	struct rank *me = arg;

	me->random = me->board->seed ^ (uint64_t)(me->rank + 1) << 40;
	me->left = 2 * (RANKS - 1) * MESSAGES;
	open_rank(me);
	while (me->left > 0) {
		struct flow *flow = &me->flows[next(&me->random) % (2 * RANKS)];
		if (flow->conn && flow->posted < MESSAGES && flow->posted - flow->finished < POSTED)
			post(me, flow);
		bool all_posted = true;
		for (int i = 0; i < 2 * RANKS; i++) {
			const struct flow *f = &me->flows[i];
			all_posted &= !f->conn || f->posted == MESSAGES ||
				      f->posted - f->finished == POSTED;
		}
		uint64_t choice = next(&me->random) % 8;
		if (choice > 0 && !progress(me) && all_posted && me->left > 0)
			maybe_sleep(me);
	}
	/* Some leave at once; what they sent must arrive all the same. */
	for (int peer = 0; peer < RANKS; peer++)
		transport_shm.close(me->conns[peer]);
	transport_shm.destroy(me->endpoint);
	return NULL;
}

static struct board *board_new(uint64_t seed)
{
	struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attributes;

	check(board != MAP_FAILED);
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	check(pthread_barrier_init(&board->barrier, &attributes, RANKS) == 0);
	board->seed = seed;
	return board;
}

static void run_threads(uint64_t seed)
{
	struct board *board = board_new(seed);
	struct rank ranks[RANKS];
	pthread_t threads[RANKS];

	memset(ranks, 0, sizeof ranks);
	for (int r = 0; r < RANKS; r++) {
		ranks[r].board = board;
		ranks[r].rank = r;
		check(pthread_create(&threads[r], NULL, run_rank, &ranks[r]) == 0);
	}
	for (int r = 0; r < RANKS; r++)
		pthread_join(threads[r], NULL);
	munmap(board, sizeof *board);
}

static void run_processes(uint64_t seed)
{
	struct board *board = board_new(seed);
	pid_t pids[RANKS];

	for (int r = 0; r < RANKS; r++) {
		if ((pids[r] = fork()) == 0) {
			struct rank me = {.board = board, .rank = r};
			test_limit(100);
			run_rank(&me);
			_exit(0);
		}
		check(pids[r] > 0);
	}
	for (int r = 0; r < RANKS; r++) {
		int status;
		check(waitpid(pids[r], &status, 0) == pids[r]);
		check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	munmap(board, sizeof *board);
}

int main(void)
{
	const char *text = getenv("TEST_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : clock_now_ns();

	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	test_limit(100);
	for (uint64_t i = 0; i < 3; i++) {
		run_processes(seed + i);
		run_threads(seed + i + 100);
	}
	return 0;
}
