/* Gradients that are sums over further axes of a mesh. Ranks of a group have the same pieces of
 * such parameters, since these lie in spans of their own (mesh_part.kind). All groups' sums are one
 * call. */
#include "train/strategies/strategies.h"

#include "train/base/base.h"

static tutti_status grad_groups_add_piece(tutti_trainer *trainer, const struct piece *piece,
					  int group)
{
	tutti_comm *comm = trainer->mesh->sums[group];
	uint64_t before = trainer->stats.sent_grad_bytes;

	trainer_count_reduced(trainer, piece->count * dtype_bytes(piece->sum_dtype),
			      tutti_size(comm), true);
	trainer->stats.sent_mesh_grad_bytes += trainer->stats.sent_grad_bytes - before;
	return tutti_all_reduce(piece->sum, piece->sum, piece->count, piece->sum_dtype, TUTTI_SUM,
				comm, NULL);
}

static tutti_status grad_groups_add_all(tutti_trainer *trainer)
{
	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		int group = trainer->model.params[piece->param].part.sum_group;
		if (piece->sum && group >= 0)
			TRY(grad_groups_add_piece(trainer, piece, group));
	}
	return TUTTI_OK;
}

tutti_status grads_sum_groups(tutti_trainer *trainer)
{
	tutti_work *work = NULL;
	tutti_call call = {.work = &work, .stream = trainer->homes[0].stream};

	if (!trainer->mesh || trainer->mesh->groups.count == 0)
		return TUTTI_OK;
	TRY(tutti_group_begin());
	tutti_status added = grad_groups_add_all(trainer), status = tutti_group_end(&call);
	return added != TUTTI_OK ? added : trainer_finish(trainer, status, &work);
}
