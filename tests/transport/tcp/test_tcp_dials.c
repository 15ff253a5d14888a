/* Would break: two ranks that dial each other at once and end up with two sockets, or with none, or
 * with one that has lost what was sent on the other. */
#include "tests/limit.h"
#include "tests/transport/hand.h"

#include "core/clock.h"
#include "tests/entries.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct tcp_conn *conn_of(struct world *w, int rank)
{
	return (struct tcp_conn *)w->conns[rank][1 - rank][0];
}

/* The lower rank does not wait any longer for the higher one to dial. */
static void hurry(struct world *w)
{
	struct tcp_conn *c = conn_of(w, 0);

	if (!c || c->state != CONN_WAITING)
		return;
	c->dial->give_up_ns = 0;
	tcp_dial_tick(c, clock_now_ns());
}

/* Both are up, on the two ends of one socket. Returns the rank that has dialed. */
static int dialer(struct world *w)
{
	struct sockaddr_in6 own[2], peer[2]; /* of either family */
	int port = ((struct tcp_endpoint *)w->endpoints[0])->port;

	for (int r = 0; r < 2; r++) {
		struct sockaddr *sockaddr[2] = {(void *)&own[r], (void *)&peer[r]};
		socklen_t bytes[2] = {sizeof own[r], sizeof peer[r]};
		assert_int_equal(conn_of(w, r)->state, CONN_UP);
		assert_int_equal(getsockname(conn_of(w, r)->watch.fd, sockaddr[0], &bytes[0]), 0);
		assert_int_equal(getpeername(conn_of(w, r)->watch.fd, sockaddr[1], &bytes[1]), 0);
	}
	/* The port lies at the same place in both families. */
	assert_int_equal(own[0].sin6_port, peer[1].sin6_port);
	assert_int_equal(own[1].sin6_port, peer[0].sin6_port);
	return ntohs(own[0].sin6_port) == port ? 1 : 0;
}

/* What each has posted for the other, at first. */
struct talk {
	struct post sends[2], recvs[2];
	uint64_t out[2], in[2];
};

static void talk_post(struct talk *t, struct world *w, int rank)
{
	struct tutti_conn *conn = world_conn(w, rank, 1 - rank, 0);

	t->out[rank] = (uint64_t)rank + 100;
	t->in[rank] = 0;
	post_send(&t->sends[rank], conn, &t->out[rank], 8, 1);
	post_recv(&t->recvs[rank], conn, &t->in[rank], 8, 1);
}

static void talk_finish(struct talk *t, struct world *w)
{
	world_expect_ok(w, t->recvs, 2);
	world_expect_ok(w, t->sends, 2);
	assert_true(t->in[0] == t->out[1] && t->in[1] == t->out[0]);
}

/* The ends make progress in any order: one socket, and everything arrives. */
static void test_crossing(void **state)
{
	enum { ROUNDS = 400 };
	uint64_t random = test_seed;
	int dialed[2] = {0, 0};

	for (int round = 0; round < ROUNDS; round++) {
		int first = (int)random_below(&random, 2), before, after;
		struct talk t;
		struct world w;
		world_open(&w, 2);
		before = open_descriptors();
		for (int n = 0; n < 2; n++) {
			talk_post(&t, &w, n ? 1 - first : first);
			for (int i = (int)random_below(&random, 6); i > 0; i--)
				world_pump_only(&w, n ? 1 - first : first, 1);
		}
		for (int i = 0; i < 12; i++) {
			if (random_below(&random, 3) == 0)
				hurry(&w);
			world_pump_only(&w, (int)random_below(&random, 2), 1);
		}
		talk_finish(&t, &w);
		dialed[dialer(&w)]++;
		world_pump_for(&w, 100);
		after = open_descriptors();
		assert_int_equal(after - before, 2 + 2); /* each has an epoll, too */
		world_close(&w);
	}
	assert_true(dialed[0] > 0 && dialed[1] > 0);
}

/* Both hellos are on their way before either is read: the lower rank's dial counts. */
static void test_lower_wins(void **state)
{
	struct talk t;
	struct world w;

	world_open(&w, 2);
	talk_post(&t, &w, 0);
	talk_post(&t, &w, 1);
	hurry(&w);
	for (int i = 0; i < 5; i++) { /* up to both answers, and no further */
		world_pump_only(&w, 1, conn_of(&w, 1)->state != CONN_GREETING);
		world_pump_only(&w, 0, conn_of(&w, 0)->state != CONN_GREETING);
	}
	assert_int_equal(conn_of(&w, 0)->state, CONN_GREETING);
	assert_int_equal(conn_of(&w, 1)->state, CONN_GREETING);
	talk_finish(&t, &w);
	assert_int_equal(dialer(&w), 0);
	world_close(&w);
}

/* The higher rank had dialed first and has proved itself: the lower one takes that. */
static void test_first_wins(void **state)
{
	struct talk t;
	struct world w;

	world_open(&w, 2);
	talk_post(&t, &w, 1);
	while (conn_of(&w, 1)->state != CONN_UP) {
		world_pump_only(&w, 1, 1);
		world_pump_only(&w, 0, conn_of(&w, 1)->state != CONN_UP);
	}
	talk_post(&t, &w, 0);
	hurry(&w);
	talk_finish(&t, &w);
	assert_int_equal(dialer(&w), 1);
	world_close(&w);
}

/* A process that says that it is rank 0 keeps rank 1 from proving itself, until it is gone. */
static void test_held_back(void **state)
{
	uint8_t context[AUTH_CONTEXT_BYTES], hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES];
	const struct tcp_endpoint *ep;
	struct auth auth;
	struct talk t;
	struct world w;
	int fd;

	world_open(&w, 2);
	ep = (const struct tcp_endpoint *)w.endpoints[0];
	fd = hand_dial(&w, 1);
	tcp_context(context, ep, 0, 1, 0, tcp_terms(ep, false, 0));
	auth_hello(&auth, w.configs[0].key, context, hello);
	hand_write(fd, hello, sizeof hello);
	assert_true(hand_read(&w, fd, answer, sizeof answer));
	talk_post(&t, &w, 0);
	conn_of(&w, 0)->dial->give_up_ns = DEADLINE_NONE; /* however long all this takes */
	talk_post(&t, &w, 1);
	while (conn_of(&w, 1)->state != CONN_GREETING || !conn_of(&w, 1)->dial->has_proof)
		world_pump(&w);
	world_pump_for(&w, 50);
	assert_int_equal(conn_of(&w, 1)->state, CONN_GREETING);
	assert_int_equal(conn_of(&w, 0)->state, CONN_WAITING);
	close(fd);
	talk_finish(&t, &w);
	assert_int_equal(dialer(&w), 1);
	world_close(&w);
}

/* A proof that came while this rank did not look counts, however late this rank is. */
static void test_late_proof(void **state)
{
	struct tcp_endpoint *ep;
	struct talk t;
	struct world w;

	world_open(&w, 2);
	ep = (struct tcp_endpoint *)w.endpoints[0];
	talk_post(&t, &w, 1);
	while (conn_of(&w, 1)->state != CONN_UP) {
		world_pump_only(&w, 1, 1);
		world_pump_only(&w, 0, conn_of(&w, 1)->state != CONN_UP);
	}
	assert_int_equal(ep->pending.unproved, 1);
	tcp_accept_tick(ep, DEADLINE_NONE);
	assert_int_equal(ep->pending.unproved, 0);
	talk_post(&t, &w, 0);
	talk_finish(&t, &w);
	world_close(&w);
}

/* Over loopback neither end is paced by timers; a peer across a network has what the system says.
 */
static void test_congestion(void **state)
{
	static const struct {
		const char *text;
		bool is_loopback;
	} addresses[] = {{"127.0.0.1", true},
			 {"127.9.9.9", true},
			 {"10.0.0.1", false},
			 {"128.0.0.1", false}};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	char name[TCP_CONGESTION_BYTES + 1] = "";
	const struct tcp_endpoint *ep;
	struct talk t;
	struct world w;

	for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
		struct sockaddr_in four = {.sin_family = AF_INET};
		assert_int_equal(inet_pton(AF_INET, addresses[i].text, &four.sin_addr), 1);
		assert_int_equal(tcp_address_is_loopback((struct sockaddr *)&four),
				 addresses[i].is_loopback);
	}
	assert_true(tcp_address_is_loopback((struct sockaddr *)&six));
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &six.sin6_addr);
	assert_true(tcp_address_is_loopback((struct sockaddr *)&six));
	inet_pton(AF_INET6, "::ffff:10.0.0.1", &six.sin6_addr);
	assert_false(tcp_address_is_loopback((struct sockaddr *)&six));

	world_open(&w, 2);
	ep = (struct tcp_endpoint *)w.endpoints[0];
	talk_post(&t, &w, 0);
	talk_post(&t, &w, 1);
	talk_finish(&t, &w);
	for (int r = 0; r < 2; r++) {
		int fd = conn_of(&w, r)->watch.fd;
		socklen_t bytes = TCP_CONGESTION_BYTES;
		assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
		assert_true(strcmp(name, "cubic") == 0 || strcmp(name, "reno") == 0);
		tcp_tune_remote(ep, fd);
		bytes = TCP_CONGESTION_BYTES;
		assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
		assert_string_equal(name, ep->congestion);
	}
	world_close(&w);
}

/* One end gives up before the other one, which was stopped, connects. That one is told, and does
 * not wait for somebody who will not come again; whether connections are made again or not. */
static void failed_before_connect(int rank, bool is_closed)
{
	struct post posts[2];
	uint64_t word = 0;
	struct world w;

	world_open_with(&w, 2, 30);
	((struct tcp_endpoint *)w.endpoints[1 - rank])->timeout_ms = WORLD_TIMEOUT_MS;
	post_recv(&posts[0], world_conn(&w, rank, 1 - rank, 0), &word, sizeof word, 1);
	while (w.conns[rank][1 - rank][0]->status == TUTTI_OK)
		world_pump_only(&w, rank, 1);
	assert_int_equal(w.conns[rank][1 - rank][0]->status, TUTTI_ERR_TIMEOUT);
	if (is_closed)
		world_hang_up(&w, rank, 1 - rank, 0);
	post_recv(&posts[1], world_conn(&w, 1 - rank, rank, 0), &word, sizeof word, 1);
	world_finish(&w, &posts[1], 1);
	assert_int_equal(posts[1].io.status, TUTTI_ERR_PEER);
	world_close(&w);
}

static void test_failed_before_connect(void **state)
{
	const struct conformance *usual = subject;
	int kinds = tls_load() == TUTTI_OK ? 4 : 2;

	for (int kind = 0; kind < kinds; kind++) {
		struct conformance other = *usual;
		other.reconnect = kind & 1 ? 2 : 0;
		other.has_tls = kind & 2;
		subject = &other;
		for (int i = 0; i < 4; i++)
			failed_before_connect(i & 1, i & 2);
		subject = usual;
	}
}

/* The peer resets a connection that has been greeted, and refuses all others. The call that goes on
 * meanwhile may be about to return with the error that this thread has stored. */
static void test_last_error_stays(void **state)
{
	struct kept_error kept = {.status = TUTTI_OK};
	struct post recv;
	uint64_t word = 0;
	struct world w;

	world_open(&w, 2);
	post_recv(&recv, world_conn(&w, 0, 1, 0), &word, sizeof word, 1);
	while (conn_of(&w, 0)->state != CONN_GREETING)
		world_pump_only(&w, 0, 1);
	subject->transport->destroy(w.endpoints[1]);
	w.endpoints[1] = NULL;
	fail(TUTTI_ERR_MEMORY, "the cause");
	fail_keep(&kept);
	while (w.conns[0][1][0]->status == TUTTI_OK)
		world_pump_only(&w, 0, 1);
	fail_keep(NULL);
	assert_int_equal(w.conns[0][1][0]->status, TUTTI_ERR_PEER);
	assert_non_null(strstr(w.conns[0][1][0]->error, "refuses the connection of rank 0"));
	assert_string_equal(last_error(), "the cause");
	assert_int_equal(kept.status, TUTTI_OK);
	world_close(&w);
}

/* Rank 0 has left, and the system has given its port to another endpoint of the job: of another
 * rank or of another communicator. Rank 1 hears that, as if nobody listened there. */
static void left_its_port(bool to_another_rank)
{
	struct post recv;
	uint64_t word = 0;
	struct world w;
	int new_owner = to_another_rank ? 2 : 0;

	world_open(&w, 3);
	subject->transport->destroy(w.endpoints[0]);
	w.endpoints[0] = NULL;
	if (!to_another_rank) {
		w.configs[0].comm_id[0]++;
		assert_int_equal(subject->transport->open(&w.endpoints[0], &w.configs[0]),
				 TUTTI_OK);
	}
	assert_int_equal(subject->transport->connect(
				 w.endpoints[1], 0, 0, w.endpoints[new_owner]->address,
				 w.endpoints[new_owner]->address_bytes, &w.conns[1][0][0]),
			 TUTTI_OK);
	post_recv(&recv, w.conns[1][0][0], &word, sizeof word, 1);
	world_finish(&w, &recv, 1);
	assert_int_equal(recv.io.status, TUTTI_ERR_PEER);
	assert_non_null(strstr(w.conns[1][0][0]->error, "refuses the connection of rank 1"));
	assert_non_null(strstr(w.conns[1][0][0]->error, "another rank or communicator"));
	world_close(&w);
}

static void test_left_its_port(void **state)
{
	left_its_port(true);
	left_its_port(false);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crossing),
		cmocka_unit_test(test_lower_wins),
		cmocka_unit_test(test_first_wins),
		cmocka_unit_test(test_held_back),
		cmocka_unit_test(test_late_proof),
		cmocka_unit_test(test_congestion),
		cmocka_unit_test(test_failed_before_connect),
		cmocka_unit_test(test_last_error_stays),
		cmocka_unit_test(test_left_its_port),
	};

	hand_setup();
	test_limit(60);
	return cmocka_run_group_tests_name("tcp_dials", tests, NULL, NULL);
}
