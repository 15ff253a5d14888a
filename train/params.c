/* The values and gradients of parameters, as the author reads and sets them, and as all ranks have
 * them; and means. */
#include "train/base/base.h"
#include "train/precision/precision.h"
#include "train/state/trainer_state.h"
#include "train/strategies/strategies.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/parallel.h>

enum { CHUNK = 1024 };

void *tutti_param_data(tutti_trainer *trainer, int param)
{
	if (trainer_need_param(trainer, "tutti_param_data", &param) != TUTTI_OK)
		return NULL;
	if (publish_wait(trainer, trainer->layout.places[param].span) != TUTTI_OK)
		return NULL;
	void *data = param_data(trainer, param);
	if (!data)
		fail_invalid("tutti_param_data: parameter '%s' is not gathered: with sharded "
			     "parameters it is there from a begin to the end of a unit that uses "
			     "it.",
			     trainer->model.params[param].name);
	return data;
}

void *tutti_param_grad(tutti_trainer *trainer, int param)
{
	if (trainer_need_param(trainer, "tutti_param_grad", &param) != TUTTI_OK)
		return NULL;
	void *grad = param_grad(trainer, param);
	const struct param *of = &trainer->model.params[param];
	if (!grad)
		fail_invalid("tutti_param_grad: parameter '%s' %s.", of->name,
			     param_is_trained(of) ? "has no gradient now: it is there in the "
						    "backward of a unit that uses it"
						  : "is frozen and has no gradient");
	return grad;
}

static size_t params_larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Sets elements [first, first + count) of those on this rank, in all places. */
static void params_set_values(tutti_trainer *trainer, int param, size_t first, size_t count,
			      const float *values)
{
	const struct piece *piece = piece_of(trainer, param);
	tutti_dtype dtype = trainer->config.param_dtype;
	void *data =
		bucket_of(trainer, param)->span->is_sharded ? NULL : param_data(trainer, param);

	if (data)
		values_write(bucket_of(trainer, param)->home, element_at(data, dtype, first), dtype,
			     values, count);
	if (!piece)
		return;
	size_t begin = params_larger(first, piece->first),
	       end = smaller(first + count, piece->first + piece->count);
	if (begin < end)
		piece_write(trainer, piece, begin - piece->first, end - begin,
			    values + (begin - first));
}

/* After this call no copy has the old values. *param as trainer_find_param sets it. */
static tutti_status params_prepare_to_set(tutti_trainer *trainer, const char *function, int *param)
{
	TRY(trainer_find_param(trainer, function, param));
	TRY(trainer_check_no_unit(trainer, function));
	return params_begin_write(trainer);
}

tutti_status tutti_param_init_normal(tutti_trainer *trainer, int param, float mean, float std)
{
	float values[CHUNK];

	TRY(params_prepare_to_set(trainer, "tutti_param_init_normal", &param));
	if (param < 0)
		return TUTTI_OK;
	const struct param *of = &trainer->model.params[param];
	for (size_t first = 0, count, run; first < of->count; first += count) {
		size_t place = param_place_in_whole(of, first, &run);
		count = smaller(smaller(CHUNK, run), of->count - first);
		for (size_t i = 0; i < count; i++) {
			double normal =
				random_normal(trainer->config.seed, of->part.index, place + i);
			values[i] = (float)((double)mean + (double)std * normal);
		}
		params_set_values(trainer, param, first, count, values);
	}
	return TUTTI_OK;
}

tutti_status tutti_param_init_constant(tutti_trainer *trainer, int param, float value)
{
	float values[CHUNK];

	TRY(params_prepare_to_set(trainer, "tutti_param_init_constant", &param));
	if (param < 0)
		return TUTTI_OK;
	for (size_t i = 0; i < CHUNK; i++)
		values[i] = value;
	size_t whole = trainer->model.params[param].count;
	for (size_t first = 0; first < whole; first += CHUNK)
		params_set_values(trainer, param, first, smaller(CHUNK, whole - first), values);
	return TUTTI_OK;
}

/* A flat range of a parameter of the caller's model. */
struct asked {
	const char *function;
	int param;
	size_t first, count;
};

static tutti_status params_check_range(const tutti_trainer *trainer, struct asked asked,
				       const void *values)
{
	int param = asked.param;

	TRY(trainer_find_param(trainer, asked.function, &param));
	const struct param *of = &trainer_whole(trainer)->params[asked.param];
	if (asked.first > of->part.whole || asked.count > of->part.whole - asked.first)
		return fail_invalid(
			"%s: elements %zu to %zu are outside of parameter '%s', which has %zu.",
			asked.function, asked.first, asked.first + asked.count, of->name,
			of->part.whole);
	if (!values && asked.count)
		return fail_invalid("%s: the values of parameter '%s' are at NULL.", asked.function,
				    of->name);
	return TUTTI_OK;
}

/* Calls act for each stretch of elements of the range that follow each other on this rank, from
 * element i of those on it; values: of the stretch. */
static void params_for_own(tutti_trainer *trainer, int param, const struct asked *range,
			   float *values,
			   void (*act)(tutti_trainer *trainer, int param, size_t i, size_t count,
				       float *values))
{
	const struct param *of = &trainer->model.params[param];
	size_t last = range->first + range->count;

	for (size_t i = 0, run; i < of->count; i += run) {
		size_t place = param_place_in_whole(of, i, &run);
		run = smaller(run, of->count - i);
		size_t begin = params_larger(place, range->first), end = smaller(place + run, last);
		if (begin < end)
			act(trainer, param, i + (begin - place), end - begin,
			    values + (begin - range->first));
	}
}

/* Of several ranks with the same elements, one. */
static void params_read_own(tutti_trainer *trainer, int param, size_t i, size_t count,
			    float *values)
{
	const struct piece *piece = piece_of(trainer, param);
	size_t begin = params_larger(i, piece->first),
	       end = smaller(i + count, piece->first + piece->count);

	if (begin < end)
		piece_read(trainer, piece, begin - piece->first, end - begin, values + (begin - i));
}

/* The lowest rank with a piece of counted elements gives it to all. */
static tutti_status params_read_from_all(tutti_trainer *trainer, const struct asked *asked,
					 float *values)
{
	int param = asked->param;
	memset(values, 0, asked->count * sizeof *values);
	TRY(trainer_find_param(trainer, asked->function, &param));
	bool is_first = trainer->rank / trainer->layout.shard_size == 0;
	if (param >= 0 && trainer->model.params[param].part.is_counted && is_first &&
	    (bucket_of(trainer, param)->span->is_split || trainer->rank == 0) &&
	    piece_of(trainer, param))
		params_for_own(trainer, param, asked, values, params_read_own);
	return job_combine(trainer, values, asked->count);
}

tutti_status tutti_param_read(tutti_trainer *trainer, int param, size_t first, size_t count,
			      float *values)
{
	const struct asked asked = {"tutti_param_read", param, first, count};

	TRY(params_check_range(trainer, asked, values));
	if (count == 0)
		return TUTTI_OK;
	if (trainer->mesh || bucket_of(trainer, param)->span->is_split)
		return params_read_from_all(trainer, &asked, values);
	piece_read(trainer, piece_of(trainer, param), first, count, values);
	return TUTTI_OK;
}

/* MISMATCH on all ranks: one of them passes something else than rank 0. */
static tutti_status params_compare_values(tutti_trainer *trainer, struct asked asked,
					  const float *values)
{
	const uint64_t range[3] = {(uint64_t)asked.param, asked.first, asked.count};
	uint64_t *hashes = calloc((size_t)trainer->job.size, sizeof *hashes);
	int other = 1;

	TRY(job_agree(trainer, hashes ? TUTTI_OK : fail_no_memory("a trainer's tables")));
	hashes[trainer->job.rank] =
		random_mix(random_hash(range, sizeof range) ^
			   (asked.count ? random_hash(values, asked.count * sizeof *values) : 0));
	tutti_status status = job_all_gather(trainer, hashes, sizeof *hashes);
	while (other < trainer->job.size && hashes[other] == hashes[0])
		other++;
	free(hashes);
	TRY(status);
	if (other == trainer->job.size)
		return TUTTI_OK;
	return fail(TUTTI_ERR_MISMATCH,
		    "tutti_param_write: rank %d passes other values, or another range, than "
		    "rank 0, so no rank sets any: pass the same on all ranks. Here it is "
		    "elements %zu to %zu of parameter '%s'.",
		    other, asked.first, asked.first + asked.count,
		    trainer_whole(trainer)->params[asked.param].name);
}

static void params_write_own(tutti_trainer *trainer, int param, size_t i, size_t count,
			     float *values)
{
	params_set_values(trainer, param, i, count, values);
}

tutti_status tutti_param_write(tutti_trainer *trainer, int param, size_t first, size_t count,
			       const float *values)
{
	const struct asked asked = {"tutti_param_write", param, first, count};

	TRY(trainer_check(trainer, "tutti_param_write"));
	TRY(job_agree(trainer, params_check_range(trainer, asked, values)));
	TRY(params_compare_values(trainer, asked, values));
	TRY(params_prepare_to_set(trainer, "tutti_param_write", &param));
	if (count && param >= 0)
		params_for_own(trainer, param, &asked, (float *)values, params_write_own);
	return TUTTI_OK;
}

tutti_status tutti_param_piece(const tutti_trainer *trainer, int param, int64_t *first,
			       int64_t *count)
{
	TRY(trainer_find_param(trainer, "tutti_param_piece", &param));
	if (!first || !count)
		return fail_invalid("tutti_param_piece needs first and count, not NULL.");
	*first = *count = 0;
	if (param < 0)
		return TUTTI_OK;
	const struct param *of = &trainer->model.params[param];
	int64_t size = of->ndim > 0 ? of->shape[of->split_dim] : 1;
	int parts = of->part.order.parts > 1 ? of->part.order.parts : 1;
	*first = split_first(size, parts, of->part.piece);
	*count = split_count(size, parts, of->part.piece);
	return TUTTI_OK;
}

tutti_status tutti_param_shard(tutti_trainer *trainer, int param, tutti_shard *shard)
{
	TRY(trainer_find_param(trainer, "tutti_param_shard", &param));
	if (!shard)
		return fail_invalid("tutti_param_shard needs a shard, not NULL.");
	const struct piece *piece = param < 0 ? NULL : piece_of(trainer, param);
	tutti_dtype dtype = trainer->config.grad_dtype;
	*shard = (tutti_shard){0};
	if (!piece)
		return TUTTI_OK;
	char *grad = param_grad(trainer, param);
	*shard = (tutti_shard){.first = piece->first,
			       .count = piece->count,
			       .values = piece->value,
			       .grad = piece->sum,
			       .grad_dtype = piece->sum_dtype};
	bool stays = bucket_of(trainer, param)->span->keeps_grad;
	if (grad && stays && dtype == TUTTI_F32) { /* at least as precise as the sum */
		shard->grad = grad + piece->first * sizeof(float);
		shard->grad_dtype = dtype;
	}
	return TUTTI_OK;
}

tutti_status tutti_params_updated(tutti_trainer *trainer)
{
	TRY(trainer_check(trainer, "tutti_params_updated"));
	TRY(trainer_check_no_unit(trainer, "tutti_params_updated"));
	shadow_expire(trainer);
	pieces_narrow(trainer);
	bool owed = trainer->owes_update;
	TRY(params_publish(trainer));
	return owed ? step_run_scheduled(trainer) : TUTTI_OK;
}

/* ---- replicas: compares the parameters of all ranks, bit by bit ---- */

/* A rank's elements of a parameter. */
struct held {
	uint64_t hash;
	uint64_t elements; /* which of them: ranks with the same have the same number, 0 has none */
};

/* Among ranks with the same elements: the first whose hash is not the most common one, or -1. The
 * entries of one parameter are stride apart. */
static int params_odd_rank_of(const struct held *held, int first, int size, int stride)
{
	uint64_t elements = held[first * stride].elements;
	int best = first, best_votes = 0;

	for (int r = first; r < size; r++) {
		int votes = 0;
		for (int s = first; s < size; s++)
			votes += held[s * stride].elements == elements &&
				 held[s * stride].hash == held[r * stride].hash;
		if (held[r * stride].elements == elements && votes > best_votes) {
			best = r;
			best_votes = votes;
		}
	}
	for (int r = first; r < size; r++)
		if (held[r * stride].elements == elements &&
		    held[r * stride].hash != held[best * stride].hash)
			return r;
	return -1;
}

static int params_odd_rank(const struct held *held, int size, int stride)
{
	for (int r = 0; r < size; r++) {
		bool is_first = held[r * stride].elements > 0;
		for (int s = 0; s < r; s++)
			is_first &= held[s * stride].elements != held[r * stride].elements;
		int odd = is_first ? params_odd_rank_of(held, r, size, stride) : -1;
		if (odd >= 0)
			return odd;
	}
	return -1;
}

/* Hashes whole values if every rank of comm has them, otherwise this rank's part. */
static void params_hash_params(const tutti_trainer *trainer, struct held *held)
{
	size_t width = dtype_bytes(trainer->config.param_dtype);

	for (int p = 0; p < trainer->model.param_count; p++) {
		const struct bucket *bucket = bucket_of(trainer, p);
		const struct param *param = &trainer->model.params[p];
		bool is_sharded = bucket->span->is_sharded;
		int shards = trainer->layout.shard_size;
		held[param->part.index] =
			(struct held){is_sharded ? 0
						 : values_hash(bucket->home, param_data(trainer, p),
							       param->count * width),
				      1 + (uint64_t)(param->part.piece * shards +
						     (is_sharded ? trainer->shard_rank : 0))};
	}
	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		const struct bucket *bucket = bucket_of(trainer, piece->param);
		if (bucket->span->is_sharded ||
		    (piece->low && piece->value && !bucket->span->is_split))
			held[trainer->model.params[piece->param].part.index].hash ^=
				piece_hash(trainer, piece);
	}
}

static tutti_status params_compare_replicas(tutti_trainer *trainer, struct held *held)
{
	const struct tutti_model *whole = trainer_whole(trainer);
	int count = whole->param_count;

	params_hash_params(trainer, held + (size_t)trainer->job.rank * (size_t)count);
	TRY(job_all_gather(trainer, held, (size_t)count * sizeof *held));
	for (int p = 0; p < count; p++) {
		int rank = params_odd_rank(held + p, trainer->job.size, count);
		if (rank >= 0)
			return fail(TUTTI_ERR_MISMATCH,
				    "The replicas differ after %llu steps: rank %d has other "
				    "values of parameter '%s' than most ranks have.",
				    (unsigned long long)trainer->steps, rank,
				    whole->params[p].name);
	}
	return TUTTI_OK;
}

tutti_status tutti_check_replicas(tutti_trainer *trainer)
{
	TRY(trainer_check(trainer, "tutti_check_replicas"));
	/* Between averages ranks may differ. */
	TRY(trainer_check_averaged(trainer, "tutti_check_replicas"));
	TRY(publish_wait_all(trainer));
	size_t count = (size_t)trainer->job.size * (size_t)trainer_whole(trainer)->param_count;
	struct held *held = calloc(count + 1, sizeof *held);
	tutti_status status = held ? TUTTI_OK : fail_no_memory("%zu hashes", count);
	status = job_agree(trainer, status);
	if (status == TUTTI_OK)
		status = params_compare_replicas(trainer, held);
	free(held);
	return status;
}

/* ---- tutti_means: weighted means over ranks ---- */

enum { MEANS_AT_ONCE = 256 };

static tutti_status params_means_of_some(tutti_trainer *trainer, const double *sums,
					 const double *items, double *means, size_t n)
{
	double both[2 * MEANS_AT_ONCE];

	memcpy(both, sums, n * sizeof *both);
	memcpy(both + n, items, n * sizeof *both);
	TRY(job_all_reduce(trainer, both, 2 * n, TUTTI_SUM));
	for (size_t i = 0; i < n; i++)
		means[i] = both[i] / both[n + i];
	return TUTTI_OK;
}

tutti_status tutti_means(tutti_trainer *trainer, const double *sums, const double *items,
			 double *means, int n)
{
	TRY(trainer_check(trainer, "tutti_means"));
	if (n < 0 || (n > 0 && (!sums || !items || !means)))
		return fail_invalid("tutti_means needs sums, items and means for %d values.", n);
	for (int i = 0; i < n; i += MEANS_AT_ONCE) {
		int some = n - i < MEANS_AT_ONCE ? n - i : MEANS_AT_ONCE;
		TRY(params_means_of_some(trainer, sums + i, items + i, means + i, (size_t)some));
	}
	return TUTTI_OK;
}
