/* Would break: a split in which ranks fail, call something else, do not come, abort: all get an
 * error, and nothing is left. */
#include "split_team.h"

#include "core/clock.h"
#include "tests/limit.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/unit.h"

static atomic_int room; /* descriptors that there are for the next split */

/* The ranks are threads, so some or all of them fail somewhere; still all fail or none does. */
static void with_little_room(struct rank *r)
{
	tutti_comm *child = NULL;
	int files = 0;
	struct rlimit limit, whole;

	/* The parent's connections are there, and what greeted for them is closed: that may take a
	 * call more of both its ends. */
	for (int i = 0; i < 4; i++) {
		EXPECT_OK(r, tutti_barrier(r->comm, NULL));
		check_sum(r, r->comm);
	}
	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
	if (r->me == 0) {
		files = open_descriptors() - 1;
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
		EXPECT(r, open_descriptors() - 1 == files, "room for %d: %d became %d",
		       atomic_load(&room), files, open_descriptors() - 1);
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

	for (int n = 0; n < 30; n = n * 5 / 3 + 1) {
		atomic_store(&room, n);
		with_team(&team, 4, &config, with_little_room);
		check_verdict(&team, team.rank[0].status,
			      team.rank[0].status == TUTTI_OK ? words + 3 : words);
		refused += team.rank[0].status == TUTTI_ERR_SYSTEM;
	}
	assert_true(refused >= 3);
}

/* The last rank makes another call. */
static void differ(struct rank *r)
{
	bool is_odd = r->me == r->size - 1;
	tutti_comm *child = NULL;
	int32_t x = 1;

	if (!is_odd)
		keep(r, tutti_comm_split(r->comm, 0, 0, NULL, &child));
	else if (*(const char *)r->team->arg == 'c')
		keep(r, tutti_comm_dup(r->comm, &child));
	else
		keep(r, tutti_all_reduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, r->comm, NULL));
	EXPECT(r, r->status == TUTTI_ERR_MISMATCH, "%s: %.150s", tutti_status_string(r->status),
	       r->message);
	EXPECT(r, strstr(r->message, "comm_split() as #0"), "%.200s", r->message);
	EXPECT(r, strstr(r->message, r->team->arg), "%.200s", r->message);
	EXPECT(r, !child, "a child");
	EXPECT(r, tutti_comm_status(r->comm) == r->status, "not sticky");
}

static void test_mismatch(void **state)
{
	static const char *const others[] = {"all_reduce", "comm_dup"};
	struct team team;

	for (size_t w = 0; w < WIRES; w++)
		for (int i = 0; i < 2; i++) {
			team.arg = others[i];
			with_team(&team, 3, &wires[w], differ);
		}
}

/* A rank that does not come, or comes late: by then the others are gone. */
static void miss(struct rank *r)
{
	tutti_comm *child = NULL;

	if (r->me == 1)
		return;
	keep(r, tutti_comm_split(r->comm, r->me, 0, NULL, &child));
	EXPECT(r, r->status == TUTTI_ERR_TIMEOUT || r->status == TUTTI_ERR_PEER, "%s: %.150s",
	       tutti_status_string(r->status), r->message);
	EXPECT(r, tutti_comm_status(r->comm) == r->status && !child, "not sticky");
}

static void test_missing(void **state)
{
	struct team team;

	for (size_t w = 0; w < WIRES; w++) {
		tutti_config config = wires[w];
		int files = open_descriptors();
		config.timeout_ms = 2000; /* the team is made within it, on a loaded machine, too */
		with_team(&team, 4, &config, miss);
		assert_int_equal(open_descriptors(), files);
	}
}

struct lot {
	uint64_t spins;
	tutti_comm *victim;
};

static void *abort_later(void *arg)
{
	struct lot *lot = arg;
	for (volatile uint64_t i = 0; i < lot->spins; i++)
		continue;
	tutti_comm_abort(lot->victim);
	return NULL;
}

/* Splits until the parent is gone, whatever round it is in then. A rank that has a child can use it
 * no longer than all others have it. */
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
	EXPECT(r, r->status == TUTTI_ERR_ABORTED || r->status == TUTTI_ERR_PEER, "%s: %.150s",
	       tutti_status_string(r->status), r->message);
	if (r->me == 1)
		pthread_join(thread, NULL);
}

static void test_abort(void **state)
{
	const char *given = getenv("SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : clock_now_ns(), spins;
	struct team team;

	print_message("SEED=%llu\n", (unsigned long long)seed);
	for (size_t w = 0; w < WIRES; w++)
		for (int i = 0; i < 6; i++) {
			int files = open_descriptors();
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			spins = (seed >> 33) % 3000000;
			team.arg = &spins;
			with_team(&team, 4, &wires[w], split_until_aborted);
			assert_int_equal(open_descriptors(), files);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_little_room),
		cmocka_unit_test(test_mismatch),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_abort),
	};
	test_limit(250);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
