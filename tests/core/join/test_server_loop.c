/* Breaks when the server of a meeting ends before its own rank has heard why the meeting failed.
 * That rank would then wait for an answer that nobody gives, up to its deadline. */
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

/* Says in this version that it is rank 0 of 3, with the server's turns between. */
static void join_in(uint32_t version, struct server_loop *loop, int own,
		    const uint8_t key[TUTTI_KEY_BYTES])
{
	static const uint8_t context[AUTH_CONTEXT_BYTES] = "tutti rendezvous";
	uint8_t hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES];
	uint8_t reply[AUTH_PROOF_BYTES + FRAME_BYTES + FRAME_HELLO_BYTES] = {0};
	struct auth auth;

	auth_hello(&auth, key, context, hello);
	assert_int_equal(net_send_all(own, hello, sizeof hello, ranks_later()), TUTTI_OK);
	take_turns(loop, 2);
	assert_int_equal(net_recv_all(own, answer, sizeof answer, 0), TUTTI_OK);
	assert_int_equal(auth_check_answer(&auth, answer, reply), TUTTI_OK);
	frame_put(reply + AUTH_PROOF_BYTES, (struct frame){FRAME_HELLO, FRAME_HELLO_BYTES, 60000});
	put_u32(reply + AUTH_PROOF_BYTES + FRAME_BYTES, version);
	put_u32(reply + AUTH_PROOF_BYTES + FRAME_BYTES + 8, 3);
	assert_int_equal(net_send_all(own, reply, sizeof reply, ranks_later()), TUTTI_OK);
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

	(void)state;
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

	(void)state;
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

	(void)state;
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

	(void)state;
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

	(void)state;
	join(loop, own, key);
	assert_int_equal(hear(own, error), TUTTI_ERR_MISMATCH);
	close(own);
	take_turns(loop, 3);
	loop->failed_ns = 1; /* long ago */
	assert_false(server_loop_turn(loop, 0));
	server_loop_free(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(its_own_rank_hears_why_however_late),
		cmocka_unit_test(versions_that_differ_are_named),
		cmocka_unit_test(a_rank_that_gives_up_ends_it),
		cmocka_unit_test(a_closed_one_tells_who_waits),
		cmocka_unit_test(it_stays_where_sizes_differ),
	};

	test_limit(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
