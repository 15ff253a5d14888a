/* The end of a step. Buckets are those of the trainer: units in reverse, the first of 1 MiB and the
 * others of 25 MiB, or one a unit where values are sharded. */
#include "layout_tail.h"

#include "core/memory/dtype.h"
#include "tools/must.h"

#include <math.h>

#define BUCKET_FIRST 0x1p20
#define BUCKET_MORE  (25 * 0x1p20)
/* AdamW reads four arrays of f32 and writes three; a sum, which gamma is of, reads two and writes
 * one for each byte. */
#define UPDATE_PASSES (4 * 7.0 / 3)

struct planned_bucket {
	double elements;
	double ready; /* seconds of computing in a backward until its last unit is over */
};

struct planned_buckets {
	struct planned_bucket *at;
	int count;
	double open, limit, now; /* elements that wait; bytes that make a bucket; seconds so far */
	bool is_by_unit;
};

bool strategy_gathers(tutti_strategy strategy)
{
	return strategy == TUTTI_FSDP || strategy == TUTTI_HSDP;
}

struct mesh_links mesh_links_of(const struct layout_question *q, const struct candidate *c)
{
	int inner = c->pp * c->tp, replicas = candidate_replicas(c);
	int shards = c->shard_size ? c->shard_size : replicas;

	return (struct mesh_links){
		.tp = axis_ranks_of(q, c->tp, 1),
		.pp = axis_ranks_of(q, c->pp, c->tp),
		.cp = axis_ranks_of(q, c->cp, inner),
		.all = axis_ranks_of(q, q->ranks, 1),
		.ends = axis_ranks_of(q, c->pp > 1 ? 2 : 1, c->tp * (c->pp - 1)),
		.shards = axis_ranks_of(q, shards, inner),
		.groups = axis_ranks_of(q, replicas / shards, inner * shards),
	};
}

static void close_bucket(struct planned_buckets *b)
{
	b->at[b->count++] = (struct planned_bucket){b->open, b->now};
	b->open = 0;
	b->limit = BUCKET_MORE;
}

/* The next unit of the rank's backward. */
static void layout_tail_add_unit(struct planned_buckets *b, double elements, double seconds)
{
	b->now += seconds;
	b->open += elements;
	if (b->is_by_unit || b->open * sizeof(float) >= b->limit)
		close_bucket(b);
}

static double backward_seconds(const struct layout_question *q, const struct candidate *c,
			       struct token_work work, bool recomputes)
{
	double all = work.inputs + work.weights + (recomputes ? work.forward : 0);

	return candidate_tokens(q, c) * all / c->tp / q->rate;
}

/* All stages of a rank, from the last one. */
static struct planned_buckets buckets_of(const struct layout_question *q, const struct candidate *c,
					 int rank)
{
	const struct gpt_sizes *m = &q->model;
	int stages = c->pp * c->chunks;
	struct planned_buckets b = {.limit = BUCKET_FIRST,
				    .is_by_unit = strategy_gathers(c->strategy)};
	double layer = backward_seconds(q, c, gpt_layer_work(m), c->recomputes);

	b.at = must_alloc((size_t)m->layers + 4, sizeof *b.at);
	for (int stage = stages - c->pp + rank; stage >= 0; stage -= c->pp) {
		if (stage == stages - 1)
			layout_tail_add_unit(
				&b,
				gpt_head_elements(m) +
					(c->pp > 1 ? gpt_tokens_elements(m, c->tp) : 0),
				backward_seconds(q, c, gpt_head_work(m), false));
		for (int l = gpt_first_layer(m, stages, stage);
		     l < gpt_first_layer(m, stages, stage + 1); l++)
			layout_tail_add_unit(&b, gpt_layer_elements(m, c->tp), layer);
		if (stage == 0)
			layout_tail_add_unit(&b, gpt_embedding_elements(m, c->tp), 0);
	}
	if (b.open > 0)
		close_bucket(&b);
	return b;
}

/* Ranks that have a part each of what is reduced. */
static double layout_tail_parts_of(const struct candidate *c, const struct mesh_links *links)
{
	return c->strategy == TUTTI_DDP ? 1 : links->shards.size;
}

static struct spent reduce_spent(const struct layout_question *q, const struct candidate *c,
				 const struct mesh_links *links, double elements)
{
	double bytes = elements * sizeof(float);
	struct spent sum;

	if (c->strategy == TUTTI_DDP)
		return collective_spent(q, &links->shards, COLL_ALL_REDUCE, bytes);
	sum = collective_spent(q, &links->shards, COLL_REDUCE_SCATTER, bytes / links->shards.size);
	spend(&sum,
	      collective_spent(q, &links->groups, COLL_ALL_REDUCE, bytes / links->shards.size), 1);
	return sum;
}

struct spent gather_spent(const struct layout_question *q, const struct mesh_links *links,
			  double elements)
{
	return collective_spent(q, &links->shards, COLL_ALL_GATHER,
				elements * (double)dtype_bytes(q->dtype) / links->shards.size);
}

/* Each bucket goes when it is ready and the one before has gone. With ZeRO-2 and FSDP each
 * micro-batch is reduced, but in a pipeline, which adds them first. */
static struct spent layout_tail_reductions(const struct layout_question *q,
					   const struct candidate *c,
					   const struct mesh_links *links,
					   const struct planned_buckets *b, struct rank_turn turn)
{
	bool is_each = c->pp == 1 && (c->strategy == TUTTI_ZERO2 || strategy_gathers(c->strategy));
	int times = is_each ? c->micro_batches : 1;
	struct spent all = {0, 0};
	double slower = turn.backward / b->now, wire = 0;

	for (int i = 0; i < b->count; i++)
		spend(&all, reduce_spent(q, c, links, b->at[i].elements), 1);
	if (cores_are_taken(q))
		return (struct spent){times * all.seconds, times * all.busy};
	wire = (times - 1) * fmax(0, all.seconds - turn.forward - turn.backward);
	for (int i = 0; i < b->count; i++)
		wire = fmax(wire, slower * b->at[i].ready) +
		       reduce_spent(q, c, links, b->at[i].elements).seconds;
	return (struct spent){fmax(0, wire - turn.backward), times * all.busy};
}

/* With ZeRO-1 and -2 a bucket is gathered while the next one is updated. */
static struct spent layout_tail_update(const struct layout_question *q, const struct candidate *c,
				       const struct mesh_links *links,
				       const struct planned_buckets *b)
{
	bool publishes = c->strategy == TUTTI_ZERO1 || c->strategy == TUTTI_ZERO2;
	struct spent gathers = {0, 0};
	double updated = 0, wire = 0;

	for (int i = 0; i < b->count; i++) {
		struct spent one = {0, 0};
		if (publishes)
			one = gather_spent(q, links, b->at[i].elements);
		updated += b->at[i].elements / layout_tail_parts_of(c, links) * UPDATE_PASSES *
			   q->machine->links.gamma;
		wire = fmax(wire, updated) + one.seconds;
		spend(&gathers, one, 1);
	}
	if (cores_are_taken(q))
		wire = updated + gathers.seconds;
	return (struct spent){wire, cores_are_shared(q) ? updated + gathers.busy : 0};
}

/* Sums over other axes than the strategy's, on the parts that ranks have then. */
static struct spent other_sums(const struct layout_question *q, const struct candidate *c,
			       const struct mesh_links *links, int rank)
{
	const struct gpt_sizes *m = &q->model;
	double bytes = sizeof(float) / layout_tail_parts_of(c, links);
	double small = 6.0 * m->channels * m->layers / c->pp; /* norms and biases */
	struct spent sum = {0, 0};

	if (rank == 0 || rank == c->pp - 1)
		spend(&sum,
		      collective_spent(q, &links->ends, COLL_ALL_REDUCE,
				       gpt_tokens_elements(m, c->tp) * bytes),
		      1);
	if (c->tp > 1)
		spend(&sum, collective_spent(q, &links->tp, COLL_ALL_REDUCE, small * bytes), 1);
	/* The norm and the agreement of the trainer; that of the pipeline and its bubble. */
	spend(&sum, collective_spent(q, &links->all, COLL_ALL_REDUCE, sizeof(double)),
	      c->pp > 1 ? 4 : 2);
	return sum;
}

struct spent tail_spent(const struct layout_question *q, const struct candidate *c,
			const struct mesh_links *links, int rank, struct rank_turn turn)
{
	struct planned_buckets buckets = buckets_of(q, c, rank);
	struct spent tail = layout_tail_reductions(q, c, links, &buckets, turn);

	spend(&tail, layout_tail_update(q, c, links, &buckets), 1);
	spend(&tail, other_sums(q, c, links, rank), 1);
	free(buckets.at);
	return tail;
}
