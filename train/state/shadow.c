/* The shadow of the left neighbour's part: its memory, and the messages that keep it current. */
#include "train/state/shadow.h"

#include "train/base/base.h"
#include "train/state/trainer_state.h"

#include <stdlib.h>

/* A group has at most 16,384 messages. */
enum { BUCKETS_AT_ONCE = 4096 };

static int shadow_right_of(const tutti_trainer *trainer)
{
	return (trainer->shard_rank + 1) % trainer->layout.shard_size;
}

static bool shadow_has_sums(const struct bucket *bucket)
{
	return bucket->span->is_split && bucket->span->is_trained;
}

static size_t shadow_sum_bytes(const tutti_trainer *trainer, int b)
{
	const struct bucket *bucket = &trainer->buckets[b];
	struct element_range part = span_part(bucket->span, trainer->shadow.owner);

	return shadow_has_sums(bucket) ? (part.last - part.first) * dtype_bytes(bucket->sum_dtype)
				       : 0;
}

static tutti_status shadow_make_sums_of(tutti_trainer *trainer, struct home *home)
{
	struct shadow *shadow = &trainer->shadow;
	size_t bytes = 0;
	void *memory;

	for (int b = 0; b < trainer->layout.span_count; b++)
		if (trainer->buckets[b].home == home)
			bytes += whole_lines(shadow_sum_bytes(trainer, b));
	TRY(values_alloc(home, &memory, bytes + 1, "the gradients of a shadow"));
	home->shadow_sums = memory;
	char *next = memory;
	for (int b = 0; b < trainer->layout.span_count; b++) {
		if (trainer->buckets[b].home != home)
			continue;
		shadow->sums[b] = shadow_sum_bytes(trainer, b) ? next : NULL;
		next += whole_lines(shadow_sum_bytes(trainer, b));
		trainer->stats.optimizer_bytes += shadow_sum_bytes(trainer, b);
	}
	return TUTTI_OK;
}

static tutti_status shadow_make_sums(tutti_trainer *trainer)
{
	struct shadow *shadow = &trainer->shadow;

	shadow->sums = calloc((size_t)trainer->layout.span_count + 1, sizeof *shadow->sums);
	if (!shadow->sums)
		return fail_no_memory("the gradients of a shadow");
	for (int h = 0; h < trainer->home_count; h++)
		TRY(shadow_make_sums_of(trainer, &trainer->homes[h]));
	return TUTTI_OK;
}

/* Values, and the master copy of trained ones of 16 bits. */
static tutti_status shadow_make_values(tutti_trainer *trainer, struct piece *piece)
{
	size_t width = dtype_bytes(trainer->config.param_dtype);

	if (width < sizeof(float) || piece->is_offloaded) {
		TRY(values_alloc(piece->home, &piece->low, piece->count * width,
				 "the values of a shadow"));
		values_zero(piece->home, piece->low, piece->count * width);
		trainer->stats.optimizer_bytes += piece->count * width;
	}
	return width < sizeof(float) && !piece->sum ? TUTTI_OK
						    : state_make(trainer, piece, STATE_MASTER);
}

static tutti_status shadow_add_piece(tutti_trainer *trainer, int b, int p)
{
	struct shadow *shadow = &trainer->shadow;
	const struct bucket *bucket = &trainer->buckets[b];
	struct element_range part = span_part(bucket->span, shadow->owner);
	struct element_range range = param_part(&trainer->layout, &trainer->model, p, part);
	size_t at = trainer->layout.places[p].offset + range.first - part.first;

	if (range.first == range.last)
		return TUTTI_OK;
	struct piece *piece = &shadow->pieces[shadow->piece_count++];
	*piece = (struct piece){.param = p,
				.home = bucket->home,
				.first = range.first,
				.count = range.last - range.first,
				.sum_dtype = bucket->sum_dtype,
				.is_shadow = true,
				.is_offloaded =
					bucket->span->is_trained && trainer_offloads(trainer)};
	if (shadow->sums[b])
		piece->sum = shadow->sums[b] + at * dtype_bytes(bucket->sum_dtype);
	return shadow_make_values(trainer, piece);
}

tutti_status shadow_make(tutti_trainer *trainer)
{
	struct shadow *shadow = &trainer->shadow;
	int ranks = trainer->layout.shard_size;

	if (!layout_has_shadow(&trainer->layout, &trainer->config))
		return TUTTI_OK;
	shadow->is_kept = true;
	shadow->owner = (trainer->shard_rank + ranks - 1) % ranks;
	TRY(shadow_make_sums(trainer));
	shadow->pieces = calloc((size_t)trainer->model.param_count + 1, sizeof *shadow->pieces);
	if (!shadow->pieces)
		return fail_no_memory("a trainer's tables");
	for (int b = 0; b < trainer->layout.span_count; b++) {
		const struct param_span *span = &trainer->layout.spans[b];
		for (int i = 0; span->is_split && i < span->param_count; i++)
			TRY(shadow_add_piece(trainer, b, span->params[i]));
	}
	return TUTTI_OK;
}

void shadow_free(tutti_trainer *trainer)
{
	struct shadow *shadow = &trainer->shadow;

	for (int i = 0; i < shadow->piece_count; i++) {
		const struct piece *piece = &shadow->pieces[i];
		float *const state[STATES] = {piece->value, piece->m, piece->v};
		values_free(piece->home, piece->low);
		for (int which = 0; which < STATES; which++)
			if (piece->is_offloaded)
				free(state[which]);
			else
				values_free(piece->home, state[which]);
	}
	free(shadow->pieces);
	free(shadow->sums);
	for (int h = 0; h < trainer->home_count; h++)
		values_free(&trainer->homes[h], trainer->homes[h].shadow_sums);
	*shadow = (struct shadow){0};
}

void shadow_expire(tutti_trainer *trainer)
{
	trainer->shadow.is_current = false;
}

struct piece *shadow_piece_of(const tutti_trainer *trainer, int param)
{
	for (int i = 0; i < trainer->shadow.piece_count; i++)
		if (trainer->shadow.pieces[i].param == param)
			return &trainer->shadow.pieces[i];
	return NULL;
}

/* The next of this rank's pieces that its right neighbour has in its shadow, from *i on, or NULL.
 */
static struct piece *shadow_next_split(const tutti_trainer *trainer, int *i)
{
	while (*i < trainer->piece_count) {
		struct piece *piece = &trainer->pieces[(*i)++];
		if (bucket_of(trainer, piece->param)->span->is_split)
			return piece;
	}
	return NULL;
}

static void shadow_send(const tutti_trainer *trainer, const void *values, size_t count,
			tutti_dtype dtype, int tag)
{
	if (values && count > 0) /* an error is that of the group's end */
		tutti_send(values, count, dtype, shadow_right_of(trainer), trainer->homes[0].reduce,
			   &(tutti_call){.tag = tag});
}

static void shadow_receive(const tutti_trainer *trainer, void *values, size_t count,
			   tutti_dtype dtype, int tag)
{
	if (values && count > 0)
		tutti_recv(values, count, dtype, trainer->shadow.owner, trainer->homes[0].reduce,
			   &(tutti_call){.tag = tag});
}

/* Makes the state that the owner has of this piece. own: this rank's piece in the same place of its
 * right neighbour's shadow. Both may be NULL. */
static tutti_status shadow_match_state(tutti_trainer *trainer, const struct piece *own,
				       struct piece *shadow, struct kept_error *failed)
{
	uint8_t here[2] = {own && own->m, own && own->v}, there[2] = {0};

	TRY(tutti_group_begin());
	shadow_send(trainer, own ? here : NULL, sizeof here, TUTTI_U8, 0);
	shadow_receive(trainer, shadow ? there : NULL, sizeof there, TUTTI_U8, 0);
	TRY(trainer_messages_end(trainer));
	for (int which = STATE_M; which <= STATE_V; which++)
		if (there[which - STATE_M])
			kept_error_note(failed, state_make(trainer, shadow, which));
	return TUTTI_OK;
}

static tutti_status shadow_fetch_piece(tutti_trainer *trainer, const struct piece *own,
				       const struct piece *shadow)
{
	const struct piece none = {0};
	tutti_dtype low = trainer->config.param_dtype;

	own = own ? own : &none;
	shadow = shadow ? shadow : &none;
	TRY(tutti_group_begin());
	shadow_send(trainer, own->value, own->count, TUTTI_F32, 0);
	shadow_send(trainer, own->m, own->count, TUTTI_F32, 1);
	shadow_send(trainer, own->v, own->count, TUTTI_F32, 2);
	shadow_send(trainer, own->low, own->count, low, 3);
	shadow_receive(trainer, shadow->value, shadow->count, TUTTI_F32, 0);
	shadow_receive(trainer, shadow->m, shadow->count, TUTTI_F32, 1);
	shadow_receive(trainer, shadow->v, shadow->count, TUTTI_F32, 2);
	shadow_receive(trainer, shadow->low, shadow->count, low, 3);
	TRY(trainer_messages_end(trainer));
	state_let_go(trainer, own, 0, own->count);
	return TUTTI_OK;
}

tutti_status shadow_fetch(tutti_trainer *trainer)
{
	struct shadow *shadow = &trainer->shadow;
	struct kept_error failed = {0};
	struct piece *own;

	if (!shadow->is_kept || shadow->is_current)
		return TUTTI_OK;
	for (int i = 0, s = 0; (own = shadow_next_split(trainer, &i)) || s < shadow->piece_count;
	     s++)
		TRY(shadow_match_state(trainer, own,
				       s < shadow->piece_count ? &shadow->pieces[s] : NULL,
				       &failed));
	TRY(job_agree(trainer, kept_error_return(&failed)));
	for (int i = 0, s = 0; (own = shadow_next_split(trainer, &i)) || s < shadow->piece_count;
	     s++)
		TRY(shadow_fetch_piece(trainer, own,
				       s < shadow->piece_count ? &shadow->pieces[s] : NULL));
	shadow->is_current = true;
	return TUTTI_OK;
}

static tutti_status shadow_fetch_some_sums(tutti_trainer *trainer, int first, int last)
{
	TRY(tutti_group_begin());
	for (int b = first; b < last; b++) {
		const struct bucket *bucket = &trainer->buckets[b];
		size_t width = dtype_bytes(bucket->sum_dtype);
		size_t own = bucket->part.last - bucket->part.first;
		if (!shadow_has_sums(bucket))
			continue;
		shadow_send(trainer, bucket->sum, own, bucket->sum_dtype, b);
		shadow_receive(trainer, trainer->shadow.sums[b],
			       shadow_sum_bytes(trainer, b) / width, bucket->sum_dtype, b);
		trainer->stats.sent_grad_bytes += bucket->part_elements * width;
	}
	return trainer_messages_end(trainer);
}

tutti_status shadow_fetch_sums(tutti_trainer *trainer)
{
	int count = trainer->layout.span_count;

	for (int b = 0; trainer->shadow.is_kept && b < count; b += BUCKETS_AT_ONCE)
		TRY(shadow_fetch_some_sums(
			trainer, b, b + BUCKETS_AT_ONCE < count ? b + BUCKETS_AT_ONCE : count));
	return TUTTI_OK;
}
