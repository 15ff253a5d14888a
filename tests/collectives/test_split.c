/* Would break: children of communicators in trouble: ranks that ask for what does not go together,
 * that fail, call something else, do not come or abort; what is left behind; who may guess a
 * child's name. That children work is tests/api/split.c's. */
#include "collectives/comm.h"
#include "core/clock.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS_MAX 8

/* ---- ranks as threads ------------------------------------------------------------------ */

struct team;
struct rank {
	struct team *team;
	int me, size;
	tutti_comm *comm;
	pthread_t thread;
	tutti_status status; /* what a body has to say, for the checks after it */
	char sentence[ERROR_BYTES];
	int wrong;
	char why[300];
};
struct team {
	int size;
	void (*body)(struct rank *);
	const void *arg;
	struct rank rank[RANKS_MAX];
};

#define EXPECT(r, condition, ...)                                                                  \
	do {                                                                                       \
		if (!(condition) && !(r)->wrong++) {                                               \
			int used_ = snprintf((r)->why, sizeof(r)->why, "line %d: %s: ", __LINE__,  \
					     #condition);                                          \
			snprintf((r)->why + used_, sizeof(r)->why - (size_t)used_, __VA_ARGS__);   \
		}                                                                                  \
	} while (0)
#define EXPECT_OK(r, call)                                                                         \
	do {                                                                                       \
		tutti_status status_ = (call);                                                     \
		EXPECT(r, status_ == TUTTI_OK, "%s: %s: %.150s", #call,                            \
		       tutti_status_string(status_), tutti_comm_error(NULL));                      \
	} while (0)

/* The status of call, kept with its sentence. */
static tutti_status keep(struct rank *r, tutti_status status)
{
	r->status = status;
	snprintf(r->sentence, sizeof r->sentence, "%s",
		 status == TUTTI_OK ? "" : tutti_comm_error(NULL));
	return status;
}

static void *enter(void *arg)
{
	struct rank *r = arg;
	r->team->body(r);
	return NULL;
}

/* Runs body on every rank of a new team, a thread each. */
static void with_team(struct team *t, int size, const tutti_config *config,
		      void (*body)(struct rank *))
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

static const tutti_config wires[] = {
	{.timeout_ms = 60000},
	{.timeout_ms = 60000, .transports = "shm"},
	{.timeout_ms = 60000, .transports = "tcp"},
};
#define WIRES (sizeof wires / sizeof wires[0])

static void check_sum(struct rank *r, tutti_comm *comm)
{
	int32_t x = tutti_rank(comm) + 1, n = tutti_size(comm);
	EXPECT_OK(r, tutti_all_reduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, comm, NULL));
	EXPECT(r, x == n * (n + 1) / 2, "the sum of %d ranks is %d", n, x);
}

/* All ranks of a team said the same, with one sentence that has each of the words. */
static void check_verdict(const struct team *t, tutti_status wanted, const char *const *words)
{
	const struct rank *r0 = &t->rank[0];
	for (int i = 0; i < t->size; i++) {
		if (t->rank[i].status != wanted)
			fail_msg("rank %d: %s, should be %s: %s", i,
				 tutti_status_string(t->rank[i].status),
				 tutti_status_string(wanted), t->rank[i].sentence);
		assert_string_equal(t->rank[i].sentence, r0->sentence);
	}
	for (; *words; words++)
		if (!strstr(r0->sentence, *words))
			fail_msg("no \"%s\" in: %s", *words, r0->sentence);
}

/* ---- what cannot be ------------------------------------------------------------------- */

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

	(void)state;
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
	EXPECT(r, copy->timeout_ms == parent->timeout_ms, "%d ms", copy->timeout_ms);
	EXPECT(r, copy->deterministic == r->comm->deterministic, "deterministic");
	EXPECT(r, copy->endpoint_count == r->comm->endpoint_count, "%d endpoints",
	       copy->endpoint_count);
	EXPECT(r, (copy->window == NULL) == (r->comm->window == NULL), "window %p",
	       (void *)copy->window);
	EXPECT(r, changed->timeout_ms == 777 && !changed->deterministic, "not its own config");
	tutti_comm_destroy(child);
	check_sum(r, copy);
	tutti_comm_destroy(copy);
	tutti_comm_destroy(changed);
}

static void test_inheritance(void **state)
{
	struct team team;
	(void)state;
	for (size_t w = 0; w < WIRES; w++)
		for (int deterministic = 0; deterministic < 2; deterministic++) {
			tutti_config config = wires[w];
			config.deterministic = deterministic;
			team.arg = &config;
			with_team(&team, 3, &config, inherit);
		}
}

/* ---- who is who ----------------------------------------------------------------------- */

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
		memcpy(mine[i].id, child->id, sizeof mine[i].id);
		memcpy(mine[i].key, child->key, sizeof mine[i].key);
		memcpy(mine[i + 1].id, grandchild->id, sizeof mine[i].id);
		memcpy(mine[i + 1].key, grandchild->key, sizeof mine[i].key);
		tutti_comm_destroy(child);
		tutti_comm_destroy(grandchild);
	}
	EXPECT_OK(r, tutti_all_gather(mine, all, sizeof mine, TUTTI_U8, r->comm, NULL));
	for (int i = 0; i < 6; i++) {
		EXPECT(r, memcmp(&all[r->me ^ 1][i], &mine[i], sizeof mine[i]) == 0,
		       "the ranks of child %d call it differently", i);
		EXPECT(r, memcmp(mine[i].id, r->comm->id, sizeof mine[i].id) != 0, "id %d", i);
		EXPECT(r, memcmp(mine[i].key, r->comm->key, sizeof mine[i].key) != 0, "key %d", i);
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
	(void)state;
	with_team(&team, 4, &wires[0], collect_names);
}

/* ---- what is left behind --------------------------------------------------------------- */

static int entries_of(const char *path)
{
	DIR *directory = opendir(path);
	int n = 0;

	while (directory && readdir(directory))
		n++;
	if (directory)
		closedir(directory);
	return n;
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

struct census {
	int files, threads, maps;
};

static struct census count_all(void)
{
	return (struct census){entries_of("/proc/self/fd"), entries_of("/proc/self/task"),
			       mappings()};
}

/* Counted when all have destroyed theirs: once early, when the parent is all there, and in the end.
 */
static void many_children(struct rank *r)
{
	int splits = *(const int *)r->team->arg;
	struct census before = {0}, after;

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
	(void)state;
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
		files = entries_of("/proc/self/fd");
	EXPECT_OK(r, tutti_comm_split(r->comm, r->me, 0, NULL, &child));
	EXPECT_OK(r, tutti_comm_split(child, 5, 0, NULL, &grandchild));
	check_sum(r, child);
	check_sum(r, grandchild);
	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	if (r->me == 0)
		EXPECT(r, entries_of("/proc/self/fd") == files, "%d descriptors became %d", files,
		       entries_of("/proc/self/fd"));
	EXPECT(r, child->endpoint_count == 0 && !child->window, "a child of one has endpoints");
	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	tutti_comm_destroy(child);
	tutti_comm_destroy(grandchild);
}

static void test_alone(void **state)
{
	struct team team;
	(void)state;
	for (size_t w = 0; w < WIRES; w++)
		with_team(&team, 3, &wires[w], alone);
}

/* ---- too few descriptors --------------------------------------------------------------- */

static atomic_int room; /* descriptors that there are for the next split */

/* The ranks are threads, so some or all of them fail somewhere; still all fail or none does. */
static void with_little_room(struct rank *r)
{
	tutti_comm *child = NULL;
	int files = 0;
	struct rlimit limit, whole;

	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	check_sum(r, r->comm); /* the parent's connections are there */
	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	if (r->me == 0) {
		files = entries_of("/proc/self/fd") - 3; /* ., .. and its own */
		getrlimit(RLIMIT_NOFILE, &whole);
		limit = whole;
		limit.rlim_cur = (rlim_t)(files + atomic_load(&room));
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	keep(r, tutti_comm_split(r->comm, r->me / 2, 0, NULL, &child));
	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	if (r->me == 0)
		setrlimit(RLIMIT_NOFILE, &whole);
	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	if (child)
		check_sum(r, child);
	tutti_comm_destroy(child);
	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	if (r->me == 0)
		EXPECT(r, entries_of("/proc/self/fd") - 3 == files, "room for %d: %d became %d",
		       atomic_load(&room), files, entries_of("/proc/self/fd") - 3);
	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	EXPECT_OK(r, tutti_comm_dup(r->comm, &child));
	check_sum(r, child);
	tutti_comm_destroy(child);
}

static void test_little_room(void **state)
{
	static const tutti_config config = {.timeout_ms = 2000};
	static const char *const words[] = {"comm_split #", "rank", "child", NULL};
	struct team team;
	int refused = 0;

	(void)state;
	for (int n = 0; n < 30; n = n * 5 / 3 + 1) {
		atomic_store(&room, n);
		with_team(&team, 4, &config, with_little_room);
		check_verdict(&team, team.rank[0].status,
			      team.rank[0].status == TUTTI_OK ? words + 3 : words);
		refused += team.rank[0].status == TUTTI_ERR_SYSTEM;
	}
	assert_true(refused >= 3);
}

/* ---- other calls, no call -------------------------------------------------------------- */

/* The last rank makes another call. */
static void differ(struct rank *r)
{
	bool is_odd = r->me == r->size - 1;
	tutti_comm *child = NULL;
	int32_t x = 1;

	if (!is_odd)
		keep(r, tutti_comm_split(r->comm, 0, 0, NULL, &child));
	else if (*(const char *)r->team->arg == 'd')
		keep(r, tutti_comm_dup(r->comm, &child));
	else
		keep(r, tutti_all_reduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, r->comm, NULL));
	EXPECT(r,
	       r->status == TUTTI_ERR_MISMATCH || r->status == TUTTI_ERR_PEER ||
		       r->status == TUTTI_ERR_TIMEOUT,
	       "%s: %s", tutti_status_string(r->status), r->sentence);
	EXPECT(r, !child, "a child");
	EXPECT(r, tutti_comm_status(r->comm) == r->status, "not sticky");
}

static void test_mismatch(void **state)
{
	static const char *const others[] = {"all_reduce", "dup"};
	struct team team;

	(void)state;
	for (size_t w = 0; w < WIRES; w++)
		for (int i = 0; i < 2; i++) {
			int mismatches = 0;
			tutti_config config = wires[w];
			config.timeout_ms = 2000;
			team.arg = others[i];
			with_team(&team, 3, &config, differ);
			for (int k = 0; k < 3; k++)
				mismatches += team.rank[k].status == TUTTI_ERR_MISMATCH;
			assert_true(mismatches > 0);
		}
}

/* A rank that does not come, or comes late: by then the others are gone. */
static void miss(struct rank *r)
{
	tutti_comm *child = NULL;

	if (r->me == 1)
		return;
	keep(r, tutti_comm_split(r->comm, r->me, 0, NULL, &child));
	EXPECT(r, r->status == TUTTI_ERR_TIMEOUT || r->status == TUTTI_ERR_PEER, "%s: %s",
	       tutti_status_string(r->status), r->sentence);
	EXPECT(r, tutti_comm_status(r->comm) == r->status && !child, "not sticky");
}

static void test_missing(void **state)
{
	struct team team;

	(void)state;
	for (size_t w = 0; w < WIRES; w++) {
		tutti_config config = wires[w];
		int files = entries_of("/proc/self/fd");
		config.timeout_ms = 200;
		with_team(&team, 4, &config, miss);
		assert_int_equal(entries_of("/proc/self/fd"), files);
	}
}

/* ---- abort ----------------------------------------------------------------------------- */

struct lot {
	uint64_t spins;
	tutti_comm *victim;
};

static void *abort_later(void *arg)
{
	struct lot *lot = arg;
	for (uint64_t i = 0; i < lot->spins; i++)
		sched_yield();
	tutti_comm_abort(lot->victim);
	return NULL;
}

/* Splits until the parent is gone, whatever round it is in then. Who has a child can use it no
 * longer than all others have it. */
static void split_until_aborted(struct rank *r)
{
	struct lot lot = {*(const uint64_t *)r->team->arg, r->comm};
	pthread_t thread;

	if (r->me == 1)
		EXPECT(r, pthread_create(&thread, NULL, abort_later, &lot) == 0, "a thread");
	for (int i = 0; r->status == TUTTI_OK; i++) {
		tutti_comm *child = NULL;
		int32_t x = 1;
		if (keep(r, tutti_comm_split(r->comm, (r->me + i) % 2, 0, NULL, &child)) !=
		    TUTTI_OK)
			break;
		tutti_status used = tutti_all_reduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, child, NULL);
		EXPECT(r, used == TUTTI_OK || used == TUTTI_ERR_PEER || used == TUTTI_ERR_ABORTED,
		       "%s: %.150s", tutti_status_string(used), tutti_comm_error(child));
		tutti_comm_destroy(child);
	}
	EXPECT(r,
	       r->status == TUTTI_ERR_ABORTED || r->status == TUTTI_ERR_PEER ||
		       r->status == TUTTI_ERR_TIMEOUT,
	       "%s: %.150s", tutti_status_string(r->status), r->sentence);
	if (r->me == 1)
		pthread_join(thread, NULL);
}

static void test_abort(void **state)
{
	uint64_t seed = clock_now_ns(), spins;
	struct team team;

	(void)state;
	print_message("SEED=%llu\n", (unsigned long long)seed);
	for (size_t w = 0; w < WIRES; w++)
		for (int i = 0; i < 6; i++) {
			int files = entries_of("/proc/self/fd");
			tutti_config config = wires[w];
			config.timeout_ms = 4000; /* half of it is the patience of a window */
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			spins = (seed >> 33) % 3000;
			team.arg = &spins;
			with_team(&team, 4, &config, split_until_aborted);
			assert_int_equal(entries_of("/proc/self/fd"), files);
		}
}

/* ---- where it may not be -----------------------------------------------------------------------
 */

static void intrude(struct rank *r)
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
	(void)state;
	with_team(&team, 3, &wires[0], intrude);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_configs),  cmocka_unit_test(test_inheritance),
		cmocka_unit_test(test_names),    cmocka_unit_test(test_leaks),
		cmocka_unit_test(test_alone),    cmocka_unit_test(test_little_room),
		cmocka_unit_test(test_mismatch), cmocka_unit_test(test_missing),
		cmocka_unit_test(test_abort),    cmocka_unit_test(test_out_of_place),
	};
	alarm(250);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
