/* tutti_mesh_continue: the ranks that are left of a mesh, and new ones, as a mesh with as many
 * whole replicas of the model as can be made. Each rank computes the same table of places. */
#include "train/mesh/mesh.h"

#include "train/base/base.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Where a rank was. */
struct earlier_place {
	int32_t rank; /* in the earlier mesh, or -1 */
	struct axes axes;
};

struct regrouping {
	tutti_comm *comm;
	int size;
	struct earlier_place *earlier; /* by rank of comm */
	struct axes axes;              /* of the new mesh */
	int dp;                        /* the axis of replicas, or -1 */
	int ranks, parts;              /* of the new mesh; of a replica */
	int *places;                   /* by rank of the new mesh: the rank of comm, or -1 */
	int *own;                      /* by rank of comm: its rank in the new mesh, or -1 */
};

static void mesh_continue_take(struct regrouping *g, int place, int rank)
{
	if (place < 0 || g->places[place] >= 0 || g->own[rank] >= 0)
		return;
	g->places[place] = rank;
	g->own[rank] = place;
}

/* The rank of the new mesh in replica dp, elsewhere at the coordinates that rank had. */
static int mesh_continue_place_of(const struct regrouping *g, int rank, int dp)
{
	const struct earlier_place *was = &g->earlier[rank];
	int place = 0;

	if (was->rank < 0)
		return -1;
	for (int i = 0; i < g->axes.count; i++)
		place += g->axes.axis[i].stride *
			 (i == g->dp ? dp : axes_coord(&was->axes, i, was->rank));
	return place;
}

static int mesh_continue_replica_of(const struct regrouping *g, int rank)
{
	const struct earlier_place *was = &g->earlier[rank];

	return g->dp < 0 || was->rank < 0 ? 0 : axes_coord(&was->axes, g->dp, was->rank);
}

/* Ranks stay where they were; or move to a replica that lacks their part; what then is empty is
 * filled with new ranks, and with those whose replica is given up. */
static void find_places(struct regrouping *g)
{
	int replicas = g->ranks / g->parts, next = 0;

	for (int i = 0; i < g->ranks; i++)
		g->places[i] = -1;
	for (int r = 0; r < g->size; r++)
		g->own[r] = -1;
	for (int r = 0; r < g->size; r++)
		if (mesh_continue_replica_of(g, r) < replicas)
			mesh_continue_take(
				g, mesh_continue_place_of(g, r, mesh_continue_replica_of(g, r)), r);
	for (int r = 0; r < g->size; r++)
		for (int dp = 0; dp < replicas; dp++)
			mesh_continue_take(g, mesh_continue_place_of(g, r, dp), r);
	for (int r = 0; r < g->size; r++) {
		while (next < g->ranks && g->places[next] >= 0)
			next++;
		if (next < g->ranks)
			mesh_continue_take(g, next, r);
	}
}

/* Sizes of the new mesh. */
static tutti_status find_size(struct regrouping *g)
{
	char text[AXES_TEXT_BYTES], why[AXES_WHY_BYTES];

	axes_write(text, &g->axes);
	g->dp = axes_find(&g->axes, "dp", 2);
	g->parts = 1;
	for (int i = 0; i < g->axes.count; i++)
		g->parts *= i == g->dp ? 1 : g->axes.axis[i].size;
	int replicas = g->size / g->parts;
	if (replicas == 0)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tutti_mesh_continue: %d rank%s left of the mesh %s, and a "
			    "replica of the model has %d: start again from a checkpoint "
			    "(tuttirun --max-restarts does).",
			    g->size, g->size == 1 ? " is" : "s are", text, g->parts);
	if (g->dp >= 0)
		g->axes.axis[g->dp].size = replicas;
	g->ranks = g->dp < 0 ? g->parts : replicas * g->parts;
	return axes_fit(&g->axes, g->ranks, why) ? TUTTI_OK : fail_invalid("%s.", why);
}

/* The axes of the earlier mesh, which all ranks that had one agree on. */
static tutti_status find_axes(struct regrouping *g)
{
	char one[AXES_TEXT_BYTES], other[AXES_TEXT_BYTES];
	int first = 0;

	while (first < g->size && g->earlier[first].rank < 0)
		first++;
	if (first == g->size)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tutti_mesh_continue: no rank has an earlier mesh: "
			    "tutti_mesh_create makes the first one.");
	g->axes = g->earlier[first].axes;
	axes_write(one, &g->axes);
	for (int r = first + 1; r < g->size; r++) {
		axes_write(other, &g->earlier[r].axes);
		if (g->earlier[r].rank >= 0 && strcmp(one, other) != 0)
			return fail(TUTTI_ERR_MISMATCH,
				    "tutti_mesh_continue: the earlier mesh of rank %d was "
				    "%.200s, and that of rank %d %.200s.",
				    first, one, r, other);
	}
	return TUTTI_OK;
}

static tutti_status mesh_continue_gather(struct regrouping *g, const tutti_mesh *before)
{
	int rank = tutti_rank(g->comm);
	size_t size = (size_t)g->size;

	g->earlier = calloc(size, sizeof *g->earlier);
	g->places = calloc(size, sizeof *g->places);
	g->own = calloc(size, sizeof *g->own);
	bool has_all = g->earlier && g->places && g->own;
	TRY(error_agree(g->comm, has_all ? TUTTI_OK : fail_no_memory("a mesh's places")));
	g->earlier[rank].rank = before ? mesh_rank(before) : -1;
	if (before)
		g->earlier[rank].axes = *mesh_axes(before);
	return tutti_all_gather(&g->earlier[rank], g->earlier, sizeof *g->earlier, TUTTI_U8,
				g->comm, NULL);
}

static tutti_status mesh_continue_make(struct regrouping *g, tutti_mesh **mesh)
{
	int own = g->own[tutti_rank(g->comm)];
	tutti_axis axes[AXES_MAX];
	tutti_mesh *made = NULL;
	tutti_comm *ranks;

	TRY(tutti_comm_split(g->comm, own < 0 ? -1 : 0, own, NULL, &ranks));
	for (int i = 0; i < g->axes.count; i++)
		axes[i] = (tutti_axis){g->axes.axis[i].name, g->axes.axis[i].size};
	if (ranks) {
		tutti_status status = tutti_mesh_create(&made, ranks, axes, g->axes.count);
		struct kept_error why = kept_error_of(status);
		if (status != TUTTI_OK)
			tutti_comm_destroy(ranks);
		TRY(kept_error_return(&why));
		mesh_take_comm(made);
	}
	*mesh = made;
	return TUTTI_OK;
}

tutti_status tutti_mesh_continue(tutti_mesh **mesh, tutti_comm *comm, const tutti_mesh *before)
{
	if (!mesh || !comm)
		return fail_invalid("tutti_mesh_continue: %s is NULL.", mesh ? "comm" : "mesh");
	struct regrouping g = {.comm = comm, .size = tutti_size(comm)};
	tutti_status status = mesh_continue_gather(&g, before);
	if (status == TUTTI_OK)
		status = find_axes(&g);
	if (status == TUTTI_OK)
		status = find_size(&g);
	if (status == TUTTI_OK) {
		find_places(&g);
		status = mesh_continue_make(&g, mesh);
	}
	free(g.earlier);
	free(g.places);
	free(g.own);
	return status;
}
