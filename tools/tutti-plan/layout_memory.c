/* Memory of a candidate: the trainer's by the library's own estimate, the rest by formulas. */
#include "layout_memory.h"

#include "core/memory/dtype.h"
#include "tools/must.h"

#include <math.h>
#include <string.h>

/* All that the estimate depends on. */
struct trainer_key {
	int replicas, tp, pp, chunks, strategy, shard_size;
};
struct trainer_entry {
	struct trainer_key key;
	double bytes;
};

static double layout_memory_estimate(const struct layout_question *q, const struct trainer_key *key)
{
	const tutti_axis axes[] = {{"dp", key->replicas}, {"pp", key->pp}, {"tp", key->tp}};
	const tutti_train_config config = {.strategy = (tutti_strategy)key->strategy,
					   .param_dtype = q->dtype,
					   .shard_size = key->shard_size};
	tutti_model *model = gpt_describe(&q->model, key->pp * key->chunks);
	tutti_train_stats stats;
	tutti_status status = tutti_memory_estimate_on(model, axes, 3, &config, &stats);

	tutti_model_destroy(model);
	must_have(status == TUTTI_OK ? &stats : NULL);
	return (double)stats.param_bytes + (double)stats.grad_bytes +
	       (double)stats.optimizer_bytes + (double)stats.gathered_peak_bytes;
}

static double trainer_bytes(const struct layout_question *q, const struct candidate *c,
			    struct trainer_book *book)
{
	const struct trainer_key key = {candidate_replicas(c), c->tp,        c->pp, c->chunks,
					(int)c->strategy,      c->shard_size};

	for (size_t i = 0; i < book->count; i++)
		if (memcmp(&book->entries[i].key, &key, sizeof key) == 0)
			return book->entries[i].bytes;
	book->entries = must_grow(book->entries, book->count, &book->room, sizeof *book->entries);
	book->entries[book->count] = (struct trainer_entry){key, layout_memory_estimate(q, &key)};
	return book->entries[book->count++].bytes;
}

void trainer_book_close(struct trainer_book *book)
{
	free(book->entries);
}

/* The bytes that a layer leaves for its backward, as in examples/gpt (activations.c): input, two
 * norms and the middle of the residual stream; queries, keys, values, what attention mixed, and
 * twice the wide part; means and deviations. Ring attention keeps a sum for each query, not
 * weights. Zero bubble keeps gradients, too: of both norms, of the stream twice, of queries, keys,
 * values and of the wide part. */
static double layer_bytes(const struct layout_question *q, const struct candidate *c)
{
	double n = candidate_tokens(q, c), width = (double)dtype_bytes(q->dtype);
	double channels = (double)q->model.channels / c->tp;
	double heads = (double)q->model.heads / c->tp;
	double weights = !q->has_weights ? 0 : heads * (c->cp > 1 ? 1 : q->model.length);
	bool splits = c->pp > 1 && c->schedule == TUTTI_ZERO_BUBBLE;

	return n * (width * ((splits ? 27 : 16) * channels + weights) +
		    (double)(4 * sizeof(float)) / c->tp);
}

static double input_bytes(const struct layout_question *q, const struct candidate *c)
{
	return message_bytes(q, c);
}

/* The last stream, its norm, and logits, which are f32. */
static double head_bytes(const struct layout_question *q, const struct candidate *c)
{
	return 2 * input_bytes(q, c) +
	       candidate_tokens(q, c) * sizeof(float) * ceil((double)q->model.vocab / c->tp);
}

/* Gradients of the stream, of a branch and of its wide part; and a layer that is computed again. */
static double work_bytes(const struct layout_question *q, const struct candidate *c)
{
	double n = candidate_tokens(q, c), width = (double)dtype_bytes(q->dtype);
	double wide = 4.0 * q->model.channels / c->tp;

	return 2 * input_bytes(q, c) + n * width * wide + (c->recomputes ? layer_bytes(q, c) : 0);
}

/* How many micro-batches of the last stage are held: its backward follows at once. */
static int heads_held(const struct candidate *c)
{
	if (c->pp == 1)
		return 1;
	if (c->schedule == TUTTI_GPIPE)
		return c->micro_batches;
	if (c->schedule == TUTTI_ZERO_BUBBLE)
		return c->micro_batches < c->pp ? c->micro_batches : c->pp;
	return 1;
}

static double rank_activations(const struct layout_question *q, const struct candidate *c, int rank)
{
	struct pipeline_shape shape = candidate_shape(c);
	int stages = c->pp * c->chunks, most = 0;
	int held = c->pp == 1 ? 1 : schedule_peak(&shape, rank);
	double layer = c->recomputes ? input_bytes(q, c) : layer_bytes(q, c);

	for (int stage = rank; stage < stages; stage += c->pp) {
		int layers = gpt_first_layer(&q->model, stages, stage + 1) -
			     gpt_first_layer(&q->model, stages, stage);
		most = layers > most ? layers : most;
	}
	return held * most * layer + work_bytes(q, c) +
	       (rank == c->pp - 1 ? heads_held(c) * head_bytes(q, c) : 0);
}

struct held_bytes candidate_memory(const struct layout_question *q, const struct candidate *c,
				   struct trainer_book *book)
{
	struct held_bytes held = {.trainer = trainer_bytes(q, c, book)};

	for (int r = 0; r < c->pp; r++)
		held.activations = fmax(held.activations, rank_activations(q, c, r));
	return held;
}

double message_bytes(const struct layout_question *q, const struct candidate *c)
{
	return candidate_tokens(q, c) * (double)dtype_bytes(q->dtype) * q->model.channels / c->tp;
}

double pipeline_bytes(const struct layout_question *q, const struct candidate *c,
		      const struct schedule_buffers *buffers)
{
	return message_bytes(q, c) *
	       (buffers->activations + buffers->gradients + 2 * buffers->sends);
}
