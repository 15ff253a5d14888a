/* slow: 4 s */
/* no_tsan: it has one thread */
/* Survivors who agree on different groups, or never agree, when ranks die, sleep and are cut off in
 * any order; and two groups that go on at once. */
#include "agreement_world.h"
#include "tests/whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

/* Random ones. */
static int orders(void)
{
	return whole_or(24000, 6000, 24000);
}

static uint64_t first_seed(void)
{
	const char *text = getenv("SEED");
	return text ? strtoull(text, NULL, 0) : 1;
}

static void print_world(const struct world *w, uint64_t seed)
{
	print_error("seed %llu, %d ranks: %s\n", (unsigned long long)seed, w->size, w->wrong);
	for (int r = 0; r < w->size; r++)
		print_error("rank %d: %s, ended %d\n", r, w->is_alive[r] ? "alive" : "dead",
			    w->is_begun[r] ? (int)world_outcome(w, r) : -1);
}

static void expect_right(const struct world *w, uint64_t seed)
{
	if (w->wrong) {
		print_world(w, seed);
		fail();
	}
}

static struct world_rules rules_of(uint64_t seed)
{
	return (struct world_rules){.crashes = seed & 1,
				    .breaks = seed & 2,
				    .cuts = seed & 4,
				    .sleeps = seed & 8,
				    .leaves = seed & 16,
				    .jumps = seed & 32};
}

/* No two groups of living ranks go on (the world sees to that); that all ways to end are met is
 * counted. */
static void all_orders(void **state)
{
	static struct world w;
	uint64_t seed = first_seed();
	int decided = 0, hopeless = 0, left_out = 0;

	for (int i = 0; i < orders(); i++, seed++) {
		world_begin(&w, 1 + (int)(seed % WORLD_RANKS), seed * 7919, rules_of(seed));
		world_run(&w, 100 + (int)(seed % 900));
		world_reconnect(&w);
		expect_right(&w, seed);
		for (int r = 0; r < w.size; r++) {
			if (!w.is_alive[r])
				continue;
			decided += world_outcome(&w, r) == AGREEMENT_DECIDED;
			left_out += world_outcome(&w, r) == AGREEMENT_LEFT_OUT;
			hopeless += world_outcome(&w, r) == AGREEMENT_NO_QUORUM;
		}
		world_end(&w);
	}
	print_message("from seed %llu: %d ranks decided, %d were left out, %d had no quorum\n",
		      (unsigned long long)first_seed(), decided, left_out, hopeless);
	assert_true(decided > orders() && left_out > orders() / 200 && hopeless > orders() / 10);
}

/* Few ranks of which several lead at the same time. */
static void duels(void **state)
{
	static struct world w;
	uint64_t seed = first_seed();

	for (int i = 0; i < orders(); i++, seed++) {
		struct world_rules rules = {.crashes = seed % 8 == 7,
					    .leaves = seed & 16,
					    .breaks = seed & 32,
					    .jumps = true,
					    .duels = true};
		world_begin(&w, 3 + (int)(seed % 3), seed * 15485863, rules);
		world_run(&w, 40 + (int)(seed % 200));
		world_reconnect(&w);
		expect_right(&w, seed);
		world_end(&w);
	}
}

/* Only deaths and delays, of which all become known: every living rank goes on, however many have
 * died. */
static void deaths_alone(void **state)
{
	static struct world w;
	uint64_t seed = first_seed();

	for (int i = 0; i < orders() / 4; i++, seed++) {
		world_begin(&w, 1 + (int)(seed % WORLD_RANKS), seed * 104729,
			    (struct world_rules){.crashes = seed % 4 != 0, .breaks = seed & 2});
		w.questions = 1 + (int)(seed % WORLD_QUESTIONS);
		world_run(&w, 600);
		world_reconnect(&w);
		for (int r = 0; r < w.size && !w.wrong; r++)
			if (w.is_alive[r] && world_outcome(&w, r) != AGREEMENT_DECIDED)
				w.wrong = "a rank that nothing keeps from it does not go on";
		expect_right(&w, seed);
		world_end(&w);
	}
}

/* All live, and connections break all the time. A rank that has its verdict leaves for good as soon
 * as it owes nobody anything: nobody is left without one, and all have the same. */
static void broken_connections(void **state)
{
	static struct world w;
	uint64_t seed = first_seed();

	for (int i = 0; i < orders() / 4; i++, seed++) {
		world_begin(&w, 2 + (int)(seed % (WORLD_RANKS - 1)), seed * 32452843,
			    (struct world_rules){.breaks = true, .stays = true});
		world_run(&w, 600);
		world_reconnect(&w);
		for (int r = 0; r < w.size && !w.wrong; r++)
			if (world_outcome(&w, r) != AGREEMENT_DECIDED ||
			    memcmp(w.ranks[r].value, w.ranks[0].value, w.ranks[0].value_bytes) != 0)
				w.wrong = "a living rank has missed the decision";
		expect_right(&w, seed);
		world_end(&w);
	}
}

/* A rank that never begins is waited for, not much longer than it may take to come, and the grace
 * period, and not taken for dead. */
static void never_comes(uint64_t late_ns)
{
	static struct world w;

	for (int size = 2; size <= WORLD_RANKS; size++) {
		for (int absent = 0; absent < size; absent++) {
			bool enough = size > 2 || absent == 1;
			world_begin(&w, size, 1, (struct world_rules){.late_ns = late_ns});
			w.is_absent[absent] = true;
			world_reconnect(&w);
			expect_right(&w, (uint64_t)size);
			for (int r = 0; r < size; r++) {
				if (r == absent)
					continue;
				assert_int_equal(world_outcome(&w, r),
						 enough ? AGREEMENT_DECIDED : AGREEMENT_NO_QUORUM);
				assert_int_equal(w.ranks[r].value[absent], MARK_MISSING);
			}
			assert_true(w.clocks_ns[absent] > late_ns + WORLD_GRACE);
			assert_true(w.clocks_ns[absent] < late_ns + 4ull * WORLD_GRACE);
			world_end(&w);
		}
	}
}

static void who_never_comes(void **state)
{
	never_comes(0);
	never_comes(7ull * WORLD_GRACE);
}

/* Of three, one is dead and one is silent: the third goes on if it is the lower one. Later, when
 * the silent one is dead too, nothing keeps it. */
static void one_dead_one_silent(void **state)
{
	static struct world w;

	for (int silent = 0; silent < 3; silent++)
		for (int dead = 0; dead < 3; dead++) {
			int third = 3 - silent - dead;
			if (silent == dead)
				continue;
			world_begin(&w, 3, 1, (struct world_rules){0});
			w.is_absent[silent] = true;
			w.is_alive[dead] = false;
			w.anybody_died = true;
			world_reconnect(&w);
			expect_right(&w, 0);
			assert_int_equal(world_outcome(&w, third),
					 third < silent ? AGREEMENT_DECIDED : AGREEMENT_NO_QUORUM);
			assert_int_equal(w.ranks[third].value[silent], MARK_MISSING);
			assert_int_equal(w.ranks[third].value[dead], MARK_DEAD);
			world_end(&w);
		}
}

/* One question after the other in a world where everything happens: ranks that one left behind may
 * be a majority of what is left later. */
static void successive(void **state)
{
	static struct world w;
	uint64_t seed = first_seed();
	int last = 0, alone = 0, differing = 0;

	for (int i = 0; i < orders() / 2; i++, seed++) {
		struct world_rules rules = rules_of(seed / 2);
		rules.crashes = true;
		world_begin(&w, 2 + (int)(seed % (WORLD_RANKS - 1)), seed * 32452843, rules);
		w.questions = WORLD_QUESTIONS;
		world_run(&w, 400 + (int)(seed % 2400));
		world_reconnect(&w);
		expect_right(&w, seed);
		for (int r = 0; r < w.size; r++) {
			bool ended = w.is_alive[r] && world_outcome(&w, r) == AGREEMENT_DECIDED &&
				     w.number[r] + 1 == w.questions;
			last += ended;
			alone += ended && w.went_on[1u << r];
		}
		differing += w.differing > 0;
		world_end(&w);
	}
	print_message(
		"from seed %llu: %d ranks came to the end, %d alone; in %d worlds a death let "
		"decisions differ\n",
		(unsigned long long)first_seed(), last, alone, differing);
	assert_true(last > orders() / 4 && alone > orders() / 200);
}

/* Sides that do not hear of each other for long, but of deaths: groups of several generations, and
 * those that they have left behind. */
static void sides(void **state)
{
	static struct world w;
	uint64_t seed = first_seed();
	int groups = 0;

	for (int i = 0; i < orders() / 4; i++, seed++) {
		world_begin(&w, 2 + (int)(seed % 5), seed * 49979687,
			    (struct world_rules){.crashes = true, .cuts = true, .sleeps = true});
		w.questions = WORLD_QUESTIONS;
		for (int k = 0; k < 5; k++) {
			world_tear(&w);
			world_settle(&w, 20 + (int)(seed % 200));
		}
		world_reconnect(&w);
		expect_right(&w, seed);
		for (unsigned group = 1; group < 1u << w.size; group++)
			groups += w.went_on[group];
		world_end(&w);
	}
	print_message("from seed %llu: %d groups\n", (unsigned long long)first_seed(), groups);
	assert_true(groups > orders() / 4);
}

static bool says(struct agreement *a, int to, enum agreement_kind kind, uint64_t ballot,
		 uint64_t now_ns)
{
	struct agreement_message m;
	return agreement_say(a, to, &m, now_ns) && m.kind == kind && m.ballot == ballot;
}

/* Rank 2 has joined rank 0, then, when that fell silent, rank 1: what rank 0 proposes after all is
 * refused, and rank 1 hears that nothing was accepted. */
static void promises_are_kept(void **state)
{
	static const bool candidates[3] = {true, true, true};
	static const uint8_t nobody[3];
	const uint8_t record = 7, value[6] = {MARK_MEMBER, MARK_MISSING, MARK_MEMBER, 7, 0, 7};
	const uint64_t first = 3, later = 7; /* ballots of ranks 0 and 1 */
	uint64_t now_ns = 1000;
	struct agreement_config config = {.rank = 2,
					  .size = 3,
					  .candidates = candidates,
					  .record = &record,
					  .record_bytes = 1,
					  .grace_ns = WORLD_GRACE,
					  .now_ns = now_ns};
	struct agreement a;

	assert_int_equal(agreement_init(&a, &config), TUTTI_OK);
	agreement_step(&a, now_ns);
	agreement_hear(&a, 0, &(struct agreement_message){.kind = AGREEMENT_CALL, .ballot = first},
		       now_ns);
	assert_true(says(&a, 0, AGREEMENT_JOIN, first, now_ns));
	agreement_hear(&a, 1, &(struct agreement_message){.kind = AGREEMENT_CALL, .ballot = later},
		       now_ns);
	now_ns += 2 * (uint64_t)WORLD_GRACE;
	agreement_step(&a, now_ns);
	assert_true(says(&a, 1, AGREEMENT_JOIN, later, now_ns));
	agreement_hear(&a, 0,
		       &(struct agreement_message){.kind = AGREEMENT_PROPOSE,
						   .is_fresh = true,
						   .ballot = first,
						   .value = value,
						   .gone = nobody},
		       now_ns);
	assert_true(says(&a, 0, AGREEMENT_REFUSE, later, now_ns));
	assert_int_equal(a.accepted, 0);
	agreement_finish(&a);
}

/* Rank 0 leads, is refused and calls again: who has joined its first ballot may have promised more
 * to another since, and does not count for the second. */
static void joins_are_of_a_ballot(void **state)
{
	static const bool candidates[3] = {true, true, true};
	const uint8_t record = 7;
	const uint64_t first = 3, refused = 7, second = 9, now_ns = 1000;
	struct agreement_config config = {.rank = 0,
					  .size = 3,
					  .candidates = candidates,
					  .record = &record,
					  .record_bytes = 1,
					  .grace_ns = WORLD_GRACE,
					  .now_ns = now_ns};
	struct agreement_message join = {
		.kind = AGREEMENT_JOIN, .ballot = first, .record = &record};
	struct agreement a;

	assert_int_equal(agreement_init(&a, &config), TUTTI_OK);
	agreement_step(&a, now_ns);
	assert_true(says(&a, 1, AGREEMENT_CALL, first, now_ns));
	agreement_hear(&a, 2,
		       &(struct agreement_message){.kind = AGREEMENT_REFUSE, .ballot = refused},
		       now_ns);
	agreement_hear(&a, 1, &join, now_ns);
	join.ballot = second;
	agreement_hear(&a, 2, &join, now_ns);
	agreement_step(&a, now_ns);
	assert_true(says(&a, 1, AGREEMENT_CALL, second, now_ns));
	agreement_hear(&a, 1, &join, now_ns);
	agreement_step(&a, now_ns);
	assert_true(says(&a, 1, AGREEMENT_PROPOSE, second, now_ns));
	agreement_finish(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(promises_are_kept),
		cmocka_unit_test(joins_are_of_a_ballot),
		cmocka_unit_test(broken_connections),
		cmocka_unit_test(deaths_alone),
		cmocka_unit_test(who_never_comes),
		cmocka_unit_test(one_dead_one_silent),
		cmocka_unit_test(duels),
		cmocka_unit_test(all_orders),
		cmocka_unit_test(successive),
		cmocka_unit_test(sides),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
