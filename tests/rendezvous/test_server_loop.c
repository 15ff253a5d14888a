/* Breaks when the server of a meeting ends before its own rank has heard why the meeting failed.
 * That rank would then wait for an answer that nobody gives, up to its deadline. */
#include "rendezvous/server_loop.h"

#include "core/auth.h"
#include "core/net.h"
#include "rendezvous/frame.h"
#include "rendezvous/secret.h"
#include "tests/rendezvous/ranks.h"

#include <sys/socket.h>

/* The server of 3 ranks, whose joining time is over; *own is rank 0's end. */
static struct server_loop *late_server(int *own, uint8_t key[TUTTI_KEY_BYTES])
{
	struct server_config config = {
		.listen_fd = -1, .unix_fd = -1, .size = 3, .deadline_ns = clock_now_ns()};
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

static void take_turns(struct server_loop *loop, int turns)
{
	for (int i = 0; i < turns; i++)
		assert_true(server_loop_turn(loop, 0));
}

/* Says which rank it is, with the server's turns between, and returns what it hears. */
static tutti_status join_late(struct server_loop *loop, int own, const uint8_t key[TUTTI_KEY_BYTES],
			      char error[ERROR_BYTES])
{
	static const uint8_t context[AUTH_CONTEXT_BYTES] = "tutti rendezvous";
	uint8_t hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES], head[FRAME_BYTES];
	uint8_t reply[AUTH_PROOF_BYTES + FRAME_BYTES + FRAME_HELLO_BYTES] = {0};
	struct auth auth;
	struct frame f;

	auth_hello(&auth, key, context, hello);
	assert_int_equal(net_send_all(own, hello, sizeof hello, ranks_later()), TUTTI_OK);
	take_turns(loop, 2);
	assert_int_equal(net_recv_all(own, answer, sizeof answer, 0), TUTTI_OK);
	assert_int_equal(auth_check_answer(&auth, answer, reply), TUTTI_OK);
	frame_put(reply + AUTH_PROOF_BYTES, (struct frame){FRAME_HELLO, FRAME_HELLO_BYTES, 60000});
	put_u32(reply + AUTH_PROOF_BYTES + FRAME_BYTES, FRAME_VERSION);
	put_u32(reply + AUTH_PROOF_BYTES + FRAME_BYTES + 8, 3);
	assert_int_equal(net_send_all(own, reply, sizeof reply, ranks_later()), TUTTI_OK);
	take_turns(loop, 2);
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
	assert_int_equal(join_late(loop, own, key, error), TUTTI_ERR_TIMEOUT);
	assert_non_null(strstr(error, "missing"));
	close(own);
	take_turns(loop, 1);
	assert_false(server_loop_turn(loop, 0));
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(its_own_rank_hears_why_however_late),
		cmocka_unit_test(a_rank_that_gives_up_ends_it),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
