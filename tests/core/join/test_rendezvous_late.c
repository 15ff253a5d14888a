/* Breaks when ranks that look for rank 0 for long keep its port from it. */
#include "tests/core/join/ranks.h"

#include <stdatomic.h>

#include "tests/own_network.h"

#define PLACE    40000
#define ATTEMPTS 20 /* of which nearly all connect to themselves, where there are two ports */

static atomic_int attempts;

tutti_status __real_net_connect(const struct addrinfo *list, const char *host, int port,
				uint64_t deadline_ns, int *fd);
tutti_status __wrap_net_connect(const struct addrinfo *list, const char *host, int port,
				uint64_t deadline_ns, int *fd);

tutti_status __wrap_net_connect(const struct addrinfo *list, const char *host, int port,
				uint64_t deadline_ns, int *fd)
{
	atomic_fetch_add(&attempts, 1);
	return __real_net_connect(list, host, port, deadline_ns, fd);
}

static void join_late(void)
{
	struct rank_run runs[2];

	ranks_prepare(runs, 2, PLACE);
	ranks_start(&runs[1]);
	while (atomic_load(&attempts) < ATTEMPTS)
		net_pause(0, DEADLINE_NONE);
	ranks_start(&runs[0]);
	for (int r = 0; r < 2; r++)
		ranks_finish(&runs[r]);
	for (int r = 0; r < 2; r++)
		if (runs[r].status != TUTTI_OK) {
			fprintf(stderr, "rank %d: %s\n", r, runs[r].error);
			_exit(1);
		}
}

static void rank_0_may_come_late(void **state)
{
	own_network_case(PLACE, 2, join_late);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(rank_0_may_come_late)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
