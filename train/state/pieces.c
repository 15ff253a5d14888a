/* The pieces of a trainer. They are made once, when buckets are placed. */
#include "train/state/trainer_state.h"

#include "train/base/base.h"

#include <stdlib.h>
#include <string.h>

static size_t replica_cut(size_t count, int sharer, int sharers)
{
	return count * (size_t)sharer / (size_t)sharers;
}

/* Ranks that hold the same elements save one part of them each. */
static void share_saving(const tutti_trainer *trainer, const struct bucket *bucket,
			 struct piece *piece)
{
	bool is_split = bucket->span->is_split;
	int sharers = is_split ? trainer->replica_count : trainer->size;
	int sharer = is_split ? trainer->rank / trainer->layout.shard_size : trainer->rank;

	piece->save_first = replica_cut(piece->count, sharer, sharers);
	piece->save_count = replica_cut(piece->count, sharer + 1, sharers) - piece->save_first;
}

static void pieces_add_piece(tutti_trainer *trainer, const struct bucket *bucket, int p)
{
	const struct param_place *place = &trainer->layout.places[p];
	const struct param *param = &trainer->model.params[p];
	struct element_range own = param_part(&trainer->layout, &trainer->model, p, bucket->part);
	size_t width = dtype_bytes(trainer->config.param_dtype), count = own.last - own.first;

	if (count == 0)
		return;
	struct piece *piece = &trainer->pieces[trainer->piece_count++];
	*piece = (struct piece){.param = p,
				.home = bucket->home,
				.first = own.first,
				.count = count,
				.sum_dtype = bucket->sum_dtype};
	size_t element = place->offset + own.first;
	char *values = param->is_extern ? (char *)param->data + own.first * width
		       : bucket->shard  ? bucket->shard + (element - bucket->part.first) * width
					: bucket->data + element * width;
	piece->is_offloaded = bucket->span->is_trained && trainer_offloads(trainer);
	if (width == sizeof(float) && !piece->is_offloaded)
		piece->value = (float *)(void *)values;
	else
		piece->low = values;
	size_t sum_width = dtype_bytes(bucket->sum_dtype);
	if (bucket->span->is_trained && bucket->sum)
		piece->sum = bucket->sum + (element - bucket->part.first) * sum_width;
	else if (bucket->span->is_trained)
		piece->sum = param->is_extern ? (char *)param->grad + own.first * sum_width
					      : bucket->grad + element * sum_width;
	share_saving(trainer, bucket, piece);
}

enum { STATE_UNIT = 16 };

/* On a device elements move by four. */
static void place_state(const tutti_trainer *trainer, struct piece *piece)
{
	size_t unit = trainer->config.on_device ? STATE_UNIT : 1;
	struct home *home = state_home(trainer, piece);

	piece->state_first = home->state_count;
	home->state_count += piece->sum ? (piece->count + unit - 1) / unit * unit : 0;
}

tutti_status pieces_make(tutti_trainer *trainer)
{
	trainer->pieces = calloc((size_t)trainer->model.param_count + 1, sizeof *trainer->pieces);
	if (!trainer->pieces)
		return fail_no_memory("a trainer's tables");
	for (int b = 0; b < trainer->layout.span_count; b++) {
		struct bucket *bucket = &trainer->buckets[b];
		bucket->first_piece = trainer->piece_count;
		for (int i = 0; i < bucket->span->param_count; i++)
			pieces_add_piece(trainer, bucket, bucket->span->params[i]);
		bucket->piece_count = trainer->piece_count - bucket->first_piece;
	}
	for (int i = 0; i < trainer->piece_count; i++)
		place_state(trainer, &trainer->pieces[i]);
	for (int i = 0; i < trainer->piece_count; i++)
		if (trainer->pieces[i].low && trainer->pieces[i].sum)
			TRY(state_make(trainer, &trainer->pieces[i], STATE_MASTER));
	return TUTTI_OK;
}

void pieces_free(tutti_trainer *trainer)
{
	state_free(trainer);
	free(trainer->pieces);
	trainer->pieces = NULL;
	trainer->piece_count = 0;
}

void piece_read(const tutti_trainer *trainer, const struct piece *piece, size_t first, size_t count,
		float *values)
{
	tutti_dtype dtype = trainer->config.param_dtype;

	if (piece->is_offloaded)
		memcpy(values, piece->value + first, count * sizeof *values);
	else if (piece->value)
		values_read(piece->home, values, piece->value + first, TUTTI_F32, count);
	else
		values_read(piece->home, values, element_at(piece->low, dtype, first), dtype,
			    count);
	state_let_go(trainer, piece, first, count);
}

void piece_set(const struct piece *piece, float *values, size_t count, const float *to)
{
	if (piece->is_offloaded)
		memcpy(values, to, count * sizeof *values);
	else
		values_write(piece->home, values, TUTTI_F32, to, count);
}

void piece_write(tutti_trainer *trainer, const struct piece *piece, size_t first, size_t count,
		 const float *values)
{
	tutti_dtype dtype = trainer->config.param_dtype;

	if (piece->value)
		piece_set(piece, piece->value + first, count, values);
	if (piece->low)
		values_write(piece->home, element_at(piece->low, dtype, first), dtype, values,
			     count);
	state_let_go(trainer, piece, first, count);
}

enum { STRIDE = 1 << 14 };

/* On a device at once. */
static size_t pieces_stride_of(const tutti_trainer *trainer, const struct piece *piece,
			       size_t first)
{
	bool is_at_once = trainer->config.on_device && !piece->is_offloaded;

	return is_at_once ? piece->count : smaller(STRIDE, piece->count - first);
}

static void convert_piece(const tutti_trainer *trainer, const struct piece *piece, bool is_widened)
{
	tutti_dtype dtype = trainer->config.param_dtype;

	for (size_t first = 0, n; first < piece->count; first += n) {
		float *value = piece->value + first;
		void *low = element_at(piece->low, dtype, first);
		n = pieces_stride_of(trainer, piece, first);
		if (piece->is_offloaded && is_widened)
			values_read(piece->home, value, low, dtype, n);
		else if (piece->is_offloaded)
			values_write(piece->home, low, dtype, value, n);
		else if (is_widened)
			values_convert(piece->home, value, TUTTI_F32, low, dtype, n);
		else
			values_convert(piece->home, low, dtype, value, TUTTI_F32, n);
		state_let_go(trainer, piece, first, n);
	}
}

void piece_narrow(const tutti_trainer *trainer, const struct piece *piece)
{
	if (piece->low && piece->value)
		convert_piece(trainer, piece, false);
}

/* Converts all pieces that have a master copy. */
static void convert_pieces(const tutti_trainer *trainer, bool is_widened)
{
	for (int i = 0; i < trainer->piece_count; i++)
		if (trainer->pieces[i].low && trainer->pieces[i].value)
			convert_piece(trainer, &trainer->pieces[i], is_widened);
}

void pieces_widen(const tutti_trainer *trainer)
{
	convert_pieces(trainer, true);
}

void pieces_narrow(const tutti_trainer *trainer)
{
	convert_pieces(trainer, false);
}

uint64_t piece_hash(const tutti_trainer *trainer, const struct piece *piece)
{
	tutti_dtype dtype = piece->value ? TUTTI_F32 : trainer->config.param_dtype;
	char *values = piece->value ? (char *)piece->value : piece->low;
	uint64_t hash = 0;

	for (size_t first = 0, n; first < piece->count; first += n) {
		n = pieces_stride_of(trainer, piece, first);
		const void *at = element_at(values, dtype, first);
		size_t bytes = n * dtype_bytes(dtype);
		hash = random_mix(hash ^
				  (piece->is_offloaded ? random_hash(at, bytes)
						       : values_hash(piece->home, at, bytes)));
		state_let_go(trainer, piece, first, n);
	}
	return hash;
}

struct piece *piece_of(const tutti_trainer *trainer, int param)
{
	const struct bucket *bucket = bucket_of(trainer, param);

	for (int i = 0; i < bucket->piece_count; i++)
		if (trainer->pieces[bucket->first_piece + i].param == param)
			return &trainer->pieces[bucket->first_piece + i];
	return NULL;
}
