/* A plan from its first step to its arrays. */
#include "collectives/plan/builder.h"

#include <stdlib.h>

struct plan *plan_new(int rank, int size, struct plan_shape shape, struct plan_options options)
{
	struct plan *p = calloc(1, sizeof *p);
	struct builder *b = calloc(1, sizeof *b);
	if (!p || !b) {
		free(p);
		free(b);
		return NULL;
	}
	*p = (struct plan){.rank = rank,
			   .size = size,
			   .chunks = {shape.in_chunks, shape.out_chunks, 0},
			   .shape_base = {shape.in_base, shape.out_base},
			   .options = options,
			   .max_refs = 1,
			   .builder = b};
	builder_open(p);
	return p;
}

/* Sorts edges by the step they leave, steps by lane. */
static void flatten(struct plan *p)
{
	struct builder *b = p->builder;
	uint32_t at = 0;
	for (uint32_t i = 0; i < p->count; i++) {
		p->steps[i].succ = at;
		at += p->steps[i].succs;
		p->steps[i].succs = 0;
	}
	for (uint32_t e = 0; e < b->edges; e++) {
		struct step *s = &p->steps[b->edge[e].from];
		p->edges[s->succ + s->succs++] = b->edge[e].to;
	}
	at = 0;
	for (uint32_t l = 0; l < p->lane_count; l++) {
		p->lanes[l].first = at;
		at += p->lanes[l].count;
		p->lanes[l].count = 0;
	}
	for (uint32_t i = 0; i < p->count; i++) {
		struct lane *l = &p->lanes[p->steps[i].lane];
		p->order[l->first + l->count++] = i;
		l->reduces |= p->steps[i].kind == STEP_RECV_REDUCE;
	}
}

struct plan *plan_end(struct plan *p)
{
	struct builder *b = p->builder;
	p->edges = calloc(b->edges + 1, sizeof *p->edges);
	p->order = calloc(p->count + 1, sizeof *p->order);
	if (!p->edges || !p->order || b->failed) {
		plan_free(p);
		return NULL;
	}
	flatten(p);
	builder_free(b);
	p->builder = NULL;
	return p;
}

void plan_free(struct plan *p)
{
	if (!p)
		return;
	if (p->builder)
		builder_free(p->builder);
	free(p->steps);
	free(p->lanes);
	free(p->order);
	free(p->edges);
	free(p->refs);
	free(p->tmp);
	free(p);
}
