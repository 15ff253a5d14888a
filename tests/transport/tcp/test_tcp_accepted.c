/* Would break: connections without the secret that are accepted, or that disturb the job's ranks.
 */
#include "tests/transport/hand.h"

#include "transport/registry.h"
#include "tests/entries.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct tcp_endpoint *endpoint_of(struct world *w, int rank)
{
	return (struct tcp_endpoint *)w->endpoints[rank];
}

/* The ranks of this world can still talk. */
static void expect_undisturbed(struct world *w)
{
	hand_expect_talk(w);
	assert_int_equal(endpoint_of(w, 0)->pending.unproved, 0);
}

static void test_garbage(void **state)
{
	uint8_t garbage[500];
	uint64_t random = test_seed;
	struct world w;

	world_open(&w, 2);
	for (int i = 0; i < 20; i++) {
		int fd = hand_dial(&w, 0);
		bytes_fill(garbage, sizeof garbage, random_next(&random));
		hand_write(fd, garbage, AUTH_HELLO_BYTES + random_below(&random, 400));
		hand_expect_end(&w, fd);
	}
	expect_undisturbed(&w);
	world_close(&w);
}

static void test_hung_up(void **state)
{
	uint8_t bytes[AUTH_HELLO_BYTES] = {0};
	struct world w;

	world_open(&w, 2);
	for (size_t i = 0; i < 40; i++) {
		int fd = hand_dial(&w, 0);
		if (i % 4 > 0)
			hand_write(fd, bytes, i % 4 * 20);
		if (i % 2)
			world_pump(&w);
		close(fd);
	}
	expect_undisturbed(&w);
	world_close(&w);
}

/* A peer that knows the secret is still refused when it asks for what this listener is not. */
static void test_wrong_context(void **state)
{
	static const int wrong[][3] = {{0, 0, 0}, {1, 2, 0},  {3, 0, 0},   {-1, 0, 0},
				       {0, 1, 0}, {2, 0, -1}, {2, 0, 9999}};
	struct world w;

	world_open(&w, 3);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		int fd = hand_dial(&w, 0);
		assert_false(hand_prove(&w, fd, wrong[i][0], wrong[i][1], wrong[i][2]));
		close(fd);
	}
	for (int i = 0; i < 2; i++) {
		int fd = hand_dial(&w, 0);
		w.configs[0].comm_id[i]++;
		assert_false(hand_prove(&w, fd, 1, 0, 0));
		w.configs[0].comm_id[i]--;
		close(fd);
	}
	expect_undisturbed(&w);
	world_close(&w);
}

/* Our own answer sent back to us is no proof. */
static void test_reflection(void **state)
{
	struct world w;
	struct tcp_endpoint *ep;
	struct auth auth;
	uint8_t context[AUTH_CONTEXT_BYTES], hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES];
	int fd;

	world_open(&w, 2);
	ep = endpoint_of(&w, 0);
	fd = hand_dial(&w, 0);
	tcp_context(context, ep, 1, 0, 0, tcp_terms(ep, false, 0));
	auth_hello(&auth, (const uint8_t[TUTTI_KEY_BYTES]){1, 2, 3}, context, hello);
	hand_write(fd, hello, sizeof hello);
	assert_true(hand_read(&w, fd, answer, sizeof answer));
	hand_write(fd, answer + 32, AUTH_PROOF_BYTES);
	hand_expect_end(&w, fd);
	expect_undisturbed(&w);
	world_close(&w);
}

/* A greeting that was captured, all of it, is worth nothing on another connection. */
static void test_replay(void **state)
{
	struct world w;
	struct tcp_endpoint *ep;
	struct auth auth;
	uint8_t context[AUTH_CONTEXT_BYTES], hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES];
	uint8_t proof[AUTH_PROOF_BYTES];
	int heard, fd;

	world_open(&w, 2);
	ep = endpoint_of(&w, 0);
	heard = hand_dial(&w, 0);
	tcp_context(context, ep, 1, 0, 0, tcp_terms(ep, false, 0));
	auth_hello(&auth, ep->key, context, hello);
	hand_write(heard, hello, sizeof hello);
	assert_true(hand_read(&w, heard, answer, sizeof answer));
	assert_int_equal(auth_check_answer(&auth, answer, proof), TUTTI_OK);
	close(heard);
	for (int i = 0; i < 3; i++) {
		fd = hand_dial(&w, 0);
		hand_write(fd, hello, sizeof hello);
		assert_true(hand_read(&w, fd, answer, sizeof answer));
		hand_write(fd, proof, sizeof proof);
		hand_expect_end(&w, fd);
	}
	expect_undisturbed(&w);
	world_close(&w);
}

/* More silent connections than we keep: the oldest go, and a rank still gets in. */
static void test_flood(void **state)
{
	enum { FLOOD = 300 };
	int fds[FLOOD], before;
	struct world w;
	struct tcp_endpoint *ep;

	world_open(&w, 2);
	ep = endpoint_of(&w, 0);
	before = open_descriptors() + 2; /* an epoll and a timer */
	for (int i = 0; i < FLOOD; i++) {
		fds[i] = hand_dial(&w, 0);
		world_pump(&w);
		assert_true(ep->pending.unproved <= TCP_PENDING + ep->size);
	}
	world_pump_for(&w, 10);
	assert_true(ep->pending.unproved >= TCP_PENDING);
	assert_true(open_descriptors() - before <= FLOOD + TCP_PENDING + ep->size);
	world_pair(&w, 0, 1, 0);
	while (((struct tcp_conn *)w.conns[0][1][0])->state != CONN_UP)
		world_pump(&w);
	for (int i = 0; i < FLOOD; i++)
		close(fds[i]);
	while (ep->pending.unproved > 0)
		world_pump(&w);
	expect_undisturbed(&w);
	world_close(&w);
}

/* Rank 1, made by hand, which rank 0 has answered. */
static int answered(struct world *w, uint8_t proof[AUTH_PROOF_BYTES])
{
	int fd = hand_dial(w, 0);

	assert_true(hand_greet(w, fd, 1, 0, 0, proof));
	return fd;
}

static void expect_to_get_in(struct world *w, int fd, const uint8_t proof[AUTH_PROOF_BYTES])
{
	uint8_t header[TCP_HEADER_BYTES];
	uint64_t word = 0, out = 41;
	struct post recv;

	hand_write(fd, proof, AUTH_PROOF_BYTES);
	post_recv(&recv, world_conn(w, 0, 1, 0), &word, sizeof word, 1);
	hand_header(header, sizeof out, 1, 0);
	hand_write(fd, header, sizeof header);
	hand_write(fd, &out, sizeof out);
	world_expect_ok(w, &recv, 1);
	assert_int_equal(word, 41);
}

/* A rank that was answered is about to prove itself, and takes itself for connected then: a flood
 * of callers that do not know the communicator's number does not push it out. */
static void test_flood_after_the_answer(void **state)
{
	enum { FLOOD = 300 };
	uint8_t proof[AUTH_PROOF_BYTES];
	int fds[FLOOD], rank;
	struct world w;

	world_open(&w, 2);
	rank = answered(&w, proof);
	for (int i = 0; i < FLOOD; i++) {
		fds[i] = hand_dial(&w, 0);
		world_pump(&w);
	}
	expect_to_get_in(&w, rank, proof);
	for (int i = 0; i < FLOOD; i++)
		close(fds[i]);
	close(rank);
	world_close(&w);
}

/* Nor does it go when there is no descriptor for those that call meanwhile: they wait. */
static void test_no_descriptor_after_the_answer(void **state)
{
	enum { CALLERS = 5 };
	uint8_t proof[AUTH_PROOF_BYTES];
	struct rlimit whole, none;
	int fds[CALLERS], rank, lowest;
	struct world w;

	world_open(&w, 2);
	rank = answered(&w, proof);
	for (int i = 0; i < CALLERS; i++)
		fds[i] = hand_dial(&w, 0);
	lowest = dup(rank);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &whole), 0);
	none = (struct rlimit){(rlim_t)lowest, whole.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	world_pump_for(&w, 20);
	assert_int_equal(endpoint_of(&w, 0)->pending.unproved, 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &whole), 0);
	expect_to_get_in(&w, rank, proof);
	for (int i = 0; i < CALLERS; i++)
		close(fds[i]);
	close(rank);
	world_close(&w);
}

/* An endpoint with another secret: the end that dials says so, and the other one dials, too. */
static void test_wrong_secret(void **state)
{
	struct tutti_endpoint_config config = config_of(1, 2, 4711, 2000);
	struct world w;
	struct post recvs[2];
	uint64_t word = 0;

	world_open_with(&w, 2, 2000);
	subject->transport->destroy(w.endpoints[1]);
	memcpy(config.comm_id, w.configs[0].comm_id, sizeof config.comm_id);
	config.key[31] ^= 1;
	assert_int_equal(subject->transport->open(&w.endpoints[1], &config), TUTTI_OK);
	world_pair(&w, 0, 1, 0);
	post_recv(&recvs[0], w.conns[0][1][0], &word, sizeof word, 1);
	post_recv(&recvs[1], w.conns[1][0][0], &word, sizeof word, 1);
	world_finish(&w, recvs, 2);
	for (int r = 0; r < 2; r++) {
		assert_int_equal(recvs[r].io.status, TUTTI_ERR_AUTH);
		assert_non_null(strstr(w.conns[r][1 - r][0]->error, r ? "rank 0" : "rank 1"));
		assert_non_null(strstr(w.conns[r][1 - r][0]->error, "the process that listens at"));
		assert_non_null(strstr(w.conns[r][1 - r][0]->error, "prove the job's secret"));
	}
	world_close(&w);
}

/* The same rank dials twice before we connect: the later attempt is the one that counts. */
static void test_twins(void **state)
{
	struct world w;
	struct post recv;
	uint8_t header[TCP_HEADER_BYTES];
	uint64_t word = 0, out = 31;
	int first, second, third;

	world_open(&w, 2);
	first = hand_dial(&w, 0);
	assert_true(hand_prove(&w, first, 1, 0, 0));
	world_pump_for(&w, 100);
	second = hand_dial(&w, 0);
	assert_true(hand_prove(&w, second, 1, 0, 0));
	hand_expect_end(&w, first);
	post_recv(&recv, world_conn(&w, 0, 1, 0), &word, sizeof word, 1);
	third = hand_dial(&w, 0);
	assert_false(hand_prove(&w, third, 1, 0, 0));
	close(third);
	hand_header(header, sizeof out, 1, 0);
	hand_write(second, header, sizeof header);
	hand_write(second, &out, sizeof out);
	world_expect_ok(&w, &recv, 1);
	assert_int_equal(word, 31);
	close(second);
	world_close(&w);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_hung_up),
		cmocka_unit_test(test_wrong_context),
		cmocka_unit_test(test_reflection),
		cmocka_unit_test(test_replay),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_wrong_secret),
		cmocka_unit_test(test_twins),
		cmocka_unit_test(test_flood_after_the_answer),
		cmocka_unit_test(test_no_descriptor_after_the_answer),
	};

	hand_setup();
	return cmocka_run_group_tests_name("tcp_accepted", tests, NULL, NULL);
}
