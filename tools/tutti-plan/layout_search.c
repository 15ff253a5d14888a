/* Lists candidates, then takes them in the order of the step that each cannot be below. */
#include "layout_search.h"

#include "tools/must.h"

#include <math.h>
#include <string.h>

enum { MICRO_BATCHES_MOST = 4096, TASKS_MOST = 1 << 17 /* stages times micro-batches */ };

static void layout_search_add(struct layout_search *s, const struct candidate *c)
{
	s->candidates = must_grow(s->candidates, s->count, &s->room, sizeof *s->candidates);
	s->candidates[s->count++] = *c;
}

/* Zero bubble would compute forward a third time, for the weights. */
static void add_with_recomputation(struct layout_search *s, struct candidate c)
{
	layout_search_add(s, &c);
	if (c.pp > 1 && c.schedule == TUTTI_ZERO_BUBBLE)
		return;
	c.recomputes = true;
	layout_search_add(s, &c);
}

/* Chunks: 1, and where a schedule has several 2 and 4. */
static void add_schedules(struct layout_search *s, const struct layout_question *q,
			  struct candidate c)
{
	static const tutti_schedule schedules[] = {TUTTI_1F1B, TUTTI_GPIPE, TUTTI_ZERO_BUBBLE,
						   TUTTI_INTERLEAVED};

	c.chunks = 1;
	if (c.pp == 1) {
		c.schedule = TUTTI_1F1B;
		add_with_recomputation(s, c);
		return;
	}
	for (int i = 0; i < 4; i++) {
		c.schedule = schedules[i];
		bool has_one = c.schedule != TUTTI_INTERLEAVED;
		bool has_several =
			c.schedule == TUTTI_INTERLEAVED || c.schedule == TUTTI_ZERO_BUBBLE;
		for (c.chunks = has_one ? 1 : 2; c.chunks <= (has_several ? 4 : 1); c.chunks *= 2)
			if (c.pp * c.chunks <= q->model.layers &&
			    (c.chunks == 1 || c.micro_batches % c.pp == 0) &&
			    c.pp * c.chunks * c.micro_batches <= TASKS_MOST)
				add_with_recomputation(s, c);
	}
}

/* All numbers of micro-batches that are equal parts of a replica's sequences. */
static void add_micro_batches(struct layout_search *s, const struct layout_question *q,
			      struct candidate c)
{
	int sequences = q->batch / c.dp;

	for (int m = 1; m <= sequences && m <= MICRO_BATCHES_MOST; m++) {
		if (sequences % m || (q->micro_batches && m != q->micro_batches))
			continue;
		c.micro_batches = m;
		add_schedules(s, q, c);
	}
}

static void add_strategies(struct layout_search *s, const struct layout_question *q,
			   struct candidate c)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_ZERO2,
						    TUTTI_FSDP};
	int replicas = candidate_replicas(&c);
	struct axis_ranks ranks = axis_ranks_of(q, replicas, c.pp * c.tp);

	for (int i = 0; i < (replicas > 1 ? 4 : 1); i++) {
		c.strategy = strategies[i];
		add_micro_batches(s, q, c);
	}
	if (ranks.nodes == 1 || ranks.nodes == replicas)
		return;
	c.strategy = TUTTI_HSDP;
	c.shard_size = replicas / ranks.nodes;
	add_micro_batches(s, q, c);
}

static void add_mesh(struct layout_search *s, const struct layout_question *q, struct candidate c)
{
	const struct gpt_sizes *m = &q->model;
	int equal = c.dp * (q->micro_batches ? q->micro_batches : 1);
	enum misfit misfit = m->heads % c.tp                      ? MISFIT_HEADS
			     : m->layers < c.pp                   ? MISFIT_LAYERS
			     : c.cp > 1 && m->length % (2 * c.cp) ? MISFIT_LENGTH
			     : m->length / c.cp % c.tp            ? MISFIT_TOKENS
			     : q->batch % equal                   ? MISFIT_BATCH
								  : MISFITS;

	if (misfit == MISFITS)
		add_strategies(s, q, c);
	else
		s->misfits[misfit]++;
}

void layout_search_open(struct layout_search *s, const struct layout_question *q)
{
	*s = (struct layout_search){0};
	for (int tp = 1; tp <= q->ranks; tp++)
		for (int pp = 1; q->ranks % tp == 0 && pp <= q->ranks / tp; pp++)
			for (int cp = 1; q->ranks / tp % pp == 0 && cp <= q->ranks / tp / pp; cp++)
				if (q->ranks / tp / pp % cp == 0)
					add_mesh(s, q,
						 (struct candidate){.dp = q->ranks / tp / pp / cp,
								    .cp = cp,
								    .pp = pp,
								    .tp = tp});
}

void layout_search_close(struct layout_search *s)
{
	free(s->candidates);
	free(s->best);
}

static int axes_of(const struct candidate *c)
{
	return (c->dp > 1) + (c->cp > 1) + (c->pp > 1) + (c->tp > 1);
}

static int layout_search_compare(double a, double b)
{
	return (a > b) - (a < b);
}

/* Rounded, so that what differs by the order of sums is equal, and the order stays one. */
static double layout_search_rounded(double seconds)
{
	return round(seconds * 1e9);
}

int layout_compare(const struct found_layout *a, const struct found_layout *b)
{
	int order = layout_search_compare(layout_search_rounded(a->step.seconds),
					  layout_search_rounded(b->step.seconds));

	order = order ? order : axes_of(&a->candidate) - axes_of(&b->candidate);
	return order ? order : layout_search_compare(held_sum(&a->held), held_sum(&b->held));
}

struct found_layout layout_find(const struct layout_question *q, const struct candidate *c,
				struct trainer_book *book)
{
	struct found_layout f = {.candidate = *c, .held = candidate_memory(q, c, book)};
	struct schedule_buffers buffers = candidate_buffers(c);
	struct step_time time = step_time_open(q, c);

	f.held.messages = pipeline_bytes(q, c, &buffers);
	f.step = step_time_run(&time, q, c);
	step_time_close(&time);
	return f;
}

/* A candidate and the step that it cannot be below. */
struct ordered {
	double least;
	size_t index;
};

static int by_least(const void *a, const void *b)
{
	const struct ordered *x = a, *y = b;
	int order = layout_search_compare(x->least, y->least);

	return order ? order : (x->index > y->index) - (x->index < y->index);
}

static struct ordered *order_all(const struct layout_search *s, const struct layout_question *q)
{
	struct ordered *all = must_alloc(s->count, sizeof *all);

	for (size_t i = 0; i < s->count; i++) {
		struct step_time time = step_time_open(q, &s->candidates[i]);
		all[i] = (struct ordered){time.least, i};
		step_time_close(&time);
	}
	qsort(all, s->count, sizeof *all, by_least);
	return all;
}

/* Equal ones stay in the order of the list. */
static void layout_search_keep(struct layout_search *s, const struct found_layout *f,
			       size_t *indexes, size_t index)
{
	int at = s->found;

	for (; at > 0; at--) {
		int order = layout_compare(f, &s->best[at - 1]);
		if (order > 0 || (order == 0 && index > indexes[at - 1]))
			break;
	}
	if (at == s->top)
		return;
	int last = s->found < s->top ? s->found++ : s->top - 1;
	memmove(&s->best[at + 1], &s->best[at], (size_t)(last - at) * sizeof *s->best);
	memmove(&indexes[at + 1], &indexes[at], (size_t)(last - at) * sizeof *indexes);
	s->best[at] = *f;
	indexes[at] = index;
}

/* A candidate that is too large is not timed. */
static bool layout_search_fits(struct layout_search *s, const struct layout_question *q,
			       struct found_layout *f, struct trainer_book *book)
{
	struct schedule_buffers buffers;

	f->held = candidate_memory(q, &f->candidate, book);
	double sum = held_sum(&f->held), least = held_sum(&s->least.held);
	if (q->memory > 0 && sum > q->memory && (s->found > 0 || (least > 0 && sum >= least)))
		return false;
	buffers = candidate_buffers(&f->candidate);
	f->held.messages = pipeline_bytes(q, &f->candidate, &buffers);
	sum = held_sum(&f->held);
	if (least == 0 || sum < least)
		s->least = *f;
	return q->memory <= 0 || sum <= q->memory;
}

void layout_search_run(struct layout_search *s, const struct layout_question *q, int top)
{
	struct ordered *all = order_all(s, q);
	size_t *indexes = must_alloc((size_t)top, sizeof *indexes);
	struct trainer_book book = {0};

	s->top = top;
	s->best = must_alloc((size_t)top, sizeof *s->best);
	for (size_t i = 0; i < s->count; i++) {
		struct found_layout f = {.candidate = s->candidates[all[i].index]};
		if (s->found == top && layout_search_rounded(all[i].least) >
					       layout_search_rounded(s->best[top - 1].step.seconds))
			break;
		if (!layout_search_fits(s, q, &f, &book))
			continue;
		f = layout_find(q, &f.candidate, &book);
		s->simulated++;
		layout_search_keep(s, &f, indexes, all[i].index);
	}
	trainer_book_close(&book);
	free(indexes);
	free(all);
}
