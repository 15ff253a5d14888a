/* no_tsan: it has one thread */
/* Would break: the times that the simulator predicts, by node and by port, on which tests of plans
 * and of choices between them rest. (Order, faults and the plain clock: test_sim_world.c.) */
#include "tests/sim/sim.h"

#include "core/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define BYTES 1000

static const struct tutti_transport *const sim_transport = &transport_sim;

struct net {
	struct sim *sim;
	int size;
	struct tutti_endpoint **endpoints;
	struct tutti_conn **conns; /* [from * size + to] */
};

static void net_open(struct net *net, struct sim_config config)
{
	size_t size = (size_t)config.size;

	config.order = SIM_TIMED;
	config.dry = true;
	net->size = config.size;
	assert_int_equal(sim_create(&net->sim, &config), TUTTI_OK);
	net->endpoints = calloc(size, sizeof *net->endpoints);
	net->conns = calloc(size * size, sizeof *net->conns);
	assert_true(net->endpoints && net->conns);
	for (int rank = 0; rank < net->size; rank++) {
		struct tutti_endpoint_config endpoint = {
			.rank = rank, .size = net->size, .comm_id = {7, 9}, .context = net->sim};
		assert_int_equal(sim_transport->open(&net->endpoints[rank], &endpoint), TUTTI_OK);
	}
}

static void net_close(struct net *net)
{
	for (int i = 0; i < net->size * net->size; i++)
		sim_transport->close(net->conns[i]);
	for (int rank = 0; rank < net->size; rank++)
		sim_transport->destroy(net->endpoints[rank]);
	free(net->endpoints);
	free(net->conns);
	sim_destroy(net->sim);
}

static struct tutti_conn *conn(struct net *net, int rank, int peer)
{
	struct tutti_conn **c = &net->conns[rank * net->size + peer];
	const struct tutti_endpoint *other = net->endpoints[peer];

	if (!*c)
		assert_int_equal(sim_transport->connect(net->endpoints[rank], peer, 0,
							other->address, other->address_bytes, c),
				 TUTTI_OK);
	return *c;
}

/* A message and both its ends; arrived_ns is 0 until then. */
struct letter {
	struct tutti_io send, recv;
	uint64_t arrived_ns;
};

static void post(struct net *net, struct letter *l, int from, int to, size_t bytes)
{
	memset(l, 0, sizeof *l);
	l->send.bytes = l->recv.bytes = bytes;
	sim_transport->send(conn(net, from, to), &l->send);
	sim_transport->recv(conn(net, to, from), &l->recv);
}

static void take(struct net *net, int rank, struct letter *letters, int n)
{
	struct tutti_done done;

	tutti_done_init(&done);
	sim_transport->progress(net->endpoints[rank], &done);
	for (struct tutti_io *io; (io = tutti_done_pop(&done));) {
		assert_int_equal(io->status, TUTTI_OK);
		for (int i = 0; i < n; i++)
			if (io == &letters[i].recv)
				letters[i].arrived_ns = sim_now_ns(net->sim);
	}
}

static void run(struct net *net, struct letter *letters, int n)
{
	int ranks[2];

	while (sim_step(net->sim, ranks)) {
		take(net, ranks[0], letters, n);
		take(net, ranks[1], letters, n);
	}
}

/* Ranks 0 and 1 are on one node, 2 and 3 on another. */
static void test_nodes(void **state)
{
	static const struct {
		int from, to;
		uint64_t ns;
	} cases[] = {{0, 1, 10 + BYTES},      {1, 0, 10 + BYTES},      {3, 2, 10 + BYTES},
		     {0, 2, 500 + 3 * BYTES}, {3, 1, 500 + 3 * BYTES}, {2, 0, 500 + 3 * BYTES}};

	for (int has_ports = 0; has_ports < 2; has_ports++) {
		int nodes[4] = {7, 7, -1, -1};
		struct net net;
		net_open(&net, (struct sim_config){.size = 4,
						   .alpha_ns = 500,
						   .beta_ns = 3,
						   .nodes = nodes,
						   .local_alpha_ns = 10,
						   .local_beta_ns = 1,
						   .has_ports = has_ports});
		memset(nodes, 0, sizeof nodes);
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
			uint64_t before = sim_now_ns(net.sim);
			struct letter l;
			post(&net, &l, cases[i].from, cases[i].to, BYTES);
			run(&net, &l, 1);
			assert_int_equal(l.arrived_ns - before, cases[i].ns);
		}
		net_close(&net);
	}
}

/* Many to one, one to many, and both directions at once. */
static void test_ports(void **state)
{
	enum { N = 9, ALPHA = 500, BETA = 2, WIRE = BETA * BYTES };

	for (int has_ports = 0; has_ports < 2; has_ports++) {
		struct letter letters[N];
		struct net net;
		net_open(&net, (struct sim_config){.size = N,
						   .alpha_ns = ALPHA,
						   .beta_ns = BETA,
						   .has_ports = has_ports});
		for (int round = 0; round < 2; round++) {
			uint64_t before = sim_now_ns(net.sim);
			for (int i = 1; i < N; i++)
				post(&net, &letters[i], round ? 0 : i, round ? i : 0, BYTES);
			run(&net, letters + 1, N - 1);
			for (int i = 1; i < N; i++)
				assert_int_equal(letters[i].arrived_ns - before,
						 ALPHA + (has_ports ? i : 1) * WIRE);
		}
		uint64_t before = sim_now_ns(net.sim);
		post(&net, &letters[0], 0, 1, BYTES);
		post(&net, &letters[1], 1, 0, BYTES);
		run(&net, letters, 2);
		assert_int_equal(letters[0].arrived_ns - before, ALPHA + WIRE);
		assert_int_equal(letters[1].arrived_ns - before, ALPHA + WIRE);
		net_close(&net);
	}
}

/* The port is whose first byte arrives first, not who posted first; messages of one pair stay in
 * order, and one that nobody has asked for yet has landed all the same. */
static void test_arrivals(void **state)
{
	const int nodes[3] = {0, 1, 1};
	struct letter letters[3];
	struct net net;

	net_open(&net, (struct sim_config){.size = 3,
					   .alpha_ns = 100000,
					   .beta_ns = 1,
					   .nodes = nodes,
					   .local_alpha_ns = 10,
					   .local_beta_ns = 1,
					   .has_ports = true});
	post(&net, &letters[0], 0, 2, BYTES); /* from far away */
	post(&net, &letters[1], 1, 2, BYTES);
	post(&net, &letters[2], 1, 2, BYTES);
	run(&net, letters, 3);
	assert_int_equal(letters[1].arrived_ns, 10 + BYTES);
	assert_int_equal(letters[2].arrived_ns, 10 + 2 * BYTES);
	assert_int_equal(letters[0].arrived_ns, 100000 + BYTES);

	uint64_t before = sim_now_ns(net.sim);
	letters[0] = (struct letter){.send.bytes = BYTES, .recv.bytes = BYTES};
	sim_transport->send(conn(&net, 1, 2), &letters[0].send);
	post(&net, &letters[1], 0, 2, BYTES);
	run(&net, letters, 2);
	assert_int_equal(letters[1].arrived_ns - before, 100000 + BYTES);
	sim_transport->recv(conn(&net, 2, 1), &letters[0].recv);
	run(&net, letters, 1);
	assert_int_equal(letters[0].arrived_ns - before, 100000 + BYTES);
	net_close(&net);
}

/* All to all, every rank's letters at once, of random length: the whole of it as one number. */
static uint64_t everything(uint64_t seed, bool has_ports, uint64_t *end_ns)
{
	enum { N = 16 };
	static struct letter letters[N * N];
	uint64_t hash = 1, random = 1;
	int nodes[N];
	struct net net;

	for (int i = 0; i < N; i++)
		nodes[i] = i / 4;
	net_open(&net, (struct sim_config){.size = N,
					   .seed = seed,
					   .alpha_ns = 700.5,
					   .beta_ns = 0.37,
					   .nodes = nodes,
					   .local_alpha_ns = 33,
					   .local_beta_ns = 0.11,
					   .has_ports = has_ports});
	for (int i = 0; i < N * N; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		if (i / N != i % N)
			post(&net, &letters[i], i / N, i % N, random >> 50);
	}
	run(&net, letters, N * N);
	for (int i = 0; i < N * N; i++) {
		assert_true(i / N == i % N || letters[i].arrived_ns > 0);
		hash = (hash ^ letters[i].arrived_ns) * 0x100000001b3u;
	}
	*end_ns = sim_now_ns(net.sim);
	net_close(&net);
	return hash;
}

static void test_same_again(void **state)
{
	uint64_t end_ns[3];

	for (int has_ports = 0; has_ports < 2; has_ports++) {
		uint64_t hash = everything(5, has_ports, &end_ns[has_ports]);
		assert_true(everything(5, has_ports, &end_ns[2]) == hash);
		assert_true(end_ns[2] == end_ns[has_ports]);
	}
	assert_true(end_ns[1] > end_ns[0]);
}

#define RANKS  4096
#define ROUNDS 12
#define LOCAL  4 /* rounds inside a node of 16 */

struct doubling_rank {
	struct tutti_endpoint *endpoint;
	struct tutti_conn *conns[ROUNDS];
	struct tutti_io send, recv;
	int round, pending;
};

static void doubling_open(struct doubling_rank *ranks, struct sim *sim)
{
	for (int r = 0; r < RANKS; r++) {
		struct tutti_endpoint_config own = {
			.rank = r, .size = RANKS, .comm_id = {7, 9}, .context = sim};
		assert_int_equal(sim_transport->open(&ranks[r].endpoint, &own), TUTTI_OK);
		ranks[r].round = -1;
	}
	for (int i = 0; i < RANKS * ROUNDS; i++) {
		int rank = i / ROUNDS, peer = rank ^ 1 << i % ROUNDS;
		const struct tutti_endpoint *other = ranks[peer].endpoint;
		assert_int_equal(sim_transport->connect(ranks[rank].endpoint, peer, 0,
							other->address, other->address_bytes,
							&ranks[rank].conns[i % ROUNDS]),
				 TUTTI_OK);
	}
}

static void doubling_close(struct doubling_rank *ranks)
{
	for (int i = 0; i < RANKS * ROUNDS; i++)
		sim_transport->close(ranks[i / ROUNDS].conns[i % ROUNDS]);
	for (int r = 0; r < RANKS; r++)
		sim_transport->destroy(ranks[r].endpoint);
	free(ranks);
}

/* To the next round, when both its ios have ended. */
static void doubling_go_on(struct doubling_rank *rank)
{
	struct tutti_done done;

	tutti_done_init(&done);
	sim_transport->progress(rank->endpoint, &done);
	while (tutti_done_pop(&done))
		rank->pending--;
	if (rank->pending > 0 || rank->round == ROUNDS - 1)
		return;
	rank->round++;
	rank->pending = 2;
	rank->send = rank->recv = (struct tutti_io){.bytes = BYTES};
	sim_transport->recv(rank->conns[rank->round], &rank->recv);
	sim_transport->send(rank->conns[rank->round], &rank->send);
}

/* Recursive doubling: the partner in round k is rank ^ 2^k, so that the later rounds cross nodes.
 */
static void test_thousands(void **state)
{
	struct doubling_rank *ranks = calloc(RANKS, sizeof *ranks);
	static int nodes[RANKS];
	struct sim *sim;
	int pair[2];

	for (int r = 0; r < RANKS; r++)
		nodes[r] = r >> LOCAL;
	const struct sim_config config = {.size = RANKS,
					  .order = SIM_TIMED,
					  .alpha_ns = 2000,
					  .beta_ns = 4,
					  .nodes = nodes,
					  .local_alpha_ns = 100,
					  .local_beta_ns = 1,
					  .has_ports = true,
					  .dry = true};
	assert_int_equal(sim_create(&sim, &config), TUTTI_OK);
	assert_non_null(ranks);
	doubling_open(ranks, sim);
	for (int r = 0; r < RANKS; r++)
		doubling_go_on(&ranks[r]);
	while (sim_step(sim, pair)) {
		doubling_go_on(&ranks[pair[0]]);
		doubling_go_on(&ranks[pair[1]]);
	}
	assert_int_equal(sim_messages(sim), RANKS * ROUNDS);
	assert_int_equal(sim_now_ns(sim),
			 LOCAL * (100 + BYTES) + (ROUNDS - LOCAL) * (2000 + 4 * BYTES));
	doubling_close(ranks);
	sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nodes),     cmocka_unit_test(test_ports),
		cmocka_unit_test(test_arrivals),  cmocka_unit_test(test_same_again),
		cmocka_unit_test(test_thousands),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
