/* Without this tutti-plan check could call everything right. Every step of every algorithm's plans
 * is damaged in every way, and every damage must be found and be told with rank and step. */
#include "tools/tutti-plan/cases.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static const char *const damages[] = {"drop", "shift", "double", "edge"};

static bool leads_to(const struct plan *p, uint32_t from, uint32_t to)
{
	for (uint32_t k = 0; k < p->steps[from].succs; k++) {
		uint32_t next = p->edges[p->steps[from].succ + k];
		if (next == to || (next < to && leads_to(p, next, to)))
			return true;
	}
	return false;
}

static bool share_a_chunk(const struct plan *p, uint32_t a, uint32_t b)
{
	struct refs sides[2][2] = {{look_reads(p, a), look_writes(p, a)},
				   {look_reads(p, b), look_writes(p, b)}};
	for (int x = 0; x < 2; x++)
		for (int y = 0; y < 2; y++)
			for (uint32_t i = 0; (x || y) && i < sides[0][x].n; i++)
				for (uint32_t k = 0; k < sides[1][y].n; k++)
					if (look_cell(p, sides[0][x].at[i], false) ==
					    look_cell(p, sides[1][y].at[k], false))
						return true;
	return false;
}

/* Of a plan that has lost the edge between two steps: another way leads from one to the other, or
 * it was there for the pace alone. */
static bool is_harmless(const struct plan *whole, const struct plan *damaged, uint32_t step)
{
	struct before before = look_before(whole), after = look_before(damaged);
	uint32_t i = before.first[step], k = after.first[step];
	while (k < after.first[step + 1] && before.at[i] == after.at[k])
		i++, k++;
	uint32_t lost = before.at[i];
	look_before_free(&before);
	look_before_free(&after);
	return leads_to(damaged, lost, step) || !share_a_chunk(whole, lost, step);
}

/* Returns false when this step has no such place to damage. */
static bool try_damage(struct plan_set *set, const struct damage_order *o)
{
	struct finding finding = {""};
	struct plan *whole = set->of[o->rank];
	bool is_barrier = set->algorithm->collective == COLL_BARRIER;

	struct plan *damaged = look_build(set, o->rank);
	bool possible = damage_plan(damaged, o->damage, o->step, o->which);
	/* A barrier has no data, and what one signal does not say another may. */
	bool matters = !is_barrier || o->damage == DAMAGE_EDGE ||
		       (o->damage == DAMAGE_DROP && whole->steps[o->step].peer >= 0);
	set->of[o->rank] = damaged;
	if (possible && matters && check_plans(set, &finding) &&
	    !(o->damage == DAMAGE_EDGE && is_harmless(whole, damaged, o->step)))
		fail_msg("%s %s, %d ranks: nobody noticed %s:%d:%u:%u",
			 collective_name(set->algorithm->collective), set->algorithm->name,
			 set->size, damages[o->damage], o->rank, o->step, o->which);
	set->of[o->rank] = whole;
	plan_free(damaged);
	if (finding.text[0]) {
		assert_non_null(strstr(finding.text, "Rank "));
		assert_true(strstr(finding.text, "step") || strstr(finding.text, "barrier"));
	}
	return possible;
}

static int damage_everything(const struct algorithm *a, int size, int nodes)
{
	struct plan_set set = {.algorithm = a, .size = size, .nodes = nodes};
	int tried = 0;

	if (cases_why_not(a, size, nodes))
		return 0;
	look_build_all(&set);
	for (int rank = 0; rank < size; rank++)
		for (uint32_t step = 0; step < set.of[rank]->count; step++)
			for (int d = DAMAGE_DROP; d <= DAMAGE_EDGE; d++) {
				struct damage_order o = {(enum damage)d, rank, step, 0};
				for (; try_damage(&set, &o); o.which++)
					tried++;
			}
	look_free_all(&set);
	return tried;
}

static void test_every_damage_is_found(void **state)
{
	(void)state;
	for (int i = 0; algorithm_at(i); i++) {
		const struct algorithm *a = algorithm_at(i);
		if (!a->build)
			continue;
		int tried = damage_everything(a, 4, 2) + damage_everything(a, 5, 1);
		print_message("%s %s: %d damages\n", collective_name(a->collective), a->name,
			      tried);
		assert_true(tried > 10);
	}
}

/* The message says where: what rank 2 does not send any more, rank 3 waits for. */
static void test_message(void **state)
{
	struct plan_set set = {
		.algorithm = algorithm_find(COLL_ALL_REDUCE, "ring"), .size = 4, .nodes = 1};
	struct finding finding;
	(void)state;

	look_build_all(&set);
	assert_true(check_plans(&set, &finding));
	assert_true(damage_plan(set.of[2], DAMAGE_EDGE, 2, 0));
	assert_false(check_plans(&set, &finding));
	assert_non_null(
		strstr(finding.text, "Rank 2: step 2 (send OUT[0] to rank 3) does not wait"));
	look_free_all(&set);
}

static void test_parse(void **state)
{
	struct damage_order o;
	(void)state;
	assert_true(damage_parse("edge:2:7:1", &o));
	assert_int_equal(o.damage, DAMAGE_EDGE);
	assert_int_equal(o.rank, 2);
	assert_int_equal(o.step, 7);
	assert_int_equal(o.which, 1);
	assert_true(damage_parse("drop:0:3", &o));
	assert_int_equal(o.which, 0);
	assert_false(damage_parse("drop:0", &o));
	assert_false(damage_parse("drop:0:1:2:3", &o));
	assert_false(damage_parse("lose:0:1", &o));
	assert_false(damage_parse("drop:0:1x", &o));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_damage_is_found),
		cmocka_unit_test(test_message),
		cmocka_unit_test(test_parse),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
