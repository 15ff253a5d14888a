/* Stages and steps in time: computing by its operations, communication by layout_links.h, the order
 * of a pipeline by virtual_step.h. */
#include "layout_times.h"

#include "layout_memory.h"
#include "layout_tail.h"

#include "core/memory/dtype.h"
#include "train/pipeline/schedule/virtual_step.h"
#include "tools/must.h"

#include <math.h>

/* All that the stages of a candidate have in common. */
struct stage_costs {
	const struct layout_question *q;
	const struct candidate *c;
	struct mesh_links links;
	double tokens, second;        /* second: of an operation, where "tp" divides them */
	struct spent gather, scatter; /* of "tp": a branch begins, or ends; backward the reverse */
	struct spent keys, more;      /* of "cp": forward and backward of a layer's attention */
};

/* The rest that computing of so many seconds does not hide. */
static struct spent layout_times_exposed(const struct layout_question *q, struct spent spent,
					 double compute)
{
	if (!cores_are_taken(q))
		spent.seconds = fmax(0, spent.seconds - compute);
	return spent;
}

/* Keys and values of all ranks, block by block; backward gets them again and sends gradients. */
static void cost_attention(struct stage_costs *s)
{
	double attention = s->tokens * gpt_attention_work(&s->q->model) * s->second;
	double bytes =
		2 * s->tokens * s->q->model.channels / s->c->tp * (double)dtype_bytes(s->q->dtype);
	struct spent gather = collective_spent(s->q, &s->links.cp, COLL_ALL_GATHER, bytes);
	struct spent both = gather;

	spend(&both, collective_spent(s->q, &s->links.cp, COLL_REDUCE_SCATTER, bytes), 1);
	s->keys = layout_times_exposed(s->q, gather, attention);
	s->more = layout_times_exposed(s->q, both, 2 * attention);
}

static struct stage_costs stage_costs_of(const struct layout_question *q, const struct candidate *c)
{
	struct stage_costs s = {.q = q,
				.c = c,
				.links = mesh_links_of(q, c),
				.tokens = candidate_tokens(q, c),
				.second = 1 / (q->rate * c->tp)};

	s.gather = collective_spent(q, &s.links.tp, COLL_ALL_GATHER, message_bytes(q, c));
	s.scatter = collective_spent(q, &s.links.tp, COLL_REDUCE_SCATTER, message_bytes(q, c));
	cost_attention(&s);
	return s;
}

/* Of a stage with so many layers; forward and backward. */
struct stage_tensor {
	struct spent forward, backward;
};

/* As docs/gpt.md counts them. */
static struct stage_tensor tensor_spent(const struct stage_costs *s, int layers, bool has_tokens,
					bool has_head)
{
	struct stage_tensor t = {{0, 0}, {0, 0}};
	bool again = s->c->recomputes;
	bool splits = s->c->pp > 1 && s->c->schedule == TUTTI_ZERO_BUBBLE;

	spend(&t.forward, s->gather, 2 * layers + has_head);
	spend(&t.forward, s->scatter, 2 * layers + has_tokens);
	spend(&t.forward, s->keys, layers);
	spend(&t.backward, s->gather,
	      (4 + 2 * again + 2 * splits) * layers + has_head + has_tokens);
	spend(&t.backward, s->scatter, (2 + again) * layers + has_head);
	spend(&t.backward, s->keys, again * layers);
	spend(&t.backward, s->more, layers);
	/* The largest logit and the sum of each token's. */
	if (has_head)
		spend(&t.forward,
		      collective_spent(s->q, &s->links.tp, COLL_ALL_REDUCE,
				       s->tokens * sizeof(float)),
		      2);
	return t;
}

/* Gathers of a stage's values while it computes for so long; the first unit's is hidden by nothing.
 */
static struct spent data_spent(const struct stage_costs *s, int layers, bool has_tokens,
			       bool has_head, double seconds)
{
	const struct gpt_sizes *m = &s->q->model;
	struct spent all = {0, 0}, layer;

	if (!strategy_gathers(s->c->strategy))
		return all;
	layer = gather_spent(s->q, &s->links, gpt_layer_elements(m, s->c->tp));
	spend(&all, layer, layers);
	if (has_tokens)
		spend(&all, gather_spent(s->q, &s->links, gpt_embedding_elements(m, s->c->tp)), 1);
	if (has_head)
		spend(&all,
		      gather_spent(s->q, &s->links,
				   gpt_tokens_elements(m, s->c->tp) + gpt_head_elements(m)),
		      1);
	if (!cores_are_taken(s->q))
		all.seconds = fmin(all.seconds, fmax(0, all.seconds - seconds) + layer.seconds);
	return all;
}

static struct stage_time stage_time_of(const struct stage_costs *s, int stage, double *cores)
{
	const struct gpt_sizes *m = &s->q->model;
	int stages = s->c->pp * s->c->chunks;
	int layers = gpt_first_layer(m, stages, stage + 1) - gpt_first_layer(m, stages, stage);
	bool has_tokens = stage == 0, has_head = stage == stages - 1;
	struct token_work layer = gpt_layer_work(m), head = gpt_head_work(m);
	double unit = s->tokens * s->second;
	double fixed = layers * s->q->overhead, again = s->c->recomputes;
	double forward = unit * (layers * layer.forward + has_head * head.forward) + fixed;
	double inputs =
		unit * (layers * (layer.inputs + again * layer.forward) + has_head * head.inputs) +
		(1 + again) * fixed;
	double weights = unit * (layers * layer.weights + has_head * head.weights) + fixed;
	struct stage_tensor t = tensor_spent(s, layers, has_tokens, has_head);
	struct spent there = data_spent(s, layers, has_tokens, has_head,
					forward + t.forward.seconds),
		     back = data_spent(s, layers, has_tokens, has_head,
				       inputs + weights + t.backward.seconds);

	*cores += forward + inputs + weights + t.forward.busy + t.backward.busy + there.busy +
		  back.busy;
	return (struct stage_time){.times = {.forward = forward + t.forward.seconds + there.seconds,
					     .inputs = inputs + t.backward.seconds + back.seconds,
					     .weights = weights},
				   .compute = forward + inputs + weights,
				   .tensor = t.forward.seconds + t.backward.seconds,
				   .data = there.seconds + back.seconds};
}

static void time_rank(struct step_time *time, const struct stage_costs *s, int rank,
		      struct spent message)
{
	const struct candidate *c = s->c;
	struct pipeline_shape shape = candidate_shape(c);
	struct rank_turn turn = {0, 0};
	double cores = 0;

	for (int stage = rank; stage < c->pp * c->chunks; stage += c->pp) {
		time->stages[stage] = stage_time_of(s, stage, &cores);
		const struct action_times *times = &time->stages[stage].times;
		turn.forward += times->forward;
		turn.backward += times->inputs + times->weights;
	}
	struct spent tail = tail_spent(s->q, c, &s->links, rank, turn);
	time->ranks[rank] =
		(struct rank_time){.busy = c->micro_batches * (turn.forward + turn.backward),
				   .tail = tail.seconds,
				   .cores = c->micro_batches * cores + tail.busy +
					    message.busy * (double)schedule_messages(&shape, rank)};
}

struct step_time step_time_open(const struct layout_question *q, const struct candidate *c)
{
	struct stage_costs costs = stage_costs_of(q, c);
	struct step_time time = {
		.stages = must_alloc((size_t)c->pp * (size_t)c->chunks, sizeof *time.stages),
		.ranks = must_alloc((size_t)c->pp, sizeof *time.ranks)};
	struct spent message = message_spent(q, &costs.links.pp, message_bytes(q, c));

	time.transfer = message.seconds;
	for (int r = 0; r < c->pp; r++) {
		time_rank(&time, &costs, r, message);
		time.least = fmax(time.least, time.ranks[r].busy + time.ranks[r].tail);
		time.shared += time.ranks[r].cores;
	}
	time.shared *=
		cores_are_shared(q) ? q->ranks / q->nodes / q->machine->links.cores / c->pp : 0;
	time.least = fmax(time.least, time.shared);
	return time;
}

void step_time_close(struct step_time *time)
{
	free(time->stages);
	free(time->ranks);
}

/* The lists of all ranks. */
struct planned_lists {
	struct action_list *of;
	struct schedule_buffers *buffers, most;
};

static struct planned_lists lists_open(const struct pipeline_shape *shape)
{
	size_t ranks = (size_t)shape->ranks;
	struct planned_lists lists = {.of = must_alloc(ranks, sizeof *lists.of),
				      .buffers = must_alloc(ranks, sizeof *lists.buffers)};

	for (int r = 0; r < shape->ranks; r++) {
		lists.of[r] = schedule_list(shape, r);
		must_have(lists.of[r].at);
		struct schedule_buffers b = schedule_buffers_of(shape, &lists.of[r], r);
		lists.buffers[r] = b;
		if (b.activations + b.gradients > lists.most.activations + lists.most.gradients)
			lists.most = b;
	}
	return lists;
}

static void lists_close(struct planned_lists *lists, int ranks)
{
	for (int r = 0; r < ranks; r++)
		free(lists->of[r].at);
	free(lists->of);
	free(lists->buffers);
}

struct schedule_buffers candidate_buffers(const struct candidate *c)
{
	struct pipeline_shape shape = candidate_shape(c);
	struct planned_lists lists;

	if (c->pp == 1)
		return (struct schedule_buffers){0};
	lists = lists_open(&shape);
	lists_close(&lists, shape.ranks);
	return lists.most;
}

/* Until the last rank has ended its step. */
static double layout_times_execute(const struct step_time *time, const struct candidate *c)
{
	struct pipeline_shape shape = candidate_shape(c);
	struct planned_lists lists = lists_open(&shape);
	size_t stages = (size_t)c->pp * (size_t)c->chunks;
	struct virtual_rank *ranks = must_alloc((size_t)c->pp, sizeof *ranks);
	struct action_times *times = must_alloc(stages, sizeof *times);
	double ends = 0;

	for (size_t i = 0; i < stages; i++) {
		times[i] = time->stages[i].times;
		times[i].transfer = time->transfer;
	}
	struct virtual_step step =
		virtual_step_by_stage(&shape, lists.of, lists.buffers, times, ranks);
	must_have(step.has_memory ? ranks : NULL);
	for (int r = 0; r < c->pp; r++)
		ends = fmax(ends, ranks[r].ends + time->ranks[r].tail);
	free(times);
	free(ranks);
	lists_close(&lists, c->pp);
	return ends;
}

struct step_found step_time_run(const struct step_time *time, const struct layout_question *q,
				const struct candidate *c)
{
	double ends = c->pp > 1 ? layout_times_execute(time, c) : time->least;
	double share = cores_are_shared(q) ? q->ranks / q->nodes / q->machine->links.cores : 1;
	struct step_found found = {.seconds = fmax(ends, time->shared)};

	for (int stage = 0; stage < c->pp * c->chunks; stage++) {
		found.compute += c->micro_batches * time->stages[stage].compute * share;
		found.tensor += c->micro_batches * time->stages[stage].tensor;
		found.data += c->micro_batches * time->stages[stage].data;
	}
	for (int r = 0; r < c->pp; r++)
		found.data += time->ranks[r].tail;
	double all = found.seconds * c->pp;
	found.compute /= all;
	found.tensor /= all;
	found.data /= all;
	found.bubble = fmax(0, 1 - found.compute - found.tensor - found.data);
	return found;
}
