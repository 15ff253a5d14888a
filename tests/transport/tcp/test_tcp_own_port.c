/* Would break: a rank that dials a peer which has gone connects to itself, and takes its own answer
 * for that of another job; or it waits until its deadline, since the peer has other addresses, too.
 */
#include "tests/transport/hand.h"

#include "tests/own_network.h"

/* Both ports are listened on; when one of them is free again, a dial to it can come from nowhere
 * else. named: rank 0's TUTTI_ADDRESS, which is dialed, too. says: all of it is in rank 1's error.
 */
static void dial_a_rank_that_is_gone(const char *named, const char *const says[2])
{
	struct tutti_endpoint gone;
	struct post recv;
	uint64_t word = 0;
	struct world w;

	world_open(&w, 2);
	subject->transport->destroy(w.endpoints[0]);
	w.configs[0].address = named;
	OWN_NETWORK_NEED(subject->transport->open(&w.endpoints[0], &w.configs[0]) == TUTTI_OK);
	gone = *w.endpoints[0];
	subject->transport->destroy(w.endpoints[0]);
	w.endpoints[0] = NULL;
	OWN_NETWORK_NEED(subject->transport->connect(w.endpoints[1], 0, 0, gone.address,
						     gone.address_bytes,
						     &w.conns[1][0][0]) == TUTTI_OK);
	post_recv(&recv, w.conns[1][0][0], &word, sizeof word, 1);
	world_finish(&w, &recv, 1);
	if (recv.io.status != TUTTI_ERR_PEER ||
	    !strstr(w.conns[1][0][0]->error, "refuses the connection of rank 1") ||
	    !strstr(w.conns[1][0][0]->error, says[0]) ||
	    !strstr(w.conns[1][0][0]->error, says[1])) {
		fprintf(stderr, "status %d: %s\n", recv.io.status, w.conns[1][0][0]->error);
		_exit(1);
	}
	world_close(&w);
}

static void dial_where_nobody_listens(void)
{
	static const char *const says[] = {"no process listens at 127.0.0.1:4000", "refused)"};

	dial_a_rank_that_is_gone(NULL, says);
}

/* Loopback refuses, so the rank is gone, whatever its other address says. */
static void dial_without_a_route(void)
{
	static const char *const says[] = {"no process listens at 127.0.0.1:4000",
					   "2 tries: 1 refused, 1 no route"};

	dial_a_rank_that_is_gone("203.0.113.7", says);
}

static void test_own_port(void **state)
{
	own_network_case(40000, 2, dial_where_nobody_listens);
}

static void test_no_route(void **state)
{
	own_network_case(40000, 2, dial_without_a_route);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own_port),
		cmocka_unit_test(test_no_route),
	};

	hand_setup();
	return cmocka_run_group_tests_name("tcp_own_port", tests, NULL, NULL);
}
