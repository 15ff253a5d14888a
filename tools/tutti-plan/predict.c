/* Chooses between simulation and formula, point by point. */
#include "predict.h"

#include <math.h>

/* However many steps a point may take: of a world with more there would not be enough memory. */
#define WORLD_STEPS_MAX 32e6

static struct slices predict_slices_of(const struct question *q)
{
	double chunk = q->bytes / algorithm_split(q->algorithm, q->ranks);
	uint32_t width = algorithm_width(q->algorithm, q->ranks, (struct plan_options){0});

	/* A barrier's token is one element. */
	if (q->algorithm->collective == COLL_BARRIER)
		chunk = (double)q->machine->element;
	return clock_cut(q->machine, chunk, width);
}

double predict_formula(const struct question *q)
{
	struct topology place = {q->ranks, q->nodes > 1 ? q->nodes : 1};
	struct cost c = q->algorithm->cost(place);
	struct slices slices = predict_slices_of(q);

	return links_seconds(&q->machine->links, place, &c, q->bytes,
			     fmin(slices.slice, slices.chunk));
}

static struct plan_set predict_set_of(const struct question *q)
{
	return (struct plan_set){.algorithm = q->algorithm,
				 .size = q->ranks,
				 .nodes = q->nodes,
				 .root = q->root,
				 .in_place = true};
}

static double plan_bytes(const struct question *q)
{
	struct plan_set set = predict_set_of(q);
	struct plan *plan = look_build(&set, q->root);
	size_t bytes = look_bytes(plan);

	plan_free(plan);
	return (double)bytes;
}

struct point plan_predict(const struct question *q)
{
	struct point p = {.ranks = q->ranks, .how = HOW_NOT};
	struct plan_set set = predict_set_of(q);
	struct slices slices;
	struct world world;

	if ((p.why = look_why_not(q->algorithm, q->ranks, q->nodes)))
		return p;
	slices = predict_slices_of(q);
	p.how = HOW_FORMULA;
	double most = fmin(q->steps_max / slices.count, WORLD_STEPS_MAX);
	if (world_open(&world, &set, (size_t)most, false)) {
		struct run_time time = clock_run(&world, q->machine, slices);
		p.seconds = time.seconds;
		p.how = HOW_SIMULATED;
		if (time.stuck >= 0) {
			p.how = HOW_NOT;
			p.why = "its plans never end";
		}
		world_close(&world);
	}
	return p;
}

void predict_curve(struct question q, int local, struct point *points, int n)
{
	double factor = 1;
	bool beyond = false;

	for (int i = 0; i < n; i++) {
		struct point *p = &points[i];
		q.ranks = p->ranks;
		q.nodes = q.ranks > local ? q.ranks / local : 1;
		if (q.nodes * local != q.ranks && q.nodes > 1) {
			p->how = HOW_NOT;
			p->why = "the nodes would not be equally full";
			continue;
		}
		if (!beyond)
			*p = plan_predict(&q);
		else if ((p->why = look_why_not(q.algorithm, q.ranks, q.nodes)))
			p->how = HOW_NOT;
		else
			p->how = HOW_FORMULA;
		if (p->how == HOW_SIMULATED && predict_formula(&q) > 0)
			factor = p->seconds / predict_formula(&q);
		if (p->how == HOW_FORMULA) {
			beyond = true;
			p->seconds = factor * predict_formula(&q);
		}
		if (p->how != HOW_NOT)
			p->plan_bytes = plan_bytes(&q);
	}
}
