/* Would break: a child that its members alone make waits for other ranks, mixes up two that are
 * made at once, or is handed out to some of them only. */
#include "split_team.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static void expect_child(struct rank *r, tutti_comm *child, const int *list, int n)
{
	EXPECT(r, tutti_size(child) == n, "size %d", tutti_size(child));
	for (int i = 0; i < n; i++)
		EXPECT(r, tutti_parent_rank(child, i) == list[i], "rank %d was %d", i,
		       tutti_parent_rank(child, i));
	EXPECT(r, list[tutti_rank(child)] == r->me, "rank %d", tutti_rank(child));
	check_sum(r, child);
}

static void make(struct rank *r, const int *list, int n, int tag)
{
	tutti_comm *child = NULL;

	EXPECT_OK(r, tutti_comm_create_from(r->comm, list, n, tag, NULL, &child));
	if (!child)
		return;
	expect_child(r, child, list, n);
	tutti_comm_destroy(child);
}

/* The even ranks, backwards, while the odd ones make no call; then all. */
static void make_some_then_all(struct rank *r)
{
	int list[RANKS_MAX], n = 0;

	for (int i = r->size - 1; i >= 0; i--)
		if (i % 2 == 0)
			list[n++] = i;
	for (int round = 0; round < 3 && r->me % 2 == 0; round++)
		make(r, list, n, 0);
	check_sum(r, r->comm);
	for (int i = 0; i < r->size; i++)
		list[i] = (i + 1) % r->size;
	make(r, list, r->size, 7);
	EXPECT(r, tutti_comm_sequence(r->comm) == 1, "%llu",
	       (unsigned long long)tutti_comm_sequence(r->comm));
	check_sum(r, r->comm);
}

static void members_alone(void **state)
{
	for (int wire = 0; wire < WIRES; wire++)
		for (int size = 1; size <= RANKS_MAX; size++) {
			struct team t = {0};
			with_team(&t, size, &wires[wire], make_some_then_all);
		}
}

enum { THREADS = 3 };

struct maker {
	struct rank rank;
	int tag;
	pthread_t thread;
};

/* Group tag of the ranks that are not tag: any two overlap. */
static void *make_without(void *arg)
{
	struct maker *m = arg;
	int list[RANKS_MAX], n = 0;

	for (int i = 0; i < m->rank.size; i++)
		if (i != m->tag)
			list[n++] = i;
	if (m->rank.me != m->tag)
		make(&m->rank, list, n, m->tag);
	return NULL;
}

/* The threads of a rank begin in an order of its own. */
static void make_at_once(struct rank *r)
{
	struct maker makers[THREADS];

	for (int i = 0; i < THREADS; i++) {
		int tag = (i + r->me) % THREADS;
		makers[tag] = (struct maker){.rank = *r, .tag = tag};
		if (pthread_create(&makers[tag].thread, NULL, make_without, &makers[tag]) != 0)
			abort();
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(makers[i].thread, NULL);
		EXPECT(r, !makers[i].rank.wrong, "group %d: %.200s", i, makers[i].rank.why);
	}
}

static void groups_at_once(void **state)
{
	for (int wire = 0; wire < WIRES; wire++)
		for (int size = THREADS; size <= RANKS_MAX; size++) {
			struct team t = {0};
			with_team(&t, size, &wires[wire], make_at_once);
		}
}

/* Rank 0 alone lists them in another order. */
static void list_differently(struct rank *r)
{
	int list[] = {0, 1, 2}, other[] = {0, 2, 1};
	tutti_comm *child = NULL;

	keep(r, tutti_comm_create_from(r->comm, r->me ? list : other, 3, 5, NULL, &child));
	EXPECT(r, !child, "a child");
	make(r, list, 3, 5); /* the parent lives on */
}

static void lists_that_differ(void **state)
{
	static const char *const words[] = {"comm_create_from (tag 5)", "rank 0 lists 3",
					    "the lists differ", NULL};

	for (int wire = 0; wire < WIRES; wire++) {
		struct team t = {0};
		with_team(&t, 3, &wires[wire], list_differently);
		check_verdict(&t, TUTTI_ERR_MISMATCH, words);
	}
}

/* Its config is refused on one rank: all have its error. */
static void one_is_wrong(struct rank *r)
{
	int list[] = {2, 0, 1};
	tutti_config config = {.deterministic = r->me == 2 ? 7 : 0};
	tutti_comm *child = NULL;

	keep(r, tutti_comm_create_from(r->comm, list, 3, 0, &config, &child));
	EXPECT(r, !child, "a child");
	make(r, list, 3, 0);
}

static void errors_are_shared(void **state)
{
	static const char *const words[] = {"rank 2", "config.deterministic is 7", NULL};
	struct team t = {0};

	with_team(&t, 3, &wires[0], one_is_wrong);
	check_verdict(&t, TUTTI_ERR_INVALID, words);
}

static void one_does_not_come(struct rank *r)
{
	int list[] = {0, 1};
	tutti_comm *child = NULL;

	if (r->me == 1)
		return;
	keep(r, tutti_comm_create_from(r->comm, list, 2, 6, NULL, &child));
	EXPECT(r, r->status == TUTTI_ERR_TIMEOUT || r->status == TUTTI_ERR_PEER, "%.150s",
	       r->message);
	EXPECT(r, strstr(r->message, "comm_create_from (tag 6) with rank 1"), "%.150s", r->message);
}

static void missing_ranks_are_named(void **state)
{
	for (int wire = 0; wire < WIRES; wire++) {
		struct team t = {0};
		tutti_config config = wires[wire];
		config.timeout_ms = 500;
		with_team(&t, 2, &config, one_does_not_come);
	}
}

static void refuse(struct rank *r)
{
	static const int twice[] = {0, 1, 0}, beyond[] = {0, 2}, other[] = {1}, own[] = {0, 1};
	const int *const lists[] = {twice, beyond, r->me ? &own[0] : other, NULL, own, own};
	static const int counts[] = {3, 2, 1, 1, 0, 3};
	tutti_comm *child = NULL;

	for (int i = 0; i < 6; i++)
		EXPECT(r,
		       tutti_comm_create_from(r->comm, lists[i], counts[i], 0, NULL, &child) ==
			       TUTTI_ERR_INVALID,
		       "list %d", i);
	EXPECT(r, tutti_comm_create_from(r->comm, own, 2, -1, NULL, &child) == TUTTI_ERR_INVALID,
	       "tag -1");
	EXPECT(r, tutti_comm_create_from(r->comm, own, 2, 0, NULL, NULL) == TUTTI_ERR_INVALID,
	       "no child");
	EXPECT_OK(r, tutti_comm_status(r->comm));
	make(r, own, 2, INT32_MAX);
}

static void nonsense_is_refused(void **state)
{
	struct team t = {0};

	with_team(&t, 2, &wires[0], refuse);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_alone),           cmocka_unit_test(groups_at_once),
		cmocka_unit_test(lists_that_differ),       cmocka_unit_test(errors_are_shared),
		cmocka_unit_test(missing_ranks_are_named), cmocka_unit_test(nonsense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
