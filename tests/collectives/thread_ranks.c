/* Ranks as threads: starts them, and collects what they return. */
#include "tests/collectives/thread_ranks.h"

#include <stdio.h>

#include "tests/unit.h"

void report_wrong(struct rank *r, const char *what, tutti_status status)
{
	if (!r->why[0])
		snprintf(r->why, sizeof r->why, "rank %d: %s: %s: %.180s", r->rank, what,
			 tutti_status_string(status), tutti_comm_error(r->comm));
}

void expect(struct rank *r, const char *what, tutti_status status)
{
	if (status != TUTTI_OK)
		report_wrong(r, what, status);
}

static void *enter(void *arg)
{
	struct rank *r = arg;
	r->body(r);
	return NULL;
}

void with_ranks(int n, const char *transports, uint64_t seed, void (*body)(struct rank *))
{
	struct rank ranks[RANKS_MAX] = {{0}};
	tutti_comm *comms[RANKS_MAX], *others[RANKS_MAX];
	tutti_config config = {.transports = transports, .timeout_ms = 60000};

	if (tutti_init_all(comms, n, &config) != TUTTI_OK ||
	    tutti_init_all(others, n, &config) != TUTTI_OK)
		fail_msg("%d ranks over %s: %s", n, transports ? transports : "all",
			 tutti_comm_error(NULL));
	for (int r = 0; r < n; r++) {
		ranks[r] = (struct rank){.comm = comms[r],
					 .other = others[r],
					 .rank = r,
					 .size = n,
					 .seed = seed,
					 .body = body};
		assert_int_equal(pthread_create(&ranks[r].thread, NULL, enter, &ranks[r]), 0);
	}
	for (int r = 0; r < n; r++)
		pthread_join(ranks[r].thread, NULL);
	for (int r = 0; r < n; r++) {
		tutti_comm_destroy(ranks[r].comm); /* NULL: the rank has left */
		tutti_comm_destroy(ranks[r].other);
	}
	for (int r = 0; r < n; r++)
		if (ranks[r].why[0])
			fail_msg("%d ranks over %s, seed %llu: %s", n,
				 transports ? transports : "all", (unsigned long long)seed,
				 ranks[r].why);
}

void everywhere(void (*body)(struct rank *))
{
	static const char *const transports[] = {"tcp", "shm", NULL};
	static const int sizes[] = {1, 2, 3, 5, 8};
	for (size_t t = 0; t < 3; t++)
		for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
			with_ranks(sizes[s], transports[t], 20261120 + s, body);
}
