/* Breaks when many attackers at rank 0's port keeps ranks out, or when what was heard once is
 * a key to come in. */
#include "core/auth.h"
#include "core/join/frame.h"
#include "core/join/secret.h"
#include "tests/limit.h"
#include "tests/core/join/ranks.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define CALLERS 600

static void expect_closed(int fd)
{
	char bytes[256];

	assert_int_equal(net_recv_all(fd, bytes, sizeof bytes, ranks_later()), TUTTI_ERR_PEER);
	close(fd);
}

/* All that a rank says until it counts as one. */
struct words {
	struct auth auth;
	uint8_t hello[AUTH_HELLO_BYTES];
	uint8_t reply[AUTH_PROOF_BYTES + FRAME_BYTES + FRAME_HELLO_BYTES];
};

static void greet(struct words *w, int fd)
{
	static const uint8_t context[AUTH_CONTEXT_BYTES] = "tutti rendezvous";
	uint8_t key[TUTTI_KEY_BYTES];

	secret_key(key, "the secret of this test", "", 0);
	auth_hello(&w->auth, key, context, w->hello);
	assert_int_equal(net_send_all(fd, w->hello, sizeof w->hello, ranks_later()), TUTTI_OK);
}

static void prove(struct words *w, int fd, int rank, int size)
{
	uint8_t answer[AUTH_ANSWER_BYTES], *body = w->reply + AUTH_PROOF_BYTES + FRAME_BYTES;

	assert_int_equal(net_recv_all(fd, answer, sizeof answer, ranks_later()), TUTTI_OK);
	assert_int_equal(auth_check_answer(&w->auth, answer, w->reply), TUTTI_OK);
	frame_put(w->reply + AUTH_PROOF_BYTES,
		  (struct frame){FRAME_HELLO, FRAME_HELLO_BYTES, 60000});
	put_u32(body, FRAME_VERSION);
	put_u32(body + 4, (uint32_t)rank);
	put_u32(body + 8, (uint32_t)size);
	put_u32(body + 12, 0);
	assert_int_equal(net_send_all(fd, w->reply, sizeof w->reply, ranks_later()), TUTTI_OK);
}

/* The connection on which these words were right belongs to rank 1, and so does its seat. */
static void what_was_heard_is_no_proof(void **state)
{
	struct rank_run runs[3];
	uint8_t answer[AUTH_ANSWER_BYTES], welcome[FRAME_BYTES + FRAME_WELCOME_BYTES];
	struct words words = {0};
	int port = ranks_free_port(), rank, attacker;

	ranks_prepare(runs, 3, port);
	runs[0].rounds = runs[2].rounds = 0;
	ranks_start(&runs[0]);
	rank = ranks_call(port);
	greet(&words, rank);
	prove(&words, rank, 1, 3);
	for (int i = 0; i < 3; i++) {
		attacker = ranks_call(port);
		net_send_all(attacker, words.hello, sizeof words.hello, ranks_later());
		/* Once in answer to the answer, and then as a recording is played. */
		if (i == 0)
			assert_int_equal(
				net_recv_all(attacker, answer, sizeof answer, ranks_later()),
				TUTTI_OK);
		net_send_all(attacker, words.reply, sizeof words.reply, ranks_later());
		expect_closed(attacker);
	}
	ranks_start(&runs[2]);
	assert_int_equal(net_recv_all(rank, welcome, sizeof welcome, ranks_later()), TUTTI_OK);
	assert_int_equal(frame_get(welcome).kind, FRAME_WELCOME);
	close(rank);
	ranks_finish(&runs[0]);
	ranks_finish(&runs[2]);
	ranks_expect_well(&runs[0], 1);
	ranks_expect_well(&runs[2], 1);
}

static void join_among(int *callers, int n, int port, bool says_hello)
{
	static const uint8_t context[AUTH_CONTEXT_BYTES] = "tutti rendezvous";
	struct rank_run runs[3];
	uint8_t key[TUTTI_KEY_BYTES], hello[AUTH_HELLO_BYTES];
	struct auth auth;

	ranks_prepare(runs, 3, port);
	runs[0].timeout_ms = runs[1].timeout_ms = runs[2].timeout_ms =
		8000; /* an attacker has 10 */
	auth_random(key, sizeof key);
	ranks_start(&runs[0]);
	for (int i = 0; i < n; i++) {
		callers[i] = ranks_call(port);
		auth_hello(&auth, key, context, hello);
		if (says_hello)
			net_send_all(callers[i], hello, sizeof hello, ranks_later());
	}
	ranks_start(&runs[1]);
	ranks_start(&runs[2]);
	for (int r = 0; r < 3; r++)
		ranks_finish(&runs[r]);
	ranks_expect_well(runs, 3);
	for (int i = 0; i < n; i++)
		close(callers[i]);
}

static void a_silent_flood_keeps_nobody_out(void **state)
{
	int callers[CALLERS];

	join_among(callers, CALLERS, ranks_free_port(), false);
}

static void nor_does_one_that_knows_the_first_words(void **state)
{
	int callers[CALLERS];

	join_among(callers, CALLERS, ranks_free_port(), true);
}

/* The attackers' descriptors are the ones to go. */
static void few_descriptors_are_for_ranks(void **state)
{
	struct rlimit limit, small;
	int callers[40], port = ranks_free_port(), status;
	pid_t server;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	server = fork();
	if (server == 0) {
		struct rank_run runs[2];
		ranks_prepare(runs, 2, port);
		small = limit;
		small.rlim_cur = (rlim_t)open_descriptors() + 12;
		test_limit(60);
		if (setrlimit(RLIMIT_NOFILE, &small) != 0)
			_exit(2);
		ranks_main(&runs[0]);
		if (runs[0].status != TUTTI_OK)
			fprintf(stderr, "rank 0: %s\n", runs[0].error);
		_exit(runs[0].status != TUTTI_OK);
	}
	for (int i = 0; i < 40; i++)
		callers[i] = ranks_call(port);
	struct rank_run runs[2];
	ranks_prepare(runs, 2, port);
	ranks_start(&runs[1]);
	ranks_finish(&runs[1]);
	assert_int_equal(waitpid(server, &status, 0), server);
	assert_int_equal(status, 0);
	ranks_expect_well(&runs[1], 1);
	for (int i = 0; i < 40; i++)
		close(callers[i]);
}

struct flood {
	pthread_t thread;
	atomic_int port, calls;
};

/* Comes again and again, as fast as it can, and holds as many as it may. */
static void *pour(void *arg)
{
	struct flood *flood = arg;
	struct linger at_once = {1, 0};
	int held[CALLERS], port;

	for (int i = 0; i < CALLERS; i++)
		held[i] = -1;
	while ((port = atomic_load(&flood->port)) != 0) {
		int *place = &held[atomic_load(&flood->calls) % CALLERS];
		if (*place >= 0)
			close(*place);
		*place = -1;
		if (net_try_connect("127.0.0.1", port, deadline_after_ms(100), place) != TUTTI_OK)
			continue;
		/* Hung up on, it leaves nothing in the kernel: other tests need ports, too. */
		setsockopt(*place, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
		atomic_fetch_add(&flood->calls, 1);
	}
	for (int i = 0; i < CALLERS; i++)
		if (held[i] >= 0)
			close(held[i]);
	return NULL;
}

static void a_flood_keeps_nobody_out(void **state)
{
	struct rank_run runs[3];
	struct flood flood = {0};
	int port = ranks_free_port();

	ranks_prepare(runs, 3, port);
	atomic_store(&flood.port, port);
	ranks_start(&runs[0]);
	assert_int_equal(pthread_create(&flood.thread, NULL, pour, &flood), 0);
	while (atomic_load(&flood.calls) < 2 * CALLERS)
		net_pause(0, ranks_later());
	ranks_start(&runs[2]);
	ranks_start(&runs[1]);
	for (int r = 0; r < 3; r++)
		ranks_finish(&runs[r]);
	atomic_store(&flood.port, 0);
	pthread_join(flood.thread, NULL);
	print_message("%d connections poured in\n", atomic_load(&flood.calls));
	ranks_expect_well(runs, 3);
}

/* Stands before rank 0, and behaves as if too many had come: a connection is closed when the proof
 * is on its way, so many times. */
struct door {
	pthread_t thread;
	int listen_fd, behind, hang_ups;
	bool shuts; /* no listener any more when it has hung up for the last time */
	atomic_bool is_over;
	int hung_up;
};

static bool pass(int from, int to, size_t bytes)
{
	uint8_t text[256];

	assert_true(bytes <= sizeof text);
	return net_recv_all(from, text, bytes, ranks_later()) == TUTTI_OK &&
	       net_send_all(to, text, bytes, ranks_later()) == TUTTI_OK;
}

static void pass_all(int a, int b)
{
	uint8_t text[4096];

	for (;;) {
		struct pollfd both[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
		poll(both, 2, -1);
		for (int i = 0; i < 2; i++) {
			ssize_t n = both[i].revents ? recv(both[i].fd, text, sizeof text, 0) : -1;
			if (n == 0 || (n > 0 && net_send_all(both[1 - i].fd, text, (size_t)n,
							     ranks_later()) != TUTTI_OK))
				return;
		}
	}
}

static void *keep(void *arg)
{
	struct door *door = arg;
	int caller, inside;

	while (!atomic_load(&door->is_over)) {
		uint8_t proof[AUTH_PROOF_BYTES + FRAME_BYTES + FRAME_HELLO_BYTES];
		if (net_accept(door->listen_fd, deadline_after_ms(20), &caller) != TUTTI_OK)
			continue;
		if (net_try_connect("127.0.0.1", door->behind, deadline_after_ms(500), &inside) !=
		    TUTTI_OK) { /* rank 0 has gone, or is not there yet */
			close(caller);
			continue;
		}
		pass(caller, inside, AUTH_HELLO_BYTES);
		pass(inside, caller, AUTH_ANSWER_BYTES);
		if (door->hung_up < door->hang_ups) {
			net_recv_all(caller, proof, sizeof proof, ranks_later());
			door->hung_up++;
			if (door->shuts && door->hung_up == door->hang_ups) {
				close(door->listen_fd);
				atomic_store(&door->is_over, true);
			}
		} else {
			pass_all(caller, inside);
		}
		close(caller);
		close(inside);
	}
	return NULL;
}

/* Rank 1 comes by the door. */
static void join_by(struct door *door, struct rank_run runs[2])
{
	int port;

	assert_int_equal(net_listen("127.0.0.1", 0, 16, &door->listen_fd, &port), TUTTI_OK);
	door->behind = ranks_free_port();
	ranks_prepare(runs, 2, door->behind);
	runs[1].job.port = port;
	if (door->shuts || door->hang_ups > 1000)
		runs[0].timeout_ms = 3000;
	if (door->hang_ups > 1000)
		runs[1].timeout_ms = 1000;
	assert_int_equal(pthread_create(&door->thread, NULL, keep, door), 0);
	ranks_start(&runs[0]);
	ranks_start(&runs[1]);
	ranks_finish(&runs[1]);
	atomic_store(&door->is_over, true);
	pthread_join(door->thread, NULL);
	if (!door->shuts)
		close(door->listen_fd);
}

static void who_is_hung_up_on_comes_again(void **state)
{
	struct door door = {.hang_ups = 5};
	struct rank_run runs[2];

	join_by(&door, runs);
	ranks_finish(&runs[0]);
	ranks_expect_well(runs, 2);
	assert_int_equal(door.hung_up, 5);
}

/* ... but not for ever, and not when nobody is there any more. */
static void nor_for_ever(void **state)
{
	struct door shut = {.hang_ups = 1, .shuts = true}, keeps_hanging_up = {.hang_ups = 1000000};
	struct rank_run runs[4];

	join_by(&shut, runs);
	ranks_expect(&runs[1], TUTTI_ERR_PEER, "was lost");
	join_by(&keeps_hanging_up, runs + 2);
	ranks_expect(&runs[3], TUTTI_ERR_TIMEOUT, "hangs up before");
	assert_true(keeps_hanging_up.hung_up > 3);
	for (int i = 0; i < 4; i += 2) {
		ranks_finish(&runs[i]);
		ranks_expect(&runs[i], TUTTI_ERR_TIMEOUT, "rank 1 missing");
	}
}

int main(void)
{
	test_ports(); /* its descriptor is not counted */
	int fds = open_descriptors();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_heard_is_no_proof),
		cmocka_unit_test(a_silent_flood_keeps_nobody_out),
		cmocka_unit_test(nor_does_one_that_knows_the_first_words),
		cmocka_unit_test(few_descriptors_are_for_ranks),
		cmocka_unit_test(a_flood_keeps_nobody_out),
		cmocka_unit_test(who_is_hung_up_on_comes_again),
		cmocka_unit_test(nor_for_ever),
	};
	struct rlimit limit;

	test_limit(200);
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < 2 * CALLERS + 600) {
		limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	return ranks_end(cmocka_run_group_tests(tests, NULL, NULL), fds);
}
