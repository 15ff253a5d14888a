/* The end of a step on a mesh: ranks that have other parts of the model hear how it went among the
 * ranks that reduce the others' gradients. */
#include "train/trainer.h"

#include "train/base/base.h"

static int find_same(const struct step_conclusion *all, int rank)
{
	int first = 0;

	while (all[first].data != all[rank].data)
		first++;
	return first;
}

/* Those of ranks with the same data count once. */
static tutti_status add_items(const tutti_trainer *trainer, const struct step_conclusion *all,
			      double *items)
{
	const struct trainer_mesh *mesh = trainer->mesh;

	*items = 0;
	for (int r = 0; r < mesh->other_count; r++) {
		int first = find_same(all, r);
		if (first == r)
			*items += all[r].items;
		else if (all[r].items != all[first].items)
			return fail(TUTTI_ERR_MISMATCH,
				    "Rank %d, with those that it reduces with, had %g items in "
				    "this step, and rank %d %g: ranks with parts of one model "
				    "pass the same to tutti_micro_batch.",
				    tutti_parent_rank(mesh->others, r), all[r].items,
				    tutti_parent_rank(mesh->others, first), all[first].items);
	}
	return TUTTI_OK;
}

/* Of the first rank whose failure does not follow from another one's, as error_agree has it; but
 * the message is that of all ranks with other data, and names ranks itself. */
static tutti_status mesh_agreement_tell(tutti_trainer *trainer, const struct step_conclusion *all,
					struct kept_error *failure)
{
	int root = -1;

	for (int pass = 0; pass < 2 && root < 0; pass++)
		for (int r = trainer->mesh->other_count - 1; r >= 0; r--)
			if (all[r].status != TUTTI_OK &&
			    (pass == 1 || !status_is_secondary((tutti_status)all[r].status)))
				root = r;
	if (root < 0)
		return TUTTI_OK;
	TRY(others_broadcast(trainer, failure, sizeof *failure, root));
	return kept_error_return(failure);
}

tutti_status mesh_agree(tutti_trainer *trainer, tutti_status status, double *items)
{
	const struct trainer_mesh *mesh = trainer->mesh;
	struct kept_error failure = kept_error_of(status);

	if (!mesh || !mesh->others)
		return status;
	mesh->conclusions[mesh->other_rank] = (struct step_conclusion){
		.items = *items, .status = (int32_t)status, .data = mesh_data(mesh)};
	tutti_status gathered =
		others_all_gather(trainer, mesh->conclusions, sizeof *mesh->conclusions);
	if (gathered != TUTTI_OK) /* a failure of its own says more */
		return status == TUTTI_OK ? gathered : kept_error_return(&failure);
	TRY(mesh_agreement_tell(trainer, mesh->conclusions, &failure));
	return add_items(trainer, mesh->conclusions, items);
}
