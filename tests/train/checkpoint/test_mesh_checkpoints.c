/* A checkpoint or an export must not depend on the mesh: what is saved on any loads on any other,
 * with the bits of parameters and optimizer state, and exported files are the same byte for byte.
 * So random rounding is that of an element in the whole model. */
#include "tests/train/mesh_toy.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

enum { BEFORE = 2, AFTER = 2, VALUES = MESH_PARAMS * MESH_ELEMENTS };

static const struct {
	const char *axes;
	int ranks;
	tutti_strategy strategy;
} meshes[] = {{"dp=2,tp=2,pp=1", 4, TUTTI_ZERO2},
	      {"", 1, TUTTI_DDP},
	      {"dp=1,tp=2,pp=2", 4, TUTTI_DDP},
	      {"dp=4", 4, TUTTI_FSDP},
	      {"tp=3", 3, TUTTI_ZERO1},
	      {"pp=2,dp=2,ep=2", 8, TUTTI_FSDP},
	      {"tp=5", 5, TUTTI_DDP},
	      {"", 3, TUTTI_FSDP},
	      {"dp=2,pp=3", 6, TUTTI_HSDP}};
enum { MESHES = sizeof meshes / sizeof *meshes };

struct run {
	int mesh, from; /* from: whose checkpoint is loaded; -1: none */
	tutti_dtype dtype;
	char dir[64];
	float values[VALUES];
};

static void path(char text[128], const struct run *run, const char *what, int mesh)
{
	snprintf(text, 128, "%s/%s.%d", run->dir, what, mesh);
}

static void make(struct mesh_toy *toy, tutti_comm *comm, const struct run *run)
{
	tutti_strategy strategy = meshes[run->mesh].strategy;

	mesh_toy_make(toy, comm, meshes[run->mesh].axes,
		      &(tutti_train_config){.strategy = strategy,
					    .param_dtype = run->dtype,
					    .deterministic = 1,
					    .stochastic_rounding = run->dtype == TUTTI_BF16,
					    .shard_size = strategy == TUTTI_HSDP ? 1 : 0,
					    .seed = 3});
}

static void save(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	struct mesh_toy toy;
	char dir[128], file[128];

	path(dir, run, "saved", run->mesh);
	path(file, run, "exported", run->mesh);
	make(&toy, comm, run);
	for (int i = 0; i < BEFORE; i++)
		CHECK(mesh_toy_step(&toy, i, 1, NULL) == TUTTI_OK);
	CHECK(tutti_save(toy.trainer, dir, BEFORE) == TUTTI_OK);
	CHECK(tutti_save_wait(toy.trainer) == TUTTI_OK);
	CHECK(tutti_export_safetensors(toy.trainer, file) == TUTTI_OK);
	mesh_toy_destroy(&toy);
}

static void resume(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	struct mesh_toy toy;
	char dir[128];
	int64_t at;
	float values[VALUES];

	path(dir, run, "saved", run->from);
	make(&toy, comm, run);
	CHECK(tutti_load(toy.trainer, dir, &at) == TUTTI_OK && at == BEFORE);
	for (int i = 0; i < AFTER; i++)
		CHECK(mesh_toy_step(&toy, BEFORE + i, 1, NULL) == TUTTI_OK);
	mesh_toy_read(&toy, values);
	if (tutti_rank(comm) == 0)
		memcpy(run->values, values, sizeof values);
	mesh_toy_destroy(&toy);
}

/* What was exported elsewhere is there after an import. */
static void import(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	struct mesh_toy toy;
	char from[128], to[128];

	path(from, run, "exported", run->from);
	path(to, run, "again", run->mesh);
	make(&toy, comm, run);
	CHECK(tutti_import_safetensors(toy.trainer, from) == TUTTI_OK);
	CHECK(tutti_export_safetensors(toy.trainer, to) == TUTTI_OK);
	mesh_toy_destroy(&toy);
}

static int remove_one(const char *name, const struct stat *about, int type, struct FTW *ftw)
{
	return remove(name);
}

static void assert_same_files(const char *a, const char *b)
{
	char left[8192], right[8192];
	FILE *first = fopen(a, "r"), *second = fopen(b, "r");

	assert_non_null(first);
	assert_non_null(second);
	size_t n = fread(left, 1, sizeof left, first), m = fread(right, 1, sizeof right, second);
	assert_true(n > 1000 && n < sizeof left && n == m);
	assert_memory_equal(left, right, n);
	fclose(first);
	fclose(second);
}

static void all_ways(tutti_dtype dtype)
{
	struct run run = {.dtype = dtype};
	char first[128], other[128];
	float expected[VALUES];

	snprintf(run.dir, sizeof run.dir, "mesh_checkpoints.XXXXXX");
	assert_non_null(mkdtemp(run.dir));
	path(first, &run, "exported", 0);
	for (run.mesh = 0; run.mesh < MESHES; run.mesh++) {
		assert_int_equal(ranks_as_threads(meshes[run.mesh].ranks, save, &run), 0);
		path(other, &run, "exported", run.mesh);
		assert_same_files(first, other);
	}
	for (run.mesh = 0; run.mesh < MESHES; run.mesh++) {
		run.from = (run.mesh * 5 + 1) % MESHES; /* each one once */
		print_message("%s of %d ranks from %s\n", meshes[run.mesh].axes,
			      meshes[run.mesh].ranks, meshes[run.from].axes);
		assert_int_equal(ranks_as_threads(meshes[run.mesh].ranks, resume, &run), 0);
		if (run.mesh == 0)
			memcpy(expected, run.values, sizeof expected);
		assert_memory_equal(expected, run.values, sizeof expected);
		assert_int_equal(ranks_as_threads(meshes[run.mesh].ranks, import, &run), 0);
		path(other, &run, "again", run.mesh);
		assert_same_files(first, other);
	}
	nftw(run.dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void test_f32(void **state)
{
	all_ways(TUTTI_F32);
}

static void test_bf16(void **state)
{
	all_ways(TUTTI_BF16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_f32),
		cmocka_unit_test(test_bf16),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
