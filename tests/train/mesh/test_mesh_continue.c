/* What would break: a mesh after deaths with fewer replicas than there could be, ranks that lose
 * their part of the model without need, places that two ranks take, or errors on some ranks only.
 */
#include "tests/random.h"
#include "tests/train/ranks.h"
#include "tests/whole.h"

#include <tutti/parallel.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { MOST = 12 };

static uint64_t seed;

struct scene {
	tutti_axis axes[3];
	int ranks, dp; /* dp: which of the axes, or -1 */
	unsigned dead; /* bit r: rank r of the first mesh */
	bool is_grown; /* the dead come back as new ranks */
};

/* Coordinates as a number: of all axes, and of those that say which part a rank has. */
static void place_of(const tutti_mesh *mesh, const struct scene *scene, int *place, int *part)
{
	*place = *part = 0;
	for (int i = 0; i < 3; i++) {
		int coord = tutti_mesh_coord(mesh, scene->axes[i].name);
		*place = 16 * *place + coord;
		*part = 16 * *part + (i == scene->dp ? 0 : coord);
	}
}

/* What all ranks tell of themselves; -1: no mesh. */
struct told {
	int before, part_before, place, part;
};

static int count(const struct told *all, int n, int part, bool is_kept)
{
	int sum = 0;

	for (int r = 0; r < n; r++)
		sum += is_kept ? all[r].part == part && all[r].part_before == part
			       : all[r].part_before == part;
	return sum;
}

/* Each place is taken once, and each part is with as many of its ranks as there is room for. */
static void check_all(const struct told *all, int n, int replicas, int parts)
{
	int taken = 0;

	for (int r = 0; r < n; r++) {
		taken += all[r].place >= 0;
		for (int s = 0; s < r; s++)
			CHECK(all[r].place < 0 || all[r].place != all[s].place);
		if (all[r].part_before < 0)
			continue;
		int had = count(all, n, all[r].part_before, false);
		CHECK(count(all, n, all[r].part_before, true) == (had < replicas ? had : replicas));
	}
	CHECK(taken == replicas * parts);
}

static void go_on(tutti_comm *comm, const struct scene *scene, tutti_mesh *before)
{
	struct told mine = {-1, -1, -1, -1}, all[MOST];
	int n = tutti_size(comm), parts = 1;
	tutti_mesh *mesh = NULL;

	for (int i = 0; i < 3; i++)
		parts *= i == scene->dp ? 1 : scene->axes[i].size;
	int replicas = scene->dp < 0 ? n >= parts : n / parts;
	tutti_status status = tutti_mesh_continue(&mesh, comm, before);
	if (replicas == 0) {
		CHECK(status == TUTTI_ERR_UNSUPPORTED && mesh == NULL);
		CHECK_MESSAGE("start again from a checkpoint");
		return;
	}
	CHECK(status == TUTTI_OK);
	if (before)
		place_of(before, scene, &mine.before, &mine.part_before);
	if (mesh) {
		place_of(mesh, scene, &mine.place, &mine.part);
		CHECK(tutti_mesh_size(mesh, "dp") == replicas);
		if (scene->dp >= 0)
			CHECK(tutti_size(tutti_mesh_comm(mesh, "dp")) == replicas);
	}
	if (mesh && before && tutti_mesh_coord(before, "dp") < replicas)
		CHECK(mine.place == mine.before); /* it stays where it was */
	CHECK(tutti_all_gather(&mine, all, sizeof mine, TUTTI_U8, comm, NULL) == TUTTI_OK);
	check_all(all, n, replicas, parts);
	tutti_mesh_destroy(mesh);
}

static void live(tutti_comm *comm, void *arg)
{
	const struct scene *scene = arg;
	bool is_dead = scene->dead >> tutti_rank(comm) & 1;
	tutti_comm *left = NULL;
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, scene->axes, 3) == TUTTI_OK);
	CHECK(tutti_comm_split(comm, is_dead && !scene->is_grown ? -1 : 0,
			       scene->is_grown ? -tutti_rank(comm) : 0, NULL, &left) == TUTTI_OK);
	if (left)
		go_on(left, scene, is_dead ? NULL : mesh);
	tutti_mesh_destroy(mesh);
	tutti_comm_destroy(left);
}

static void test_random(void **state)
{
	static const struct scene scenes[] = {
		{{{"dp", 2}, {"pp", 2}, {"tp", 2}}, 8, 0, 0, false},
		{{{"pp", 2}, {"dp", 4}, {"tp", 1}}, 8, 1, 0, false},
		{{{"dp", 3}, {"cp", 2}, {"tp", 2}}, 12, 0, 0, false},
		{{{"dp", 1}, {"pp", 2}, {"tp", 2}}, 4, 0, 0, false},
		{{{"own", 2}, {"pp", 1}, {"tp", 3}}, 6, -1, 0, false}};

	for (int i = 0; i < whole_or(60, 20, 10); i++) {
		struct scene scene = scenes[i % 5];
		int deaths = 1 + (int)random_below(&seed, 4);
		for (int d = 0; d < deaths; d++)
			scene.dead |= 1u << random_below(&seed, (uint64_t)scene.ranks);
		if (scene.dead == (1u << scene.ranks) - 1)
			continue;
		scene.is_grown = random_below(&seed, 2);
		if (ranks_as_threads(scene.ranks, live, &scene) != 0)
			fail_msg("scene %d, dead %#x, grown %d", i % 5, scene.dead, scene.is_grown);
	}
}

static void misuse(tutti_comm *comm, void *arg)
{
	tutti_axis axes[] = {{"dp", 2}, {"tp", 2}};
	tutti_mesh *mesh = NULL, *other = NULL, *next = NULL;

	CHECK_ERROR(tutti_mesh_continue(&next, comm, NULL), TUTTI_ERR_UNSUPPORTED,
		    "no rank has an earlier mesh");
	CHECK_ERROR(tutti_mesh_continue(NULL, comm, NULL), TUTTI_ERR_INVALID, "mesh is NULL");
	CHECK_ERROR(tutti_mesh_continue(&next, NULL, NULL), TUTTI_ERR_INVALID, "comm is NULL");
	CHECK_ERROR(tutti_mesh_abort(NULL), TUTTI_ERR_INVALID, "mesh is NULL");
	CHECK(tutti_mesh_create(&mesh, comm, axes, 2) == TUTTI_OK);
	axes[1].name = "pp";
	CHECK(tutti_mesh_create(&other, comm, axes, 2) == TUTTI_OK);
	CHECK_ERROR(tutti_mesh_continue(&next, comm, tutti_rank(comm) == 2 ? other : mesh),
		    TUTTI_ERR_MISMATCH, "rank 0 was dp=2,tp=2, and that of rank 2 dp=2,pp=2");
	CHECK(next == NULL);
	if (tutti_rank(comm) == 1)
		CHECK(tutti_mesh_abort(mesh) == TUTTI_OK);
	/* All hear of it, in any communicator of the mesh. */
	CHECK(tutti_barrier(tutti_mesh_comm(mesh, tutti_rank(comm) % 2 ? "dp" : "tp"), NULL) !=
	      TUTTI_OK);
	tutti_mesh_destroy(other);
	tutti_mesh_destroy(mesh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), RANKS_TEST(misuse, 4, 4)};

	seed = random_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
