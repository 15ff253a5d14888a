/* Without this tutti-plan check could call everything right. Every message of every algorithm's
 * plans is taken away, and every step's wait for another; each damage must be found, and told with
 * rank and step. */
#include "tools/tutti-plan/check.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

/* Takes the edge at place k of step from away. */
static void cut_edge(struct plan *p, uint32_t from, uint32_t k)
{
	struct step *s = &p->steps[from];
	p->steps[p->edges[s->succ + k]].deps--;
	p->edges[s->succ + k] = p->edges[s->succ + --s->succs];
}

static bool drop_edge(struct plan *p, uint32_t step, uint32_t which)
{
	for (uint32_t i = 0; i < p->count; i++)
		for (uint32_t k = 0; k < p->steps[i].succs; k++)
			if (p->edges[p->steps[i].succ + k] == step && which-- == 0) {
				cut_edge(p, i, k);
				return true;
			}
	return false;
}

static void leave_lane(struct plan *p, uint32_t step)
{
	struct lane *l = &p->lanes[p->steps[step].lane];
	uint32_t at = l->first;
	while (p->order[at] != step)
		at++;
	memmove(&p->order[at], &p->order[at + 1], (p->count - at - 1) * sizeof *p->order);
	l->count--;
	for (uint32_t i = 0; i < p->lane_count; i++)
		p->lanes[i].first -= p->lanes[i].first > at;
}

/* No step waits for the dropped one any more, and the steps behind it move up. */
static bool drop_step(struct plan *p, uint32_t step)
{
	while (p->steps[step].succs)
		cut_edge(p, step, 0);
	while (drop_edge(p, step, 0)) {
	}
	leave_lane(p, step);
	memmove(&p->steps[step], &p->steps[step + 1], (p->count - step - 1) * sizeof *p->steps);
	p->count--;
	for (uint32_t i = 0; i < p->count; i++) {
		p->order[i] -= p->order[i] > step;
		for (uint32_t k = 0; k < p->steps[i].succs; k++)
			p->edges[p->steps[i].succ + k] -= p->edges[p->steps[i].succ + k] > step;
	}
	return true;
}

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

static void must_be_found(struct plan_set *set, const char *damage, uint32_t step)
{
	struct finding finding = {""};

	if (check_plans(set, &finding))
		fail_msg("%s %s, %d ranks: nobody noticed the lost %s of step %u",
			 collective_name(set->algorithm->collective), set->algorithm->name,
			 set->size, damage, step);
	assert_non_null(strstr(finding.text, "Rank "));
	assert_non_null(strstr(finding.text, "step"));
}

/* Returns how many damages were tried. */
static int damage_step(struct plan_set *set, int rank, uint32_t step)
{
	struct plan *whole = set->of[rank], *damaged = look_build(set, rank);
	int tried = 0;

	for (uint32_t which = 0; drop_edge(damaged, step, which); which++, tried++) {
		set->of[rank] = damaged;
		if (!is_harmless(whole, damaged, step))
			must_be_found(set, "edge", step);
		plan_free(damaged);
		damaged = look_build(set, rank);
	}
	if (whole->steps[step].peer >= 0) {
		drop_step(damaged, step);
		set->of[rank] = damaged;
		must_be_found(set, "message", step);
		tried++;
	}
	set->of[rank] = whole;
	plan_free(damaged);
	return tried;
}

static int damage_everything(const struct algorithm *a, int size, int nodes)
{
	struct plan_set set = {.algorithm = a, .size = size, .nodes = nodes};
	int tried = 0;

	if (look_why_not(a, size, nodes))
		return 0;
	look_build_all(&set);
	for (int rank = 0; rank < size; rank++)
		for (uint32_t step = 0; step < set.of[rank]->count; step++)
			tried += damage_step(&set, rank, step);
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

/* The message says where. */
static void expect(struct plan_set *set, const char *words)
{
	struct finding finding = {""};

	assert_false(check_plans(set, &finding));
	if (!strstr(finding.text, words))
		fail_msg("'%s' has no '%s'", finding.text, words);
	look_free_all(set);
	look_build_all(set);
}

static void test_messages(void **state)
{
	struct plan_set set = {
		.algorithm = algorithm_find(COLL_ALL_REDUCE, "ring"), .size = 4, .nodes = 1};
	struct finding finding;
	(void)state;

	look_build_all(&set);
	assert_true(check_plans(&set, &finding));
	assert_true(drop_edge(set.of[2], 2, 0));
	expect(&set, "Rank 2: step 2 (send OUT[0] to rank 3) does not wait");
	struct step *send = &set.of[1]->steps[2];
	assert_int_equal(send->kind, STEP_SEND);
	set.of[1]->refs[send->ref].chunk = (set.of[1]->refs[send->ref].chunk + 1) % 4;
	expect(&set, "of other chunks");
	look_free_all(&set);
}

/* Two ranks that each send what they have received wait for each other. */
static void test_waiting_for_each_other(void **state)
{
	struct plan *of[2];
	struct plan_set set = {.algorithm = algorithm_find(COLL_ALL_REDUCE, "direct"),
			       .size = 2,
			       .nodes = 1,
			       .of = of};
	struct finding finding;
	(void)state;

	for (int r = 0; r < 2; r++) {
		struct plan *p =
			plan_new(r, 2, (struct plan_shape){1, 1, 0, 0}, (struct plan_options){0});
		plan_recv(p, 1 - r, span(BUF_OUT, 0, 1));
		plan_send(p, 1 - r, span(BUF_OUT, 0, 1));
		of[r] = plan_end(p);
	}
	assert_false(check_plans(&set, &finding));
	assert_string_equal(finding.text,
			    "Rank 0: step 0 (receive OUT[0] from rank 1) never ends when "
			    "sends wait for their receives.");
	plan_free(of[0]);
	plan_free(of[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_damage_is_found),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_waiting_for_each_other),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
