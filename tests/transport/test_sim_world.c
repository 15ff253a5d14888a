/* no_tsan: it has one thread */
/* Would break: the simulator's order, clock, faults or determinism, on which every seeded test of
 * the engine and of the algorithms rests. (What sim has in common with all transports: test_sim.c.)
 */
#include "tests/sim/sim.h"

#include "core/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define RANKS     4
#define MESSAGES  40 /* per ordered pair */
#define BYTES_MAX 300

static const struct tutti_transport *const sim_transport = &transport_sim;

struct net {
	struct sim *sim;
	int size;
	struct tutti_endpoint **endpoints;
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x100000001b3u;
	return hash ^ (hash >> 29);
}

static struct net net_open(struct sim_config config)
{
	struct net net = {.size = config.size};

	assert_int_equal(sim_create(&net.sim, &config), TUTTI_OK);
	net.endpoints = calloc((size_t)net.size, sizeof(struct tutti_endpoint *));
	assert_non_null(net.endpoints);
	for (int rank = 0; rank < net.size; rank++) {
		struct tutti_endpoint_config endpoint = {
			.rank = rank, .size = net.size, .comm_id = {7, 9}, .context = net.sim};
		assert_int_equal(sim_transport->open(&net.endpoints[rank], &endpoint), TUTTI_OK);
	}
	return net;
}

static void net_close(struct net *net)
{
	for (int rank = 0; rank < net->size; rank++)
		sim_transport->destroy(net->endpoints[rank]);
	free(net->endpoints);
	sim_destroy(net->sim);
}

static struct tutti_conn *net_connect(struct net *net, int rank, int peer)
{
	const struct tutti_endpoint *other = net->endpoints[peer];
	struct tutti_conn *conn;

	assert_true(sim_transport->reach(net->endpoints[rank], peer, other->address,
					 other->address_bytes) > 0);
	assert_int_equal(sim_transport->connect(net->endpoints[rank], peer, 0, other->address,
						other->address_bytes, &conn),
			 TUTTI_OK);
	return conn;
}

static struct tutti_io *net_pop(struct net *net, int rank)
{
	static struct tutti_done done;

	tutti_done_init(&done);
	sim_transport->progress(net->endpoints[rank], &done);
	struct tutti_io *io = tutti_done_pop(&done);
	assert_null(done.head); /* the tests below expect at most one at a time */
	return io;
}

struct random_run {
	struct net net;
	struct tutti_conn *conns[RANKS][RANKS];
	struct tutti_io ios[2][RANKS][RANKS][MESSAGES]; /* sends, receives */
	uint8_t payload[2][RANKS][RANKS][MESSAGES][BYTES_MAX];
	int posted[2][RANKS][RANKS], finished[2][RANKS][RANKS];
	int early;      /* sends that completed before their receive was posted */
	uint64_t order; /* hash of all completions in their order               */
};

static size_t bytes_of(int from, int to, int i)
{
	return (size_t)(from * 31 + to * 17 + i * 7) % BYTES_MAX;
}

static void post(struct random_run *run, bool is_recv, int from, int to)
{
	int i = run->posted[is_recv][from][to]++;
	struct tutti_io *io = &run->ios[is_recv][from][to][i];

	io->bytes = bytes_of(from, to, i);
	io->tag = (uint32_t)i;
	io->buf = run->payload[is_recv][from][to][i];
	if (is_recv) {
		sim_transport->recv(run->conns[to][from], io);
		return;
	}
	memset(io->buf, from * 50 + to * 10 + i, io->bytes);
	sim_transport->send(run->conns[from][to], io);
}

static void finish(struct random_run *run, struct tutti_io *io)
{
	size_t at = (size_t)(io - &run->ios[0][0][0][0]);
	bool is_recv = at >= RANKS * RANKS * MESSAGES;
	int i = (int)(at % MESSAGES), to = (int)(at / MESSAGES % RANKS);
	int from = (int)(at / MESSAGES / RANKS % RANKS);

	assert_int_equal(io->status, TUTTI_OK);
	assert_int_equal(i, run->finished[is_recv][from][to]++); /* FIFO */
	run->order = mix(run->order, at);
	if (is_recv) {
		for (size_t b = 0; b < io->bytes; b++)
			assert_int_equal(((uint8_t *)io->buf)[b],
					 (uint8_t)(from * 50 + to * 10 + i));
		return;
	}
	if (run->posted[true][from][to] <= i)
		run->early++;
	memset(io->buf, 0xee, io->bytes); /* the sender's buffer is its own again */
}

static void collect(struct random_run *run, int rank)
{
	struct tutti_done done;

	tutti_done_init(&done);
	sim_transport->progress(run->net.endpoints[rank], &done);
	for (struct tutti_io *io; (io = tutti_done_pop(&done));)
		finish(run, io);
}

/* Posts in an order of its own, steps in between, and returns when all has arrived. */
static struct random_run *random_run(uint64_t seed)
{
	struct random_run *run = calloc(1, sizeof(*run));
	int left = 2 * RANKS * (RANKS - 1) * MESSAGES, pair[2];
	uint64_t choice = 1;

	assert_non_null(run);
	run->net = net_open((struct sim_config){.size = RANKS, .seed = seed});
	for (int a = 0; a < RANKS; a++)
		for (int b = 0; b < RANKS; b++)
			if (a != b)
				run->conns[a][b] = net_connect(&run->net, a, b);
	while (left > 0) {
		choice = choice * 6364136223846793005u + 1442695040888963407u;
		int from = (int)(choice >> 33) % RANKS, to = (int)(choice >> 41) % RANKS;
		bool is_recv = choice >> 60 & 1;
		if (from != to && run->posted[is_recv][from][to] < MESSAGES) {
			post(run, is_recv, from, to);
			left--;
		}
		if (!(choice >> 50 & 1) || !sim_step(run->net.sim, pair))
			continue;
		collect(run, pair[0]);
		collect(run, pair[1]);
	}
	while (sim_step(run->net.sim, pair)) {
		collect(run, pair[0]);
		collect(run, pair[1]);
	}
	for (int a = 0; a < RANKS; a++)
		for (int b = 0; b < RANKS; b++)
			for (int is_recv = 0; a != b && is_recv < 2; is_recv++)
				assert_int_equal(run->finished[is_recv][a][b], MESSAGES);
	assert_int_equal(sim_messages(run->net.sim), RANKS * (RANKS - 1) * MESSAGES);
	for (int a = 0; a < RANKS; a++)
		for (int b = 0; b < RANKS; b++)
			sim_transport->close(run->conns[a][b]);
	net_close(&run->net);
	return run;
}

static void test_random_order(void **state)
{
	int early = 0, same = 0;
	uint64_t last = 0;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct random_run *run = random_run(seed), *again = random_run(seed);
		assert_true(run->order == again->order);
		same += run->order == last;
		last = run->order;
		early += run->early;
		free(run);
		free(again);
	}
	assert_int_equal(same, 0); /* different seeds, different orders      */
	assert_true(early > 0);    /* some sends are buffered ...            */
	assert_true(early < 20 * RANKS * (RANKS - 1) * MESSAGES);
}

/* Until it completes, a send's bytes are read from the caller's buffer: late, in some seeds. */
static void test_late_reads(void **state)
{
	int late = 0, early = 0, pair[2];

	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct net net = net_open((struct sim_config){.size = 2, .seed = seed});
		struct tutti_conn *a = net_connect(&net, 0, 1), *b = net_connect(&net, 1, 0);
		uint8_t sent = 1, got = 0;
		struct tutti_io send = {.buf = &sent, .bytes = 1}, recv = {.buf = &got, .bytes = 1};
		sim_transport->send(a, &send);
		while (sim_step(net.sim, pair))
			assert_int_equal(pair[0] | pair[1], 0);
		bool is_early = net_pop(&net, 0) != NULL;
		sent = 2;
		sim_transport->recv(b, &recv);
		while (sim_step(net.sim, pair))
			continue;
		assert_ptr_equal(net_pop(&net, 1), &recv);
		assert_int_equal(got, is_early ? 1 : 2);
		is_early ? early++ : late++;
		sim_transport->close(a);
		sim_transport->close(b);
		net_close(&net);
	}
	assert_true(late > 0 && early > 0);
}

static void test_clock(void **state)
{
	struct net net = net_open((struct sim_config){
		.size = 3, .order = SIM_TIMED, .alpha_ns = 1000, .beta_ns = 2, .dry = true});
	struct tutti_conn *to1 = net_connect(&net, 0, 1), *to2 = net_connect(&net, 0, 2);
	struct tutti_conn *from0 = net_connect(&net, 1, 0), *also0 = net_connect(&net, 2, 0);
	struct tutti_io sends[3], recvs[3];
	int ranks[2];

	for (int i = 0; i < 3; i++)
		sends[i] = recvs[i] = (struct tutti_io){.bytes = 500};
	sim_transport->send(to1, &sends[0]); /* arrives at 1000 + 500 * 2       */
	sim_transport->send(to1, &sends[1]); /* shares the link: 1000 later     */
	sim_transport->send(to2, &sends[2]); /* another link: as the first      */
	assert_int_equal(sim_step(net.sim, ranks), 0);
	sim_transport->recv(from0, &recvs[0]);
	sim_transport->recv(from0, &recvs[1]);
	static const struct {
		int to;
		uint64_t at;
	} expected[] = {{1, 2000}, {1, 3000}};
	for (int i = 0; i < 2; i++) {
		assert_int_equal(sim_step(net.sim, ranks), 1);
		assert_int_equal(ranks[0], 0);
		assert_int_equal(ranks[1], expected[i].to);
		assert_int_equal(sim_now_ns(net.sim), expected[i].at);
		assert_ptr_equal(net_pop(&net, 0), &sends[i]);
		assert_ptr_equal(net_pop(&net, 1), &recvs[i]);
	}
	assert_int_equal(sim_step(net.sim, ranks), 0);
	sim_advance(net.sim, 500);
	sim_transport->recv(also0, &recvs[2]); /* has long arrived: at once */
	assert_int_equal(sim_step(net.sim, ranks), 1);
	assert_int_equal(ranks[1], 2);
	assert_int_equal(sim_now_ns(net.sim), 3500);
	assert_ptr_equal(net_pop(&net, 0), &sends[2]);
	assert_ptr_equal(net_pop(&net, 2), &recvs[2]);
	assert_int_equal(sim_step(net.sim, ranks), 0);
	sim_transport->close(to1);
	sim_transport->close(to2);
	sim_transport->close(from0);
	sim_transport->close(also0);
	net_close(&net);
}

struct ring_rank {
	struct tutti_conn *right, *left;
	struct tutti_io send, recv;
	int steps, pending;
};

static void ring_post(struct ring_rank *rank, size_t bytes)
{
	rank->send = rank->recv = (struct tutti_io){.bytes = bytes};
	rank->pending = 2;
	sim_transport->recv(rank->left, &rank->recv);
	sim_transport->send(rank->right, &rank->send);
}

/* 1,024 ranks, 2 (n - 1) steps each: time is exactly that many messages, and it takes seconds. */
static void test_large_ring(void **state)
{
	enum { N = 1024, STEPS = 2 * (N - 1), BYTES = 100 };
	struct net net = net_open((struct sim_config){
		.size = N, .order = SIM_TIMED, .alpha_ns = 500, .beta_ns = 3, .dry = true});
	struct ring_rank *ring = calloc(N, sizeof(*ring));
	int pair[2];

	assert_non_null(ring);
	for (int r = 0; r < N; r++) {
		ring[r].right = net_connect(&net, r, (r + 1) % N);
		ring[r].left = net_connect(&net, r, (r + N - 1) % N);
		ring_post(&ring[r], BYTES);
	}
	while (sim_step(net.sim, pair)) {
		for (int i = 0; i < 2; i++) {
			struct ring_rank *rank = &ring[pair[i]];
			struct tutti_done done;
			tutti_done_init(&done);
			sim_transport->progress(net.endpoints[pair[i]], &done);
			while (tutti_done_pop(&done))
				if (--rank->pending == 0 && ++rank->steps < STEPS)
					ring_post(rank, BYTES);
		}
	}
	for (int r = 0; r < N; r++) {
		assert_int_equal(ring[r].steps, STEPS);
		sim_transport->close(ring[r].left);
		sim_transport->close(ring[r].right);
	}
	assert_int_equal(sim_messages(net.sim), (uint64_t)N * STEPS);
	assert_int_equal(sim_now_ns(net.sim), (uint64_t)STEPS * (500 + 3 * BYTES));
	net_close(&net);
	free(ring);
}

static void test_delay(void **state)
{
	for (int order = SIM_RANDOM; order <= SIM_TIMED; order++) {
		struct net net = net_open(
			(struct sim_config){.size = 3, .seed = 5, .order = (enum sim_order)order});
		struct tutti_conn *conns[4] = {net_connect(&net, 0, 2), net_connect(&net, 2, 0),
					       net_connect(&net, 1, 2), net_connect(&net, 2, 1)};
		struct tutti_io ios[4] = {{0}};
		int pair[2], last = -1;
		sim_delay(net.sim, 0, 2, 700);
		sim_transport->send(conns[0], &ios[0]);
		sim_transport->recv(conns[1], &ios[1]);
		sim_transport->send(conns[2], &ios[2]);
		sim_transport->recv(conns[3], &ios[3]);
		while (sim_step(net.sim, pair))
			if (pair[1] == 2)
				last = pair[0] == 2 ? last : pair[0];
		assert_int_equal(last, 0);
		assert_int_equal(sim_now_ns(net.sim), 700);
		for (int i = 0; i < 4; i++) {
			assert_int_equal(ios[i].status, TUTTI_OK);
			sim_transport->close(conns[i]);
		}
		net_close(&net);
	}
}

static void test_kill(void **state)
{
	struct net net = net_open((struct sim_config){.size = 3, .order = SIM_TIMED});
	struct tutti_conn *a1 = net_connect(&net, 0, 1), *a2 = net_connect(&net, 0, 2);
	struct tutti_conn *b0 = net_connect(&net, 1, 0), *c0 = net_connect(&net, 2, 0);
	uint8_t byte = 3, got = 0, never = 0;
	struct tutti_io lost = {.buf = &byte, .bytes = 1}, waits = {.buf = &never, .bytes = 1};
	struct tutti_io send = lost, recv = {.buf = &got, .bytes = 1}, later = waits;
	int pair[2];

	sim_transport->recv(a1, &waits);
	sim_transport->send(b0, &lost);
	sim_kill(net.sim, 1);
	assert_int_equal(sim_step(net.sim, pair), 1); /* it is said who has news */
	assert_int_equal(pair[0], 0);
	assert_ptr_equal(net_pop(&net, 0), &waits);
	assert_int_equal(waits.status, TUTTI_ERR_PEER);
	assert_int_equal(a1->status, TUTTI_ERR_PEER);
	assert_non_null(strstr(a1->error, "ank 1"));
	assert_int_equal(never, 0);
	sim_transport->send(a1, &later); /* later ones as well */
	assert_ptr_equal(net_pop(&net, 0), &later);
	assert_int_equal(later.status, TUTTI_ERR_PEER);
	sim_transport->send(a2, &send); /* and nobody else is disturbed */
	sim_transport->recv(c0, &recv);
	while (sim_step(net.sim, pair))
		continue;
	assert_ptr_equal(net_pop(&net, 2), &recv);
	assert_int_equal(recv.status, TUTTI_OK);
	assert_int_equal(got, 3);
	struct tutti_conn *c1 = net_connect(&net, 2, 1); /* known to be dead */
	assert_int_equal(c1->status, TUTTI_ERR_PEER);
	struct tutti_conn *all[] = {a1, a2, b0, c0, c1};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		sim_transport->close(all[i]);
	net_close(&net);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_order), cmocka_unit_test(test_late_reads),
		cmocka_unit_test(test_clock),        cmocka_unit_test(test_large_ring),
		cmocka_unit_test(test_delay),        cmocka_unit_test(test_kill),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
