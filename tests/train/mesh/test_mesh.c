/* Meshes: which ranks an axis or a combination joins, and in which order; ranks that disagree. */
#include "tests/train/ranks.h"

#include <tutti/parallel.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

/* The ranks of comm, in its order, as "0 2 4". */
static void members(tutti_comm *comm, int own, char *text)
{
	int all[8];

	CHECK(tutti_all_gather(&own, all, 1, TUTTI_I32, comm, NULL) == TUTTI_OK);
	text[0] = '\0';
	for (int r = 0; r < tutti_size(comm); r++)
		sprintf(text + strlen(text), r ? " %d" : "%d", all[r]);
}

static void expect(tutti_mesh *mesh, const char *axes, int own, const char *of_rank_5)
{
	char text[64];
	tutti_comm *comm = tutti_mesh_comm(mesh, axes);

	CHECK(comm != NULL);
	CHECK(comm && comm == tutti_mesh_comm(mesh, axes));
	if (comm)
		members(comm, own, text);
	if (comm && own == 5 && strcmp(text, of_rank_5) != 0) {
		fprintf(stderr, "'%s': %s, not %s\n", axes, text, of_rank_5);
		CHECK(0);
	}
}

static void places(tutti_comm *comm, void *arg)
{
	const tutti_axis axes[] = {{"dp", 2}, {"pp", 0}, {"tp", 2}};
	int own = tutti_rank(comm);
	tutti_mesh *mesh;

	CHECK(tutti_mesh_create(&mesh, comm, axes, 3) == TUTTI_OK);
	CHECK(tutti_mesh_size(mesh, "pp") == 2 && tutti_mesh_size(mesh, "cp") == 1);
	CHECK(tutti_mesh_coord(mesh, "dp") == own / 4 && tutti_mesh_coord(mesh, "cp") == 0);
	CHECK(tutti_mesh_rank(mesh, (int[]){1, 0, 1}) == 5);
	CHECK(tutti_mesh_rank(mesh, (int[]){1, 0, 2}) == -1);
	CHECK(tutti_mesh_rank(mesh, (int[]){-1, 0, 0}) == -1);
	expect(mesh, "dp", own, "1 5");
	expect(mesh, "pp", own, "5 7");
	expect(mesh, "tp", own, "4 5");
	expect(mesh, "dp,tp", own, "0 1 4 5");
	expect(mesh, "tp,dp", own, "0 1 4 5");
	expect(mesh, "pp,tp", own, "4 5 6 7");
	expect(mesh, "dp,pp,tp", own, "0 1 2 3 4 5 6 7");
	expect(mesh, "", own, "5");
	CHECK(tutti_mesh_comm(mesh, "cp") == NULL);
	CHECK_MESSAGE("The mesh has no axis 'cp': it is dp=2,pp=2,tp=2.");
	CHECK(tutti_mesh_comm(mesh, "tp,tp") == NULL);
	CHECK_MESSAGE("names axis 'tp' twice");
	tutti_mesh_destroy(mesh);
}

static void differ(tutti_comm *comm, void *arg)
{
	const tutti_axis axes[] = {{"dp", tutti_rank(comm) == 2 ? 1 : 2},
				   {"tp", tutti_rank(comm) == 2 ? 4 : 2}},
			 wrong[] = {{"dp", 3}};
	tutti_mesh *mesh = NULL;

	CHECK_ERROR(tutti_mesh_create(&mesh, comm, axes, 2), TUTTI_ERR_MISMATCH,
		    "rank 2 has dp=1,tp=4, but rank 0 has dp=2,tp=2");
	CHECK_ERROR(tutti_mesh_create(&mesh, comm, wrong, 1), TUTTI_ERR_INVALID,
		    "dp=3 has 3 ranks, but there are 4");
	CHECK_ERROR(tutti_mesh_create(&mesh, comm, NULL, 0), TUTTI_ERR_INVALID, "TUTTI_MESH");
	CHECK(mesh == NULL);
	CHECK(tutti_mesh_create(&mesh, comm, (tutti_axis[]){{"dp", 2}, {"tp", 2}}, 2) == TUTTI_OK);
	CHECK(tutti_mesh_comm(mesh, tutti_rank(comm) == 3 ? "tp,dp" : "") == NULL);
	CHECK_MESSAGE("rank 3 has 'dp,tp', but rank 0 has ''");
	tutti_mesh_destroy(mesh);
}

static void from_environment(tutti_comm *comm, void *arg)
{
	tutti_mesh *mesh;

	CHECK(tutti_mesh_create(&mesh, comm, NULL, 0) == TUTTI_OK);
	CHECK(tutti_mesh_size(mesh, "tp") == 3);
	tutti_mesh_destroy(mesh);
}

static void test_environment(void **state)
{
	setenv("TUTTI_MESH", "tp=0", 1);
	assert_int_equal(ranks_as_threads(3, from_environment, NULL), 0);
	unsetenv("TUTTI_MESH");
}

/* The library's own use of a rank that fails alone: all hear of it. */
static void one_is_wrong(tutti_comm *comm, void *arg)
{
	tutti_axis axis = {tutti_rank(comm) == 1 ? "DP" : "dp", 2};
	tutti_mesh *mesh = NULL;

	CHECK_ERROR(tutti_mesh_create(&mesh, comm, &axis, 1), TUTTI_ERR_INVALID, "'DP'");
	CHECK_ERROR(tutti_mesh_create(NULL, comm, &axis, 1), TUTTI_ERR_INVALID, "mesh is NULL");
	tutti_mesh_destroy(NULL);
}

/* A program that loses ranks twice aborts the same mesh again, when its communicator is gone. */
static void abort_twice(tutti_comm *comm, void *arg)
{
	const tutti_axis axes[] = {{"dp", 0}};
	tutti_comm *copy;
	tutti_mesh *mesh;

	CHECK(tutti_comm_split(comm, 0, 0, NULL, &copy) == TUTTI_OK);
	CHECK(tutti_mesh_create(&mesh, copy, axes, 1) == TUTTI_OK);
	CHECK(tutti_mesh_abort(mesh) == TUTTI_OK);
	tutti_comm_destroy(copy);
	CHECK(tutti_mesh_abort(mesh) == TUTTI_OK);
	tutti_mesh_destroy(mesh);
}

/* A rank that leaves a communicator in peace has not failed: no later error names it as the first.
 */
static void leave(tutti_comm *comm, void *arg)
{
	tutti_comm *child;
	int own = tutti_rank(comm);

	CHECK(tutti_comm_split(comm, 0, own, NULL, &child) == TUTTI_OK);
	if (own < 2)
		CHECK(tutti_barrier(child, NULL) == TUTTI_ERR_PEER);
	CHECK(own == 2 || strstr(tutti_comm_error(NULL), "has left the communicator"));
	tutti_comm_destroy(child);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	if (own == 1)
		CHECK(tutti_comm_abort(comm) == TUTTI_OK);
	CHECK(tutti_barrier(comm, NULL) != TUTTI_OK);
	CHECK(!strstr(tutti_comm_error(NULL), "failed first"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RANKS_TEST(places, 8, 8),           RANKS_TEST(differ, 4, 4),
		cmocka_unit_test(test_environment), RANKS_TEST(one_is_wrong, 2, 2),
		RANKS_TEST(abort_twice, 2, 2),      RANKS_TEST(leave, 3, 3),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
