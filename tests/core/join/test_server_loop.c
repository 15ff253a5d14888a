/* Breaks when the server of a meeting ends before its own rank has heard why the meeting failed.
 * That rank would then wait for an answer that nobody gives, up to its deadline. Or when a rank
 * that lost its connection and connects again is taken for a second process of its number. */
#include "core/join/server_loop.h"

#include "core/auth.h"
#include "core/net.h"
#include "core/join/frame.h"
#include "core/join/secret.h"
#include "tests/limit.h"
#include "tests/core/join/ranks.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

/* *own is rank 0's end. */
static struct server_loop *new_server(int *own, uint8_t key[TUTTI_KEY_BYTES], int size,
				      uint64_t deadline_ns)
{
	struct server_config config = {
		.listen_fd = -1, .unix_fd = -1, .size = size, .deadline_ns = deadline_ns};
	struct server_loop *loop;
	int pair[2];

	secret_key(key, "the secret of this test", "", 0);
	memcpy(config.key, key, sizeof config.key);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
			 0);
	*own = pair[0];
	config.own_fd = pair[1];
	assert_int_equal(server_loop_new(&loop, &config), TUTTI_OK);
	return loop;
}

static struct server_loop *late_server(int *own, uint8_t key[TUTTI_KEY_BYTES])
{
	return new_server(own, key, 3, clock_now_ns());
}

static void take_turns(struct server_loop *loop, int turns)
{
	for (int i = 0; i < turns; i++)
		assert_true(server_loop_turn(loop, 0));
}

/* What a process says of itself. */
struct name {
	uint32_t version, rank, size;
};

/* Sends the hello and reads the answer, with the server's turns between. */
static void greet(struct auth *auth, struct server_loop *loop, int fd,
		  const uint8_t key[TUTTI_KEY_BYTES], uint8_t proof[AUTH_PROOF_BYTES])
{
	static const uint8_t context[AUTH_CONTEXT_BYTES] = "tutti rendezvous";
	uint8_t hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES];

	auth_hello(auth, key, context, hello);
	assert_int_equal(net_send_all(fd, hello, sizeof hello, ranks_later()), TUTTI_OK);
	take_turns(loop, 2);
	assert_int_equal(net_recv_all(fd, answer, sizeof answer, 0), TUTTI_OK);
	assert_int_equal(auth_check_answer(auth, answer, proof), TUTTI_OK);
}

/* Sends the proof and the name, without a turn of the server. */
static void say_name(int fd, const uint8_t proof[AUTH_PROOF_BYTES], struct name name)
{
	uint8_t reply[AUTH_PROOF_BYTES + FRAME_BYTES + FRAME_HELLO_BYTES] = {0};
	uint8_t *body = reply + AUTH_PROOF_BYTES + FRAME_BYTES;

	memcpy(reply, proof, AUTH_PROOF_BYTES);
	frame_put(reply + AUTH_PROOF_BYTES, (struct frame){FRAME_HELLO, FRAME_HELLO_BYTES, 60000});
	put_u32(body, name.version);
	put_u32(body + 4, name.rank);
	put_u32(body + 8, name.size);
	assert_int_equal(net_send_all(fd, reply, sizeof reply, ranks_later()), TUTTI_OK);
}

/* Joins as rank 0 of 3, in this version. */
static void join_in(uint32_t version, struct server_loop *loop, int own,
		    const uint8_t key[TUTTI_KEY_BYTES])
{
	uint8_t proof[AUTH_PROOF_BYTES];
	struct auth auth;

	greet(&auth, loop, own, key, proof);
	say_name(own, proof, (struct name){version, 0, 3});
	take_turns(loop, 2);
}

static void join(struct server_loop *loop, int own, const uint8_t key[TUTTI_KEY_BYTES])
{
	join_in(FRAME_VERSION, loop, own, key);
}

/* What the failed meeting has told this rank. */
static tutti_status hear(int own, char error[ERROR_BYTES])
{
	uint8_t head[FRAME_BYTES];
	struct frame f;

	assert_int_equal(net_recv_all(own, head, sizeof head, 0), TUTTI_OK);
	f = frame_get(head);
	assert_int_equal(f.kind, FRAME_FAILURE);
	assert_true(f.bytes < ERROR_BYTES);
	memset(error, 0, ERROR_BYTES);
	assert_int_equal(net_recv_all(own, error, f.bytes, 0), TUTTI_OK);
	return (tutti_status)f.value;
}

static void its_own_rank_hears_why_however_late(void **state)
{
	uint8_t key[TUTTI_KEY_BYTES];
	char error[ERROR_BYTES];
	int own;
	struct server_loop *loop = late_server(&own, key);

	take_turns(loop, 10);
	join(loop, own, key);
	assert_int_equal(hear(own, error), TUTTI_ERR_TIMEOUT);
	assert_non_null(strstr(error, "missing"));
	close(own);
	take_turns(loop, 1);
	assert_false(server_loop_turn(loop, 0));
	server_loop_free(loop);
}

static void versions_that_differ_are_named(void **state)
{
	uint8_t key[TUTTI_KEY_BYTES];
	char error[ERROR_BYTES];
	int own;
	struct server_loop *loop = new_server(&own, key, 3, ranks_later());

	join_in(1, loop, own, key);
	assert_int_equal(hear(own, error), TUTTI_ERR_MISMATCH);
	assert_non_null(strstr(error, "rank 0 speaks version 1 of the joining protocol"));
	close(own);
	server_loop_free(loop);
}

static void a_rank_that_gives_up_ends_it(void **state)
{
	uint8_t key[TUTTI_KEY_BYTES];
	int own;
	struct server_loop *loop = late_server(&own, key);

	take_turns(loop, 10);
	close(own);
	take_turns(loop, 1);
	assert_false(server_loop_turn(loop, 0));
	server_loop_free(loop);
}

static void a_closed_one_tells_who_waits(void **state)
{
	uint8_t key[TUTTI_KEY_BYTES];
	char error[ERROR_BYTES];
	int own;
	struct server_loop *loop = new_server(&own, key, 3, ranks_later());
	int stop_fd = eventfd(1, EFD_CLOEXEC);

	join(loop, own, key);
	loop->stop_fd = stop_fd;
	take_turns(loop, 3); /* it stays until that has been read */
	assert_int_equal(hear(own, error), TUTTI_ERR_PEER);
	assert_non_null(strstr(error, "tutti_rendezvous_close"));
	close(own);
	take_turns(loop, 1);
	assert_false(server_loop_turn(loop, 0));
	server_loop_free(loop);
	close(stop_fd);
}

/* It has told as many as it knows of, but each process counts otherwise: others may come. */
static void it_stays_where_sizes_differ(void **state)
{
	uint8_t key[TUTTI_KEY_BYTES];
	char error[ERROR_BYTES];
	int own;
	struct server_loop *loop = new_server(&own, key, 1, ranks_later());

	join(loop, own, key);
	assert_int_equal(hear(own, error), TUTTI_ERR_MISMATCH);
	close(own);
	take_turns(loop, 3);
	loop->failed_ns = 1; /* long ago */
	assert_false(server_loop_turn(loop, 0));
	server_loop_free(loop);
}

/* Two connections of processes that say they are rank 2. */
struct pair {
	struct server_loop *loop;
	int own, fds[2]; /* of the one that came first, and of the second */
	uint8_t proofs[2][AUTH_PROOF_BYTES];
};

static int add_caller(struct server_loop *loop)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends),
			 0);
	assert_non_null(server_add_caller(loop, ends[1]));
	return ends[0];
}

/* Both have been answered and have their proofs to send. The server polls the connection `first`
 * before the other. */
static void greet_both(struct pair *p, int first)
{
	uint8_t key[TUTTI_KEY_BYTES];
	struct auth auth;

	p->loop = new_server(&p->own, key, 3, ranks_later());
	join(p->loop, p->own, key);
	p->fds[first] = add_caller(p->loop);
	p->fds[1 - first] = add_caller(p->loop);
	for (int i = 0; i < 2; i++)
		greet(&auth, p->loop, p->fds[i], key, p->proofs[i]);
}

static void say_rank_2(struct pair *p, int which)
{
	say_name(p->fds[which], p->proofs[which], (struct name){FRAME_VERSION, 2, 3});
}

static void expect_heard(int fd, tutti_status status, const char *says)
{
	char error[ERROR_BYTES];
	tutti_status heard = hear(fd, error);

	if (heard != status || !strstr(error, says))
		fail_msg("status %d \"%s\" instead of %d and \"%s\"", heard, error, status, says);
}

/* The server finds the end of the first connection and the name on the second in one poll. */
static void a_lost_connection_is_no_second_process(void **state)
{
	for (int first = 0; first < 2; first++) {
		struct pair p;

		greet_both(&p, first);
		say_rank_2(&p, 0);
		take_turns(p.loop, 1);
		close(p.fds[0]);
		say_rank_2(&p, 1);
		take_turns(p.loop, 1);
		expect_heard(p.own, TUTTI_ERR_PEER, "the connection to rank 2 was lost");
		expect_heard(p.fds[1], TUTTI_ERR_PEER, "the connection to rank 2 was lost");
		close(p.own);
		close(p.fds[1]);
		server_loop_free(p.loop);
	}
}

/* All of it in one poll, and the former one was the last rank to join. */
static void the_last_ranks_connection_is_lost(void **state)
{
	uint8_t key[TUTTI_KEY_BYTES], proof[AUTH_PROOF_BYTES];
	struct auth auth;
	struct pair p;
	int one;

	greet_both(&p, 0);
	memcpy(key, p.loop->config.key, sizeof key);
	one = add_caller(p.loop);
	greet(&auth, p.loop, one, key, proof);
	say_name(one, proof, (struct name){FRAME_VERSION, 1, 3});
	take_turns(p.loop, 1);
	say_rank_2(&p, 0);
	close(p.fds[0]);
	say_rank_2(&p, 1);
	take_turns(p.loop, 1);
	expect_heard(p.own, TUTTI_ERR_PEER, "the connection to rank 2 was lost");
	expect_heard(one, TUTTI_ERR_PEER, "the connection to rank 2 was lost");
	expect_heard(p.fds[1], TUTTI_ERR_PEER, "the connection to rank 2 was lost");
	close(p.own);
	close(one);
	close(p.fds[1]);
	server_loop_free(p.loop);
}

static void two_that_are_there_are_two_processes(void **state)
{
	struct pair p;

	greet_both(&p, 0);
	say_rank_2(&p, 0);
	take_turns(p.loop, 1);
	say_rank_2(&p, 1);
	take_turns(p.loop, 1);
	expect_heard(p.own, TUTTI_ERR_MISMATCH, "two processes say they are rank 2 of 3");
	for (int i = 0; i < 2; i++) {
		expect_heard(p.fds[i], TUTTI_ERR_MISMATCH, "two processes say");
		close(p.fds[i]);
	}
	close(p.own);
	server_loop_free(p.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(its_own_rank_hears_why_however_late),
		cmocka_unit_test(versions_that_differ_are_named),
		cmocka_unit_test(a_rank_that_gives_up_ends_it),
		cmocka_unit_test(a_closed_one_tells_who_waits),
		cmocka_unit_test(it_stays_where_sizes_differ),
		cmocka_unit_test(a_lost_connection_is_no_second_process),
		cmocka_unit_test(the_last_ranks_connection_is_lost),
		cmocka_unit_test(two_that_are_there_are_two_processes),
	};

	test_limit(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
