/* tutti_mesh_*: the ranks of a communicator as a grid, and a communicator for each axis, or for
 * several. */
#include "train/mesh/mesh.h"

#include "core/callback.h"
#include "train/base/base.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The ranks that differ in these axes only. */
struct axis_group {
	unsigned axes; /* bit i: axis i */
	tutti_comm *comm;
};

struct tutti_mesh {
	tutti_comm *comm; /* the caller's, unless owns_comm */
	bool owns_comm;
	int rank;
	struct axes axes;
	struct axis_group *groups;
	size_t group_count;
	bool is_aborted;
};

/* The axes that the caller passed, or without any TUTTI_MESH's. */
static tutti_status mesh_take_axes(struct tutti_mesh *mesh, const tutti_axis *axes, int num_axes)
{
	const char *text = getenv("TUTTI_MESH");
	char why[AXES_WHY_BYTES];
	bool is_good = true;

	if (num_axes < 0 || (num_axes > 0 && !axes))
		return fail_invalid("A mesh has %d axes at %p.", num_axes, (const void *)axes);
	if (num_axes == 0 && !text)
		return fail_invalid("A mesh has no axes: pass some, or set TUTTI_MESH, as tuttirun "
				    "--mesh dp=2,tp=4 does.");
	if (num_axes == 0)
		is_good = axes_read(&mesh->axes, text, why);
	for (int i = 0; is_good && i < num_axes; i++)
		is_good = axes_add(&mesh->axes, axes[i].name, axes[i].size, why);
	if (!is_good || !axes_fit(&mesh->axes, tutti_size(mesh->comm), why))
		return fail_invalid("%s%s.",
				    num_axes ? "A mesh cannot be made: " : "TUTTI_MESH: ", why);
	return TUTTI_OK;
}

static void mesh_write_axes(FILE *file, const void *of)
{
	const struct tutti_mesh *mesh = of;
	char text[AXES_TEXT_BYTES];

	axes_write(text, &mesh->axes);
	fprintf(file, "%s\n", text);
}

static void mesh_name_axes(char *text, size_t bytes, const struct axes *axes, unsigned set)
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < axes->count && used < bytes; i++)
		if (set >> i & 1)
			used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "," : "",
						 axes->axis[i].name);
}

/* Ranks of a group have the same coordinates on all other axes: color is the rank of the first. */
static tutti_status mesh_make_group(struct tutti_mesh *mesh, unsigned set)
{
	tutti_config config;
	char name[AXIS_NAME_BYTES];
	tutti_comm *comm;

	TRY(array_grow(&mesh->groups, mesh->group_count, sizeof *mesh->groups, "a mesh"));
	TRY(tutti_comm_config(mesh->comm, &config));
	mesh_name_axes(name, sizeof name, &mesh->axes, set);
	config.name = name[0] ? name : "alone";
	TRY(tutti_comm_split(mesh->comm, axes_first(&mesh->axes, mesh->rank, set), mesh->rank,
			     &config, &comm));
	mesh->groups[mesh->group_count++] = (struct axis_group){set, comm};
	return TUTTI_OK;
}

static tutti_status mesh_make(struct tutti_mesh *mesh, const tutti_axis *axes, int num_axes)
{
	TRY(error_agree(mesh->comm, mesh_take_axes(mesh, axes, num_axes)));
	TRY(texts_compare(mesh->comm, "meshes", "pass the same axes on every rank", mesh_write_axes,
			  mesh));
	for (int i = 0; i < mesh->axes.count; i++)
		TRY(mesh_make_group(mesh, 1u << i));
	return TUTTI_OK;
}

tutti_status tutti_mesh_create(tutti_mesh **mesh, tutti_comm *comm, const tutti_axis *axes,
			       int num_axes)
{
	if (!mesh || !comm)
		return fail_invalid("tutti_mesh_create: %s is NULL.", mesh ? "comm" : "mesh");
	struct tutti_mesh *made = calloc(1, sizeof *made);
	if (!made)
		return fail_no_memory("a mesh");
	made->comm = comm;
	made->rank = tutti_rank(comm);
	tutti_status status = mesh_make(made, axes, num_axes);
	if (status != TUTTI_OK) {
		struct kept_error failure = kept_error_of(status);
		tutti_mesh_destroy(made);
		return kept_error_return(&failure);
	}
	*mesh = made;
	return TUTTI_OK;
}

void tutti_mesh_destroy(tutti_mesh *mesh)
{
	if (!mesh || callback_refuses("tutti_mesh_destroy"))
		return;
	while (mesh->group_count > 0)
		tutti_comm_destroy(mesh->groups[--mesh->group_count].comm);
	if (mesh->owns_comm)
		tutti_comm_destroy(mesh->comm);
	free(mesh->groups);
	free(mesh);
}

tutti_status tutti_mesh_abort(tutti_mesh *mesh)
{
	if (!mesh)
		return fail_invalid("tutti_mesh_abort: mesh is NULL.");
	if (mesh->is_aborted) /* the caller's communicator may be gone since */
		return TUTTI_OK;
	mesh->is_aborted = true;
	for (size_t i = 0; i < mesh->group_count; i++)
		tutti_comm_abort(mesh->groups[i].comm);
	return tutti_comm_abort(mesh->comm);
}

/* "dp,cp" as bits. */
static tutti_status mesh_read_set(const struct tutti_mesh *mesh, const char *names, unsigned *set)
{
	char have[AXES_TEXT_BYTES];

	*set = 0;
	for (const char *at = names; *at;) {
		size_t bytes = strcspn(at, ",");
		int axis = axes_find(&mesh->axes, at, bytes);

		if (axis < 0) {
			axes_write(have, &mesh->axes);
			return fail_invalid("The mesh has no axis '%.*s': it is %s.",
					    bytes < 40 ? (int)bytes : 40, at, have);
		}
		if (*set >> axis & 1)
			return fail_invalid("'%.80s' names axis '%s' twice.", names,
					    mesh->axes.axis[axis].name);
		*set |= 1u << axis;
		at += bytes;
		if (at[0] == ',' && at[1])
			at++;
	}
	return TUTTI_OK;
}

struct wanted_axes {
	const struct tutti_mesh *mesh;
	unsigned set;
};

static void mesh_write_wanted(FILE *file, const void *of)
{
	const struct wanted_axes *wanted = of;
	char text[AXES_TEXT_BYTES];

	mesh_name_axes(text, sizeof text, &wanted->mesh->axes, wanted->set);
	fprintf(file, "'%s'\n", text);
}

static tutti_comm *mesh_find_group(const struct tutti_mesh *mesh, unsigned set)
{
	for (size_t i = 0; i < mesh->group_count; i++)
		if (mesh->groups[i].axes == set)
			return mesh->groups[i].comm;
	return NULL;
}

tutti_status mesh_comm(tutti_mesh *mesh, const char *axes, tutti_comm **comm)
{
	struct wanted_axes wanted = {mesh, 0};

	if (!mesh || !axes)
		return fail_invalid("tutti_mesh_comm: %s is NULL.", mesh ? "axes" : "mesh");
	TRY(mesh_read_set(mesh, axes, &wanted.set));
	*comm = mesh_find_group(mesh, wanted.set);
	if (*comm)
		return TUTTI_OK;
	TRY(texts_compare(mesh->comm, "axes of tutti_mesh_comm",
			  "ask for the same combination on every rank", mesh_write_wanted,
			  &wanted));
	TRY(mesh_make_group(mesh, wanted.set));
	*comm = mesh_find_group(mesh, wanted.set);
	return TUTTI_OK;
}

tutti_comm *tutti_mesh_comm(tutti_mesh *mesh, const char *axes)
{
	tutti_comm *comm = NULL;

	return mesh_comm(mesh, axes, &comm) == TUTTI_OK ? comm : NULL;
}

tutti_comm *mesh_all(const tutti_mesh *mesh)
{
	return mesh->comm;
}

const struct axes *mesh_axes(const tutti_mesh *mesh)
{
	return &mesh->axes;
}

/* This rank's number in the mesh. It and the axes stay when the communicators are gone. */
static int mesh_rank(const tutti_mesh *mesh)
{
	return mesh->rank;
}

/* From here on the communicator that the mesh was made of goes with it. */
static void mesh_take_comm(tutti_mesh *mesh)
{
	mesh->owns_comm = true;
}

int tutti_mesh_size(const tutti_mesh *mesh, const char *axis)
{
	int i = mesh && axis ? axes_find(&mesh->axes, axis, strlen(axis)) : -1;

	return i < 0 ? 1 : mesh->axes.axis[i].size;
}

int tutti_mesh_coord(const tutti_mesh *mesh, const char *axis)
{
	int i = mesh && axis ? axes_find(&mesh->axes, axis, strlen(axis)) : -1;

	return i < 0 ? 0 : axes_coord(&mesh->axes, i, mesh->rank);
}

int tutti_mesh_rank(const tutti_mesh *mesh, const int *coords)
{
	int rank = 0;

	if (!mesh || !coords)
		return -1;
	for (int i = 0; i < mesh->axes.count; i++) {
		const struct axis *axis = &mesh->axes.axis[i];
		if (coords[i] < 0 || coords[i] >= axis->size)
			return -1;
		rank += coords[i] * axis->stride;
	}
	return rank;
}

/* ---- tutti_mesh_continue ---- */

/* The ranks that are left of a mesh, and new ones, as a mesh with as many whole replicas of the
 * model as can be made. Each rank computes the same table of places. */

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
static void mesh_find_places(struct regrouping *g)
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
static tutti_status mesh_find_size(struct regrouping *g)
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
static tutti_status mesh_find_axes(struct regrouping *g)
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

static tutti_status mesh_gather(struct regrouping *g, const tutti_mesh *before)
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
	tutti_status status = mesh_gather(&g, before);
	if (status == TUTTI_OK)
		status = mesh_find_axes(&g);
	if (status == TUTTI_OK)
		status = mesh_find_size(&g);
	if (status == TUTTI_OK) {
		mesh_find_places(&g);
		status = mesh_continue_make(&g, mesh);
	}
	free(g.earlier);
	free(g.places);
	free(g.own);
	return status;
}
