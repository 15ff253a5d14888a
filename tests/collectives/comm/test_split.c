/* Would break: what may be asked of a split and what not, what children inherit and what they are
 * called, what is left behind. That children work is tests/api/split.c's. */
#include "split_team.h"
#include "tests/limit.h"
#include "tests/threads.h"

#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

struct wish {
	int rank; /* who has the config; -1: all */
	tutti_config config;
	tutti_status status;
	const char *words[5];
};

/* Half and half; the sequence goes on and the parent lives, whatever comes of it. */
static void wish_for(struct rank *r)
{
	const struct wish *w = r->team->arg;
	tutti_comm *child = NULL, *none = (tutti_comm *)r;
	bool has_config = w->rank < 0 || w->rank == r->me;

	EXPECT(r, tutti_comm_split(NULL, 0, 0, NULL, &child) == TUTTI_ERR_INVALID, "no comm");
	EXPECT(r, tutti_comm_split(r->comm, 0, 0, NULL, NULL) == TUTTI_ERR_INVALID, "no child");
	EXPECT(r, tutti_comm_dup(NULL, &child) == TUTTI_ERR_INVALID, "no comm");
	EXPECT(r, tutti_comm_dup(r->comm, NULL) == TUTTI_ERR_INVALID, "no copy");
	EXPECT(r, tutti_comm_sequence(r->comm) == 0, "a bad pointer used a number");
	child = none;
	keep(r, tutti_comm_split(r->comm, r->me % 2, 0, has_config ? &w->config : NULL, &child));
	EXPECT(r, tutti_comm_sequence(r->comm) == 1, "%d", (int)tutti_comm_sequence(r->comm));
	EXPECT(r, (child == none) == (r->status != TUTTI_OK), "%p is written", (void *)child);
	check_sum(r, r->comm);
	if (r->status == TUTTI_OK) {
		check_sum(r, child);
		tutti_comm_destroy(child);
	}
	EXPECT_OK(r, tutti_comm_dup(r->comm, &child));
	check_sum(r, child);
	tutti_comm_destroy(child);
}

static void test_configs(void **state)
{
	static const struct wish wishes[] = {
		{2, {.timeout_ms = -1}, TUTTI_ERR_INVALID, {"#0", "rank 2", "timeout_ms is -1"}},
		{0,
		 {.deterministic = 3},
		 TUTTI_ERR_INVALID,
		 {"#0", "rank 0", "deterministic is 3"}},
		{3, {.reserved = {1}}, TUTTI_ERR_INVALID, {"rank 3", "reserved"}},
		{1, {.device = 1}, TUTTI_ERR_UNSUPPORTED, {"rank 1", "CUDA"}},
		{1, {.transports = "smh"}, TUTTI_ERR_INVALID, {"rank 1", "did you mean shm"}},
		{3,
		 {.deterministic = 1},
		 TUTTI_ERR_INVALID,
		 {"rank 1", "rank 3", "color 1", "deterministic"}},
		{0,
		 {.transports = "tcp"},
		 TUTTI_ERR_INVALID,
		 {"rank 0", "rank 2", "color 0", "transports"}},
		/* Not looked at, or each rank's own. */
		{1,
		 {.rank = 77, .world_size = -5, .rendezvous = "?", .secret = "?"},
		 TUTTI_OK,
		 {NULL}},
		{2, {.timeout_ms = 1234}, TUTTI_OK, {NULL}},
		{-1, {.transports = "tcp", .deterministic = 1}, TUTTI_OK, {NULL}},
	};
	static const tutti_config config = {.timeout_ms = 60000};
	struct team team;

	for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
		team.arg = &wishes[i];
		with_team(&team, 5, &config, wish_for);
		check_verdict(&team, wishes[i].status, wishes[i].words);
	}
}

static void inherit(struct rank *r)
{
	static const tutti_config other = {.timeout_ms = 777};
	const tutti_config *parent = r->team->arg;
	tutti_comm *child, *copy, *changed;

	EXPECT_OK(r, tutti_comm_split(r->comm, 0, 0, NULL, &child));
	EXPECT_OK(r, tutti_comm_dup(child, &copy));
	EXPECT_OK(r, tutti_comm_split(r->comm, 0, 0, &other, &changed));
	EXPECT(r, copy->settings.timeout_ms == parent->timeout_ms, "%d ms",
	       copy->settings.timeout_ms);
	EXPECT(r, copy->settings.deterministic == r->comm->settings.deterministic, "deterministic");
	EXPECT(r, copy->reach.endpoint_count == r->comm->reach.endpoint_count, "%d endpoints",
	       copy->reach.endpoint_count);
	EXPECT(r, (copy->window == NULL) == (r->comm->window == NULL), "window %p",
	       (void *)copy->window);
	EXPECT(r, changed->settings.timeout_ms == 777 && !changed->settings.deterministic,
	       "not its own config");
	tutti_config made_with, made_with_other;
	EXPECT_OK(r, tutti_comm_config(child, &made_with));
	EXPECT_OK(r, tutti_comm_config(changed, &made_with_other));
	EXPECT(r, made_with.timeout_ms == parent->timeout_ms && made_with_other.timeout_ms == 777,
	       "%d and %d ms", made_with.timeout_ms, made_with_other.timeout_ms);
	EXPECT(r, made_with.deterministic == r->comm->settings.deterministic, "deterministic");
	EXPECT(r,
	       !parent->transports || (made_with.transports &&
				       strcmp(made_with.transports, parent->transports) == 0),
	       "transports %s", made_with.transports ? made_with.transports : "none");
	EXPECT(r, tutti_comm_config(child, NULL) == TUTTI_ERR_INVALID, "no place for it");
	tutti_comm_destroy(child);
	check_sum(r, copy);
	tutti_comm_destroy(copy);
	tutti_comm_destroy(changed);
}

static void test_inheritance(void **state)
{
	struct team team;
	for (size_t w = 0; w < WIRES; w++)
		for (int deterministic = 0; deterministic < 2; deterministic++) {
			tutti_config config = wires[w];
			config.deterministic = deterministic;
			team.arg = &config;
			with_team(&team, 3, &config, inherit);
		}
}

struct name {
	uint64_t id[2];
	uint8_t key[TUTTI_KEY_BYTES];
};

static void collect_names(struct rank *r)
{
	struct name mine[6], all[4][6];
	tutti_comm *child, *grandchild;

	for (int i = 0; i < 6; i += 2) {
		EXPECT_OK(r, tutti_comm_split(r->comm, r->me / 2, 0, NULL, &child));
		EXPECT_OK(r, tutti_comm_dup(child, &grandchild));
		memcpy(mine[i].id, child->identity.id, sizeof mine[i].id);
		memcpy(mine[i].key, child->identity.key, sizeof mine[i].key);
		memcpy(mine[i + 1].id, grandchild->identity.id, sizeof mine[i].id);
		memcpy(mine[i + 1].key, grandchild->identity.key, sizeof mine[i].key);
		tutti_comm_destroy(child);
		tutti_comm_destroy(grandchild);
	}
	EXPECT_OK(r, tutti_all_gather(mine, all, sizeof mine, TUTTI_U8, r->comm, NULL));
	for (int i = 0; i < 6; i++) {
		EXPECT(r, memcmp(&all[r->me ^ 1][i], &mine[i], sizeof mine[i]) == 0,
		       "the ranks of child %d call it differently", i);
		EXPECT(r, memcmp(mine[i].id, r->comm->identity.id, sizeof mine[i].id) != 0, "id %d",
		       i);
		EXPECT(r, memcmp(mine[i].key, r->comm->identity.key, sizeof mine[i].key) != 0,
		       "key %d", i);
		for (int k = 0; k < 6; k++) {
			const struct name *other = &all[(r->me + 2) % 4][k];
			EXPECT(r, memcmp(other->id, mine[i].id, sizeof mine[i].id) != 0,
			       "%d has the other color's id %d", i, k);
			EXPECT(r, memcmp(other->key, mine[i].key, sizeof mine[i].key) != 0,
			       "%d has the other color's key %d", i, k);
			EXPECT(r, i == k || memcmp(&mine[i], &mine[k], sizeof mine[i].id) != 0,
			       "%d and %d have one id", i, k);
		}
	}
}

/* Killed: leaving the parent's id, the sequence or the color out of what is hashed. */
static void test_names(void **state)
{
	struct team team;
	with_team(&team, 4, &wires[0], collect_names);
}

static int mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	int lines = 0;

	for (int c; file && (c = fgetc(file)) != EOF;)
		lines += c == '\n';
	if (file)
		fclose(file);
	return lines;
}

struct resources {
	int files, threads, maps;
};

static struct resources count_all(void)
{
	return (struct resources){open_descriptors(), threads_alive(), mappings()};
}

/* Counted when all have destroyed theirs: once early, when the parent is all there, and in the end.
 */
static void many_children(struct rank *r)
{
	int splits = *(const int *)r->team->arg;
	struct resources before = {0}, after;

	for (int i = 0; i <= splits; i++) {
		tutti_comm *child = NULL;
		int color = i % 5 == 4 ? -1 : r->me % (1 + i % 3);
		EXPECT_OK(r, tutti_comm_split(r->comm, color, -r->me, NULL, &child));
		if (child)
			check_sum(r, child);
		tutti_comm_destroy(child);
		EXPECT_OK(r, tutti_barrier(r->comm, NULL));
		if (r->me == 0 && i == 10)
			before = count_all();
		if (r->me == 0 && i == splits) {
			after = count_all();
			EXPECT(r, after.files == before.files, "%d descriptors became %d",
			       before.files, after.files);
			EXPECT(r, after.threads == before.threads, "%d threads became %d",
			       before.threads, after.threads);
			EXPECT(r, after.maps < before.maps + 50, "%d mappings became %d",
			       before.maps, after.maps);
		}
		EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	}
}

static void test_leaks(void **state)
{
	static const int splits[WIRES] = {200, 60, 60};
	struct team team;
	for (size_t w = 0; w < WIRES; w++) {
		team.arg = &splits[w];
		with_team(&team, 4, &wires[w], many_children);
	}
}

/* Alone in its child a rank needs nothing but memory. */
static void alone(struct rank *r)
{
	tutti_comm *child, *grandchild;
	int files = 0;

	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	if (r->me == 0)
		files = open_descriptors();
	EXPECT_OK(r, tutti_comm_split(r->comm, r->me, 0, NULL, &child));
	EXPECT_OK(r, tutti_comm_split(child, 5, 0, NULL, &grandchild));
	check_sum(r, child);
	check_sum(r, grandchild);
	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	/* Fewer: what other ranks needed to connect is gone meanwhile. */
	if (r->me == 0)
		EXPECT(r, open_descriptors() <= files, "%d descriptors became %d", files,
		       open_descriptors());
	EXPECT(r, child->reach.endpoint_count == 0 && !child->window,
	       "a child of one has endpoints");
	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	tutti_comm_destroy(child);
	tutti_comm_destroy(grandchild);
}

static void test_alone(void **state)
{
	struct team team;
	for (size_t w = 0; w < WIRES; w++)
		with_team(&team, 3, &wires[w], alone);
}

/* Five short all_gathers, however many children there are. */
static void count_messages(struct rank *r)
{
	tutti_stats before, after;
	tutti_comm *child;

	EXPECT_OK(r, tutti_comm_stats(r->comm, &before));
	for (int colors = 1; colors <= r->size; colors++) {
		EXPECT_OK(r, tutti_comm_split(r->comm, r->me % colors, 0, NULL, &child));
		tutti_comm_destroy(child);
	}
	EXPECT_OK(r, tutti_comm_stats(r->comm, &after));
	uint64_t n = (uint64_t)r->size, messages = after.messages - before.messages;
	EXPECT(r, messages <= n * 5 * (n - 1), "%d splits cost %d messages", r->size,
	       (int)messages);
	EXPECT(r, messages >= n * 4, "messages are not counted");
	EXPECT(r, after.collectives - before.collectives == n, "%d calls",
	       (int)(after.collectives - before.collectives));
}

static void test_traffic(void **state)
{
	struct team team;
	with_team(&team, 8, &wires[2], count_messages);
}

/* ---- where it may not be -----------------------------------------------------------------------
 */

static void call_out_of_place(struct rank *r)
{
	tutti_comm *child = NULL;

	EXPECT_OK(r, comm_enter(r->comm, "this test"));
	EXPECT(r, tutti_comm_split(r->comm, 0, 0, NULL, &child) == TUTTI_ERR_INVALID,
	       "a split in another thread's call");
	EXPECT(r, strstr(tutti_comm_error(NULL), "comm_split"), "%s", tutti_comm_error(NULL));
	comm_leave(r->comm);
	EXPECT_OK(r, tutti_group_begin());
	EXPECT(r, tutti_comm_dup(r->comm, &child) == TUTTI_ERR_INVALID, "a dup in a group");
	EXPECT(r, strstr(tutti_comm_error(NULL), "group"), "%s", tutti_comm_error(NULL));
	EXPECT(r, tutti_group_end(NULL) == TUTTI_ERR_INVALID, "the group forgets it");
	EXPECT(r, tutti_comm_sequence(r->comm) == 0, "a number was used");
	EXPECT_OK(r, tutti_comm_split(r->comm, 0, 0, NULL, &child));
	check_sum(r, child);
	tutti_comm_destroy(child);
}

static void test_out_of_place(void **state)
{
	struct team team;
	with_team(&team, 3, &wires[0], call_out_of_place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_configs), cmocka_unit_test(test_inheritance),
		cmocka_unit_test(test_names),   cmocka_unit_test(test_leaks),
		cmocka_unit_test(test_alone),   cmocka_unit_test(test_out_of_place),
		cmocka_unit_test(test_traffic),
	};
	test_limit(250);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
