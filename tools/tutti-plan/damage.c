/* Takes a step or an edge out of a plan, or changes one operand. */
#include "damage.h"

#include <stdio.h>
#include <string.h>

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

static bool shift_chunk(struct plan *p, uint32_t step, uint32_t which)
{
	struct step *s = &p->steps[step];
	struct ref *r = which < s->refs ? &p->refs[s->ref + which] : &s->dst;
	bool has_dst = s->kind != STEP_SEND && s->kind != STEP_RECV;

	if (which > s->refs || (which == s->refs && !has_dst) || p->chunks[r->buf] < 2)
		return false;
	r->chunk = (r->chunk + 1) % p->chunks[r->buf];
	return true;
}

static bool double_operand(struct plan *p, uint32_t step, uint32_t which)
{
	struct step *s = &p->steps[step];
	if (s->kind != STEP_REDUCE || s->refs < 2 || which >= s->refs)
		return false;
	p->refs[s->ref + (which + 1) % s->refs] = p->refs[s->ref + which];
	return true;
}

bool damage_plan(struct plan *p, enum damage damage, uint32_t step, uint32_t which)
{
	if (step >= p->count)
		return false;
	switch (damage) {
	case DAMAGE_DROP:
		return which == 0 && drop_step(p, step);
	case DAMAGE_SHIFT:
		return shift_chunk(p, step, which);
	case DAMAGE_DOUBLE:
		return double_operand(p, step, which);
	case DAMAGE_EDGE:
		return drop_edge(p, step, which);
	}
	return false;
}

bool damage_parse(const char *text, struct damage_order *o)
{
	static const char *const names[] = {"drop", "shift", "double", "edge"};
	char name[16] = "";
	int end = 0;

	*o = (struct damage_order){0};
	if (sscanf(text, "%15[a-z]:%d:%u%n", name, &o->rank, &o->step, &end) < 3)
		return false;
	if (text[end] == ':') {
		int more = 0;
		if (sscanf(text + end, ":%u%n", &o->which, &more) < 1)
			return false;
		end += more;
	}
	for (int i = 0; i < 4; i++)
		if (strcmp(names[i], name) == 0) {
			o->damage = (enum damage)i;
			return text[end] == '\0';
		}
	return false;
}
