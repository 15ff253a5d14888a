/* When ranks die. The others shrink, wait for ranks in the dead ones' place, and make a mesh of as
 * many whole replicas as there can be.
 *
 * Ranks that no replica has a place for stay as spares. They have no part of the model, and take
 * part in one small sum of all ranks in each step: so they hear when another rank dies, and the
 * others when one of them does. All regroup then, and a spare takes a place as a new rank would. */
#include "run.h"

#include "place.h"

#include <limits.h>
#include <stdlib.h>

void regroup_drop(struct run *run)
{
	stages_destroy(run->stages);
	run->stages = NULL;
	gpt_finish(&run->gpt);
	tutti_trainer_destroy(run->trainer);
	run->trainer = NULL;
	tutti_mesh_destroy(run->mesh);
	run->mesh = NULL;
}

/* A rank that is started again may come while others die: it tries once more. */
void regroup_join(struct run *run)
{
	const tutti_config config = {.device = place_device()};
	tutti_status status = tutti_init(&run->comm, &config);

	run->is_later = getenv("TUTTI_RESTARTED") != NULL;
	for (int i = 0; i < 100 && run->is_later && status == TUTTI_ERR_PEER; i++)
		status = tutti_init(&run->comm, &config);
	must(status);
	if (!run->is_later)
		must(tutti_train_ranks_check(&run->options.flags, run->comm));
	run->world = tutti_size(run->comm);
}

/* The first mesh, or that of the ranks which are left of one, and of those in the dead ones' place.
 * NULL: this rank is left over. */
static tutti_mesh *regroup_open_mesh(struct run *run)
{
	const struct options *o = &run->options;
	const tutti_axis axes[] = {
		{"dp", o->dp}, {"ep", o->ep}, {"cp", o->cp}, {"pp", o->pp}, {"tp", o->tp}};

	/* All ranks ask: one that was started again may be among others that have no mesh yet. */
	tutti_mesh *mesh = NULL;
	tutti_status status = tutti_mesh_continue(&mesh, run->comm, run->mesh);

	if (status == TUTTI_ERR_UNSUPPORTED && run->mesh)
		fprintf(stderr, "gpt: %s\n", tutti_comm_error(NULL));
	if (status == TUTTI_ERR_UNSUPPORTED)
		status = tutti_mesh_create(&mesh, run->comm, axes, 5);
	must(status);
	return mesh;
}

bool regroup_take_place(struct run *run)
{
	bool has_mesh = run->options.has_mesh;
	tutti_mesh *mesh = has_mesh ? regroup_open_mesh(run) : NULL;

	run->ranks = has_mesh ? NULL : run->comm;
	run->rank = -1;
	run->next.mesh = mesh;
	if (has_mesh && !mesh)
		return false;
	if (has_mesh)
		run->ranks = tutti_mesh_comm(mesh, "dp,ep,pp,cp,tp");
	if (!run->ranks)
		must(TUTTI_ERR_PEER); /* only the communicator can fail here */
	run->rank = tutti_rank(run->ranks);
	run->size = tutti_size(run->ranks);
	int ep = tutti_mesh_size(mesh, "ep");
	run->part = has_mesh ? tutti_mesh_coord(mesh, "dp") * ep + tutti_mesh_coord(mesh, "ep")
			     : run->rank;
	run->parts = has_mesh ? tutti_mesh_size(mesh, "dp") * ep : run->size;
	return true;
}

/* Whether the others have ended: the spares' part and that of the ranks that train. */
static int regroup_meet(struct run *run, int has_ended, int timeout_ms)
{
	must(tutti_all_reduce(&has_ended, &has_ended, 1, TUTTI_I32, TUTTI_MAX, run->comm,
			      &(tutti_call){.timeout_ms = timeout_ms}));
	return has_ended;
}

void regroup_tell_spares(struct run *run, bool has_ended)
{
	if (tutti_size(run->comm) > run->size)
		regroup_meet(run, has_ended, 0);
}

/* A step, and all that follows the last one, may take longer than any wait in it. */
void regroup_stand_by(struct run *run)
{
	printf("gpt: a rank is left over, since a replica of the model has more ranks: it stands "
	       "by\n");
	fflush(stdout);
	tutti_metrics_destroy(run->metrics);
	run->metrics = NULL;
	regroup_drop(run);
	while (!regroup_meet(run, 0, INT_MAX))
		;
}

/* The step that was begun is over. Other ranks may wait in communicators that lack no rank. The
 * trainer stays, and the mesh: its places count. */
static void regroup_give_up(struct run *run)
{
	if (run->next.mesh)
		tutti_mesh_abort(run->next.mesh);
	if (run->mesh)
		tutti_mesh_abort(run->mesh);
	gpt_finish(&run->next.gpt);
	tutti_trainer_destroy(run->next.trainer);
	tutti_mesh_destroy(run->next.mesh);
	run->next = (struct attempt){0};
	stages_destroy(run->stages);
	run->stages = NULL;
}

/* Where no new ranks come the others go on alone; each has more sequences then. */
void regroup(struct run *run)
{
	const tutti_config grow_wait = {.timeout_ms = run->options.grow_wait_s * 1000,
					.device = place_device()};
	tutti_comm *survivors, *grown;

	run->is_later = true;
	regroup_give_up(run);
	if (tutti_comm_shrink(run->comm, &survivors) != TUTTI_OK) {
		fprintf(stderr, "gpt: %s\n", tutti_comm_error(NULL));
		exit(1);
	}
	tutti_comm_destroy(run->comm);
	run->comm = survivors;
	tutti_status status = tutti_comm_grow(survivors, run->world, &grow_wait, &grown);
	if (status == TUTTI_ERR_TIMEOUT) {
		fprintf(stderr, "gpt: goes on with %d of %d ranks: %s\n", tutti_size(survivors),
			run->world, tutti_comm_error(NULL));
		return;
	}
	must(status);
	tutti_comm_destroy(run->comm);
	run->comm = grown;
}
