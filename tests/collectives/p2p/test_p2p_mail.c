/* Would break: messages that overtake each other where some go through the mailbox of a connection
 * and some through the connection; a receiver that keeps more of them than its bound; a message
 * that is lost because its sender has left; one that does not fit its recv, of which no one hears.
 */
#include "collectives/comm/comm.h"
#include "collectives/engine/engine_internal.h"
#include "collectives/p2p/p2p_internal.h"
#include "tests/limit.h"
#include "tests/random.h"
#include "transport/shm/shm.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "tests/unit.h"

#define MOST     70000u
#define MESSAGES 400
#define ROUNDS   500

static tutti_comm *comms[2];

static const struct p2p_peer *peer_of(int rank)
{
	return comms[rank]->engine->p2p->peers[1 - rank];
}

/* Until the connection is up, messages go through it. */
static void warm_up(void)
{
	for (int round = 0; round < 100; round++)
		for (int to = 0; to < 2; to++) {
			tutti_work *work = NULL;
			uint8_t out = 5, in = 0;
			assert_int_equal(tutti_send(&out, 1, TUTTI_U8, to, comms[1 - to],
						    &(tutti_call){.work = &work}),
					 TUTTI_OK);
			assert_int_equal(tutti_recv(&in, 1, TUTTI_U8, 1 - to, comms[to], NULL),
					 TUTTI_OK);
			assert_int_equal(tutti_work_wait(&work, 0), TUTTI_OK);
			assert_int_equal(in, 5);
		}
}

static void open_pair(const char *transports)
{
	assert_int_equal(tutti_init_all(comms, 2, &(tutti_config){.transports = transports}),
			 TUTTI_OK);
	warm_up();
}

static void close_pair(void)
{
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
}

static size_t count_of(uint64_t *seed)
{
	static const size_t sizes[] = {0, 1, 8, 96, 97, 4096, 16384, 16385, 65536, 65537, MOST};

	return sizes[random_below(seed, sizeof sizes / sizeof *sizes)];
}

/* One after the other, of any length, by one thread: each recv gets the message that was sent as
 * many before. */
static void test_order(void **state)
{
	static uint8_t out[MESSAGES][MOST], in[MOST];
	static tutti_work *sends[MESSAGES];
	size_t counts[MESSAGES];
	uint64_t seed = random_seed();

	open_pair("shm");
	for (int i = 0; i < MESSAGES; i++) {
		counts[i] = count_of(&seed);
		memset(out[i], i * 7 + 1, counts[i]);
		assert_int_equal(tutti_send(out[i], counts[i], TUTTI_U8, 1, comms[0],
					    &(tutti_call){.work = &sends[i], .tag = i % 3}),
				 TUTTI_OK);
	}
	for (int tag = 2; tag >= 0; tag--)
		for (int i = tag; i < MESSAGES; i += 3) {
			int source = -1;
			memset(in, 0, sizeof in);
			assert_int_equal(tutti_recv(in, counts[i], TUTTI_U8, i % 2 ? 0 : TUTTI_ANY,
						    comms[1],
						    &(tutti_call){.tag = tag, .source = &source}),
					 TUTTI_OK);
			assert_int_equal(source, 0);
			assert_memory_equal(in, out[i], counts[i]);
		}
	for (int i = 0; i < MESSAGES; i++)
		assert_int_equal(tutti_work_wait(&sends[i], 0), TUTTI_OK);
	assert_true(peer_of(0)->mailbox_sent > MAILBOX_CELLS);
	assert_true(peer_of(0)->headers_sent > MAILBOX_CELLS);
	close_pair();
}

/* Without a recv only MAILBOX_CELLS messages use the mailbox; the others use slots or requests. */
static void test_bound(void **state)
{
	tutti_work *sends[MESSAGES];
	uint8_t out = 3, in;

	open_pair("shm");
	uint32_t before = peer_of(0)->mailbox_sent;
	for (int i = 0; i < MESSAGES; i++)
		assert_int_equal(tutti_send(&out, 1, TUTTI_U8, 1, comms[0],
					    &(tutti_call){.work = &sends[i], .tag = 1}),
				 TUTTI_OK);
	assert_int_equal(peer_of(0)->mailbox_sent - before, MAILBOX_CELLS);
	for (int i = 0; i < MESSAGES; i++)
		assert_int_equal(
			tutti_recv(&in, 1, TUTTI_U8, TUTTI_ANY, comms[1], &(tutti_call){.tag = 1}),
			TUTTI_OK);
	for (int i = 0; i < MESSAGES; i++)
		assert_int_equal(tutti_work_wait(&sends[i], 0), TUTTI_OK);
	before = peer_of(0)->mailbox_sent; /* what was delivered has made room */
	for (uint32_t i = 0; i < MAILBOX_CELLS; i++)
		assert_int_equal(tutti_send(&out, 1, TUTTI_U8, 1, comms[0], NULL), TUTTI_OK);
	assert_int_equal(peer_of(0)->mailbox_sent - before, MAILBOX_CELLS);
	close_pair();
}

static void *play(void *arg)
{
	tutti_comm *comm = arg;
	int rank = tutti_rank(comm), other = 1 - rank;
	uint64_t seed = 11; /* both draw the same */

	for (int i = 0; i < ROUNDS; i++) {
		static _Thread_local uint8_t out[MOST], in[MOST];
		size_t n = count_of(&seed);
		memset(out, rank + i, n);
		memset(in, 0xee, n);
		assert_int_equal(tutti_group_begin(), TUTTI_OK);
		assert_int_equal(tutti_recv(in, n, TUTTI_U8, other, comm, NULL), TUTTI_OK);
		assert_int_equal(tutti_send(out, n, TUTTI_U8, other, comm, NULL), TUTTI_OK);
		assert_int_equal(tutti_group_end(NULL), TUTTI_OK);
		memset(out, other + i, n);
		assert_memory_equal(in, out, n);
		if (rank == 0) {
			assert_int_equal(tutti_send(&i, 1, TUTTI_I32, 1, comm, NULL), TUTTI_OK);
			continue;
		}
		int got = -1;
		assert_int_equal(tutti_recv(&got, 1, TUTTI_I32, TUTTI_ANY, comm, NULL), TUTTI_OK);
		assert_int_equal(got, i);
	}
	return NULL;
}

/* Blocking calls of two threads, in groups and alone. */
static void test_blocking(void **state)
{
	pthread_t other;

	open_pair("shm");
	assert_int_equal(pthread_create(&other, NULL, play, comms[1]), 0);
	play(comms[0]);
	pthread_join(other, NULL);
	close_pair();
}

static void test_misfit(void **state)
{
	float out[4] = {1, 2, 3, 4};
	int64_t in[2];

	open_pair("shm");
	uint32_t before = peer_of(0)->mailbox_sent;
	assert_int_equal(tutti_send(out, 4, TUTTI_F32, 1, comms[0], NULL), TUTTI_OK);
	assert_int_equal(peer_of(0)->mailbox_sent, before + 1);
	assert_int_equal(tutti_recv(in, 2, TUTTI_I64, 0, comms[1], NULL), TUTTI_ERR_MISMATCH);
	assert_non_null(strstr(tutti_comm_error(comms[1]), "rank 0 called send(f32, 4, tag 0)"));
	warm_up(); /* the communicator stays well */
	static uint8_t longer[MOST];
	tutti_work *work = NULL;
	assert_int_equal(
		tutti_send(longer, MOST, TUTTI_U8, 1, comms[0], &(tutti_call){.work = &work}),
		TUTTI_OK);
	assert_int_equal(tutti_recv(longer, MOST, TUTTI_U8, 0, comms[1], NULL), TUTTI_OK);
	assert_int_equal(tutti_work_wait(&work, 0), TUTTI_OK);
	assert_int_equal(peer_of(0)->unfits, 1); /* it has looked at the connection, and said so */
	close_pair();
}

#define POSTED 20

static atomic_int called;
static int order[POSTED];

static void note_call(void *arg, tutti_status status)
{
	assert_int_equal(status, TUTTI_OK);
	order[atomic_load(&called)] = (int)(intptr_t)arg;
	atomic_fetch_add(&called, 1);
}

/* Messages that are all there when the receiver looks: their recvs end in order. */
static void test_callbacks(void **state)
{
	int in[POSTED];

	open_pair("shm");
	atomic_store(&called, 0);
	for (int i = 0; i < POSTED; i++)
		assert_int_equal(tutti_recv(&in[i], 1, TUTTI_I32, 0, comms[1],
					    &(tutti_call){.done = note_call,
							  .done_arg = (void *)(intptr_t)i}),
				 TUTTI_OK);
	engine_lock(comms[1]->engine); /* keeps the helper thread away */
	for (int i = 0; i < POSTED; i++)
		assert_int_equal(tutti_send(&i, 1, TUTTI_I32, 1, comms[0], NULL), TUTTI_OK);
	engine_unlock(comms[1]->engine);
	while (atomic_load(&called) < POSTED)
		sched_yield();
	for (int i = 0; i < POSTED; i++)
		assert_true(in[i] == i && order[i] == i);
	close_pair();
}

/* What a rank has sent before it left can be received. */
static void test_leaving(void **state)
{
	float out = 1, in;

	open_pair("shm");
	for (int i = 0; i < 10; i++) {
		out = (float)i;
		assert_int_equal(tutti_send(&out, 1, TUTTI_F32, 1, comms[0], NULL), TUTTI_OK);
	}
	tutti_comm_destroy(comms[0]);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(tutti_recv(&in, 1, TUTTI_F32, 0, comms[1], NULL), TUTTI_OK);
		assert_true(in == (float)i);
	}
	assert_int_equal(tutti_recv(&in, 1, TUTTI_F32, 0, comms[1], NULL), TUTTI_ERR_PEER);
	assert_non_null(strstr(tutti_comm_error(comms[1]), "has left"));
	tutti_comm_destroy(comms[1]);
}

/* Before the receiver has connected. */
static void test_leaving_early(void **state)
{
	int in = -1;

	assert_int_equal(tutti_init_all(comms, 2, &(tutti_config){.transports = "shm"}), TUTTI_OK);
	for (int i = 0; i < 10; i++) /* the higher rank, which passes the memory */
		assert_int_equal(tutti_send(&i, 1, TUTTI_I32, 0, comms[1], NULL), TUTTI_OK);
	assert_true(peer_of(1)->mailbox_sent > 0);
	tutti_comm_destroy(comms[1]);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(
			tutti_recv(&in, 1, TUTTI_I32, i % 2 ? 1 : TUTTI_ANY, comms[0], NULL),
			TUTTI_OK);
		assert_int_equal(in, i);
	}
	assert_int_equal(tutti_recv(&in, 1, TUTTI_I32, 1, comms[0], NULL), TUTTI_ERR_PEER);
	tutti_comm_destroy(comms[0]);
}

/* A sender that dies says nothing. What it had sent can be received all the same. */
static void test_death(void **state)
{
	int in = -1;

	open_pair("shm");
	for (int i = 0; i < 10; i++)
		assert_int_equal(tutti_send(&i, 1, TUTTI_I32, 0, comms[1], NULL), TUTTI_OK);
	struct p2p_peer *peer = comms[1]->engine->p2p->peers[0];
	engine_lock(comms[1]->engine);
	peer->conn->endpoint->transport->close(peer->conn);
	peer->conn = NULL;
	engine_unlock(comms[1]->engine);
	/* Its first look tells the receiver of the messages and of the death. */
	((struct shm_endpoint *)peer_of(0)->conn->endpoint)->passes = 0;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(tutti_recv(&in, 1, TUTTI_I32, TUTTI_ANY, comms[0], NULL),
				 TUTTI_OK);
		assert_int_equal(in, i);
	}
	assert_int_equal(tutti_recv(&in, 1, TUTTI_I32, 1, comms[0], NULL), TUTTI_ERR_PEER);
	close_pair();
}

/* The endpoints were asked between two calls, so the messages have left the mailbox. Blocking recvs
 * get them all the same, each its own, and need no work. */
static void test_kept(void **state)
{
	struct p2p_peer *peer;
	int out[3] = {10, 20, 30}, in = 0, source = -1;

	open_pair("shm");
	peer = comms[1]->engine->p2p->peers[0];
	for (int i = 0; i < 3; i++)
		assert_int_equal(tutti_send(&out[i], 1, TUTTI_I32, 1, comms[0],
					    &(tutti_call){.tag = 1 + i % 2}),
				 TUTTI_OK);
	engine_lock(comms[1]->engine);
	engine_poll_endpoints(comms[1]->engine);
	assert_non_null(peer->unexpected);
	uint64_t stamp = peer->p2p->stamp; /* each recv that is posted takes one */
	engine_unlock(comms[1]->engine);
	static const int tags[] = {2, 1, 1}, wanted[] = {20, 10, 30};
	for (int i = 0; i < 3; i++) {
		assert_int_equal(tutti_recv(&in, 1, TUTTI_I32, 0, comms[1],
					    &(tutti_call){.tag = tags[i], .source = &source}),
				 TUTTI_OK);
		assert_int_equal(in, wanted[i]);
		assert_int_equal(source, 0);
	}
	assert_null(peer->unexpected);
	assert_int_equal(peer->p2p->stamp, stamp);
	/* One that does not fit. */
	assert_int_equal(tutti_send(out, 1, TUTTI_I32, 1, comms[0], NULL), TUTTI_OK);
	engine_lock(comms[1]->engine);
	engine_poll_endpoints(comms[1]->engine);
	engine_unlock(comms[1]->engine);
	assert_non_null(peer->unexpected);
	assert_int_equal(tutti_recv(&in, 1, TUTTI_F32, 0, comms[1], NULL), TUTTI_ERR_MISMATCH);
	assert_null(peer->unexpected);
	close_pair();
}

/* A header can give back slots that there are not. */
static void test_hostile_slot(void **state)
{
	open_pair("shm");
	engine_lock(comms[0]->engine);
	p2p_take_back(comms[0]->engine->p2p->peers[1], P2P_SLOTS + 50);
	engine_unlock(comms[0]->engine);
	assert_non_null(strstr(tutti_comm_error(comms[0]), "back a slot that it did not have"));
	close_pair();
}

/* A connection that has no mailbox. */
static void test_tcp(void **state)
{
	open_pair("tcp");
	assert_int_equal(peer_of(0)->mailbox_sent, 0);
	close_pair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),         cmocka_unit_test(test_bound),
		cmocka_unit_test(test_blocking),      cmocka_unit_test(test_misfit),
		cmocka_unit_test(test_leaving),       cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_death),         cmocka_unit_test(test_callbacks),
		cmocka_unit_test(test_leaving_early), cmocka_unit_test(test_kept),
		cmocka_unit_test(test_hostile_slot),
	};
	test_limit(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
