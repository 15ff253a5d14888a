/* The update of this rank's pieces. The arithmetic is in the kernels. */
#include "train/optimizer/optimizer.h"

#include "train/base/base.h"
#include "train/precision/precision.h"
#include "train/strategies/strategies.h"

#include <math.h>
#include <stdlib.h>

const char *optimizer_kind_name(int kind)
{
	return kind == TUTTI_ADAMW ? "TUTTI_ADAMW" : "TUTTI_SGD";
}

static bool optimizer_is_fraction(float x)
{
	return x >= 0 && x < 1;
}

static tutti_status optimizer_check_group(const char *call, const tutti_optimizer *group, int g)
{
	if (group->kind != TUTTI_ADAMW && group->kind != TUTTI_SGD)
		return fail_invalid("%s: group %d has no optimizer kind %d.", call, g,
				    (int)group->kind);
	if (!isfinite(group->lr) || group->lr < 0 || !isfinite(group->weight_decay))
		return fail_invalid("%s: group %d has learning rate %g and weight decay "
				    "%g; both must be finite, and the rate at least 0.",
				    call, g, (double)group->lr, (double)group->weight_decay);
	if (group->kind == TUTTI_SGD && !optimizer_is_fraction(group->momentum))
		return fail_invalid("%s: group %d has momentum %g, which is outside [0, 1).", call,
				    g, (double)group->momentum);
	if (group->kind == TUTTI_ADAMW && !(optimizer_is_fraction(group->beta1) &&
					    optimizer_is_fraction(group->beta2) && group->eps > 0))
		return fail_invalid("%s: group %d has beta1 %g, beta2 %g, eps %g; AdamW "
				    "needs betas in [0, 1) and a positive eps.",
				    call, g, (double)group->beta1, (double)group->beta2,
				    (double)group->eps);
	return TUTTI_OK;
}

tutti_status optimizer_groups_check(const char *call, const tutti_optimizer *groups, int num_groups)
{
	if (!groups || num_groups < 1)
		return fail_invalid("%s needs at least one group.", call);
	for (int g = 0; g < num_groups; g++)
		TRY(optimizer_check_group(call, &groups[g], g));
	return TUTTI_OK;
}

tutti_status optimizer_check(const tutti_trainer *trainer, const tutti_optimizer *groups,
			     int num_groups)
{
	TRY(optimizer_groups_check("tutti_step", groups, num_groups));
	for (int p = 0; p < trainer->model.param_count; p++) {
		const struct param *param = &trainer->model.params[p];
		const struct tensor *tensor = &trainer->tensors[p];
		if (!param_is_trained(param))
			continue;
		if (param->group >= num_groups)
			return fail_invalid("tutti_step: parameter '%s' is of group %d, but %d "
					    "groups were given.",
					    param->name, param->group, num_groups);
		int kind = (int)groups[param->group].kind;
		if (tensor->optimizer >= 0 && tensor->optimizer != kind)
			return fail_invalid("tutti_step: parameter '%s' was trained with %s, "
					    "whose state %s cannot use.",
					    param->name, optimizer_kind_name(tensor->optimizer),
					    optimizer_kind_name(kind));
	}
	return TUTTI_OK;
}

static bool optimizer_needs(const tutti_optimizer *group, int which)
{
	return group->kind == TUTTI_ADAMW || (which == STATE_M && group->momentum != 0);
}

static tutti_status optimizer_prepare_pieces(tutti_trainer *trainer, struct piece *pieces,
					     int count, const tutti_optimizer *groups)
{
	for (int i = 0; i < count; i++) {
		const tutti_optimizer *group =
			&groups[trainer->model.params[pieces[i].param].group];
		for (int which = STATE_M; pieces[i].sum && which <= STATE_V; which++)
			if (optimizer_needs(group, which))
				TRY(state_make(trainer, &pieces[i], which));
	}
	return TUTTI_OK;
}

/* Room to keep the groups, when the step is finished. */
static tutti_status optimizer_keep_room(struct last_step *last, int num_groups)
{
	if (num_groups <= last->group_room)
		return TUTTI_OK;
	tutti_optimizer *more = realloc(last->groups, (size_t)num_groups * sizeof *more);
	if (!more)
		return fail_no_memory("%d optimizer groups", num_groups);
	last->groups = more;
	last->group_room = num_groups;
	return TUTTI_OK;
}

tutti_status optimizer_prepare(tutti_trainer *trainer, const tutti_optimizer *groups,
			       int num_groups)
{
	TRY(optimizer_keep_room(&trainer->last, num_groups));
	TRY(optimizer_prepare_pieces(trainer, trainer->pieces, trainer->piece_count, groups));
	TRY(optimizer_prepare_pieces(trainer, trainer->shadow.pieces, trainer->shadow.piece_count,
				     groups));
	for (int p = 0; p < trainer->model.param_count; p++)
		if (param_is_trained(&trainer->model.params[p]))
			trainer->tensors[p].optimizer =
				(int)groups[trainer->model.params[p].group].kind;
	return TUTTI_OK;
}

/* Elements of one pass: values that were just updated are still in the cache when they are rounded.
 */
enum { STRIDE = 1 << 14 };

/* Of element first of the piece and *run after it: numbers in the whole model. */
static struct kernel_rounding optimizer_rounding_keys(const tutti_trainer *trainer,
						      const struct piece *piece, size_t first,
						      size_t *run)
{
	const struct param *param = &trainer->model.params[piece->param];

	return (struct kernel_rounding){
		.seed = trainer->config.seed,
		.step = trainer->updates,
		.param = param->part.index,
		.first = param_place_in_whole(param, piece->first + first, run)};
}

/* The update of a piece in host memory. */
struct host_update {
	const tutti_trainer *trainer;
	const struct piece *piece;
	const tutti_optimizer *group;
	float scale;
};

static void optimizer_round_values(const struct host_update *u, size_t first, size_t count,
				   void *low)
{
	tutti_dtype dtype = u->trainer->config.param_dtype;
	const float *value = u->piece->value + first;

	if (!u->trainer->config.stochastic_rounding) {
		kernel_convert(low, dtype, value, TUTTI_F32, count);
		return;
	}
	for (size_t i = 0, run; i < count; i += run) {
		struct kernel_rounding keys =
			optimizer_rounding_keys(u->trainer, u->piece, first + i, &run);
		run = smaller(run, count - i);
		kernel_narrow_at_random(element_at(low, dtype, i), value + i, run, &keys);
	}
}

/* Elements first to first + count, whose gradients begin at grad. low: where they are rounded to,
 * or NULL. */
static void optimizer_update_range(const struct host_update *u, size_t first, size_t count,
				   const void *grad, void *low)
{
	const struct piece *piece = u->piece;
	const struct kernel_update update = {.value = piece->value + first,
					     .m = piece->m ? piece->m + first : NULL,
					     .v = piece->v ? piece->v + first : NULL,
					     .grad = grad,
					     .grad_dtype = piece->sum_dtype,
					     .count = count,
					     .scale = u->scale};

	if (u->group->kind == TUTTI_ADAMW)
		kernel_adamw(&update, u->group, (double)u->trainer->updates);
	else
		kernel_sgd(&update, u->group);
	if (low)
		optimizer_round_values(u, first, count, low);
	state_let_go(u->trainer, piece, first, count);
}

/* One tile of an offloaded piece. */
static void optimizer_update_tile(void *arg, size_t first, size_t count, const void *grad,
				  void *low)
{
	const struct host_update *u = arg;
	const char *grads = grad;
	size_t grad_width = dtype_bytes(u->piece->sum_dtype);
	size_t low_width = dtype_bytes(u->trainer->config.param_dtype);

	for (size_t done = 0, n; done < count; done += n) {
		n = smaller(STRIDE, count - done);
		optimizer_update_range(u, first + done, n, grads + done * grad_width,
				       (char *)low + done * low_width);
	}
}

static void optimizer_update_offloaded(tutti_trainer *trainer, struct host_update *u)
{
	const struct piece *piece = u->piece;
	const struct device_tiles tiles = {.grad = piece->sum,
					   .result = piece->low,
					   .grad_width = dtype_bytes(piece->sum_dtype),
					   .result_width = dtype_bytes(trainer->config.param_dtype),
					   .count = piece->count,
					   .update = optimizer_update_tile,
					   .arg = u};

	train_device_update_tiles(piece->home->device, &tiles);
	trainer->stats.offload_down_bytes += piece->count * tiles.grad_width;
	trainer->stats.offload_up_bytes += piece->count * tiles.result_width;
}

/* On the device, at once. */
static void optimizer_update_on_device(const tutti_trainer *trainer, const struct piece *piece,
				       const tutti_optimizer *group, float scale)
{
	const struct kernel_update update = {.value = piece->value,
					     .m = piece->m,
					     .v = piece->v,
					     .grad = piece->sum,
					     .grad_dtype = piece->sum_dtype,
					     .count = piece->count,
					     .scale = scale};
	size_t run; /* all of it: such rounding is refused on a mesh */
	const struct kernel_rounding keys = optimizer_rounding_keys(trainer, piece, 0, &run);
	const struct device_low low = {.values = piece->low,
				       .dtype = trainer->config.param_dtype,
				       .at_random =
					       trainer->config.stochastic_rounding ? &keys : NULL};

	train_device_update(piece->home->device, &update, group, (double)trainer->updates, &low);
}

static void optimizer_update_on_host(const struct host_update *u)
{
	const struct piece *piece = u->piece;

	for (size_t first = 0, n; first < piece->count; first += n) {
		void *low = piece->low
				    ? element_at(piece->low, u->trainer->config.param_dtype, first)
				    : NULL;
		n = smaller(STRIDE, piece->count - first);
		optimizer_update_range(u, first, n, element_at(piece->sum, piece->sum_dtype, first),
				       low);
	}
}

static void optimizer_update_piece(tutti_trainer *trainer, const struct piece *piece,
				   const tutti_optimizer *group, float scale)
{
	struct host_update u = {trainer, piece, group, scale};

	if (piece->is_offloaded)
		optimizer_update_offloaded(trainer, &u);
	else if (piece->home->device)
		optimizer_update_on_device(trainer, piece, group, scale);
	else
		optimizer_update_on_host(&u);
}

static void optimizer_update_pieces(tutti_trainer *trainer, const struct piece *pieces, int count,
				    const tutti_optimizer *groups, float scale)
{
	for (int i = 0; i < count; i++) {
		const struct param *param = &trainer->model.params[pieces[i].param];
		tutti_optimizer group = groups[param->group];
		if (param->flags & TUTTI_PARAM_NO_DECAY)
			group.weight_decay = 0;
		if (pieces[i].sum)
			optimizer_update_piece(trainer, &pieces[i], &group, scale);
	}
}

/* All pieces are updated, whatever fails: this rank's part is that of one step. */
tutti_status optimizer_update(tutti_trainer *trainer, const tutti_optimizer *groups, float scale)
{
	struct kept_error first = {0};

	for (int b = 0; b < trainer->layout.trained_count; b++) {
		const struct bucket *bucket = &trainer->buckets[b];
		optimizer_update_pieces(trainer, trainer->pieces + bucket->first_piece,
					bucket->piece_count, groups, scale);
		if (first.status == TUTTI_OK)
			kept_error_note(&first, publish_bucket(trainer, b));
	}
	optimizer_update_pieces(trainer, trainer->shadow.pieces, trainer->shadow.piece_count,
				groups, scale);
	return kept_error_return(&first);
}

void optimizer_update_alone(tutti_trainer *trainer, const tutti_optimizer *groups, float scale)
{
	optimizer_update_pieces(trainer, trainer->pieces, trainer->piece_count, groups, scale);
	optimizer_update_pieces(trainer, trainer->shadow.pieces, trainer->shadow.piece_count,
				groups, scale);
}

/* The author's gradient is the sum itself, or a copy. Without loss in f32 it is computed from the
 * sum. */
static void optimizer_scale_piece(tutti_trainer *trainer, const struct piece *piece, float scale)
{
	tutti_dtype dtype = trainer->config.grad_dtype;
	char *grads = param_grad(trainer, piece->param);
	void *grad = grads ? element_at(grads, dtype, piece->first) : NULL;

	if (grad && dtype == TUTTI_F32) {
		values_scale(piece->home, grad, TUTTI_F32, piece->sum, piece->sum_dtype,
			     piece->count, scale);
		return;
	}
	values_scale(piece->home, piece->sum, piece->sum_dtype, piece->sum, piece->sum_dtype,
		     piece->count, scale);
	if (grad && grad != piece->sum)
		values_convert(piece->home, grad, dtype, piece->sum, piece->sum_dtype,
			       piece->count);
}

void optimizer_scale(tutti_trainer *trainer, float scale)
{
	for (int i = 0; i < trainer->piece_count; i++)
		if (trainer->pieces[i].sum)
			optimizer_scale_piece(trainer, &trainer->pieces[i], scale);
}
