/* Ranks as threads, and what they say. */
#include "split_team.h"

#include <string.h>

#include "tests/unit.h"

const tutti_config wires[WIRES] = {
	{.timeout_ms = 60000},
	{.timeout_ms = 60000, .transports = "shm"},
	{.timeout_ms = 60000, .transports = "tcp"},
};
tutti_status keep(struct rank *r, tutti_status status)
{
	r->status = status;
	snprintf(r->message, sizeof r->message, "%s",
		 status == TUTTI_OK ? "" : tutti_comm_error(NULL));
	return status;
}

static void *enter(void *arg)
{
	struct rank *r = arg;
	r->team->body(r);
	return NULL;
}

void with_team(struct team *t, int size, const tutti_config *config, void (*body)(struct rank *))
{
	tutti_comm *comms[RANKS_MAX];

	t->size = size;
	t->body = body;
	if (tutti_init_all(comms, size, config) != TUTTI_OK)
		fail_msg("%d ranks: %s", size, tutti_comm_error(NULL));
	for (int i = 0; i < size; i++) {
		t->rank[i] = (struct rank){.team = t, .me = i, .size = size, .comm = comms[i]};
		assert_int_equal(pthread_create(&t->rank[i].thread, NULL, enter, &t->rank[i]), 0);
	}
	for (int i = 0; i < size; i++)
		pthread_join(t->rank[i].thread, NULL);
	for (int i = 0; i < size; i++)
		tutti_comm_destroy(comms[i]);
	for (int i = 0; i < size; i++)
		if (t->rank[i].wrong)
			fail_msg("rank %d of %d over %s: %s", i, size,
				 config->transports ? config->transports : "all", t->rank[i].why);
}

void check_sum(struct rank *r, tutti_comm *comm)
{
	int32_t x = tutti_rank(comm) + 1, n = tutti_size(comm);
	EXPECT_OK(r, tutti_all_reduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, comm, NULL));
	EXPECT(r, x == n * (n + 1) / 2, "the sum of %d ranks is %d", n, x);
}

void check_verdict(const struct team *t, tutti_status wanted, const char *const *words)
{
	const struct rank *r0 = &t->rank[0];
	for (int i = 0; i < t->size; i++) {
		if (t->rank[i].status != wanted)
			fail_msg("rank %d: %s, should be %s: %s", i,
				 tutti_status_string(t->rank[i].status),
				 tutti_status_string(wanted), t->rank[i].message);
		assert_string_equal(t->rank[i].message, r0->message);
	}
	for (; *words; words++)
		if (!strstr(r0->message, *words))
			fail_msg("no \"%s\" in: %s", *words, r0->message);
}
