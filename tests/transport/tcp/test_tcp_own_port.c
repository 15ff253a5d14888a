/* Would break: a rank that dials a peer which has gone connects to itself, and takes its own answer
 * for that of another job. */
#include "tests/transport/hand.h"

#include "tests/own_network.h"

/* Both ports are listened on; when one of them is free again, a dial to it can come from nowhere
 * else. */
static void dial_where_nobody_listens(void)
{
	struct tutti_endpoint gone;
	struct post recv;
	uint64_t word = 0;
	struct world w;

	world_open(&w, 2);
	gone = *w.endpoints[0];
	subject->transport->destroy(w.endpoints[0]);
	w.endpoints[0] = NULL;
	OWN_NETWORK_NEED(subject->transport->connect(w.endpoints[1], 0, 0, gone.address,
						     gone.address_bytes,
						     &w.conns[1][0][0]) == TUTTI_OK);
	post_recv(&recv, w.conns[1][0][0], &word, sizeof word, 1);
	world_finish(&w, &recv, 1);
	if (recv.io.status != TUTTI_ERR_PEER ||
	    !strstr(w.conns[1][0][0]->error, "refuses the connection of rank 1")) {
		fprintf(stderr, "status %d: %s\n", recv.io.status, w.conns[1][0][0]->error);
		_exit(1);
	}
	world_close(&w);
}

static void test_own_port(void **state)
{
	(void)state;
	own_network_case(40000, 2, dial_where_nobody_listens);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_own_port)};

	hand_setup();
	return cmocka_run_group_tests_name("tcp_own_port", tests, NULL, NULL);
}
