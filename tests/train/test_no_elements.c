/* no_tsan: other tests of the trainer run the same code */
/* What would break: parameters of no elements (a dimension is 0), alone in a model, in a unit or
 * beside others, with any strategy: pointers that are NULL, sizes that divide by 0 or count as
 * free, hooks that nobody waits for, and checkpoints and exports that lose their shapes. */
#include "tests/train/ranks.h"
#include "tests/train/saved.h"

#include "train/checkpoint/safetensors.h"

#include <tutti/parallel.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { MOST_PARAMS = 6, MOST_ELEMENTS = 12, STEPS = 2 };

struct described {
	int unit, ndim;
	int64_t shape[3];
	unsigned flags;
};

static const struct layout {
	const char *name;
	int units, count;
	struct described params[MOST_PARAMS];
	int tied; /* the last unit uses it, too; -1: none */
} layouts[] = {
	{"one parameter", 1, 1, {{0, 2, {0, 16}, 0}}, -1},
	{"two units", 2, 2, {{0, 1, {0}, 0}, {1, 3, {4, 0, 2}, 0}}, 0},
	{"a unit among others",
	 3,
	 6,
	 {{0, 2, {4, 3}, 0},
	  {1, 2, {0, 16}, 0},
	  {1, 3, {3, 0, 2}, TUTTI_PARAM_NO_DECAY},
	  {2, 1, {5}, 0},
	  {2, 1, {0}, 0},
	  {2, 1, {7}, TUTTI_PARAM_FROZEN}},
	 1},
	{"frozen, and not sharded",
	 2,
	 4,
	 {{0, 1, {7}, 0},
	  {1, 2, {0, 3}, TUTTI_PARAM_FROZEN},
	  {1, 1, {0}, TUTTI_PARAM_NO_SHARD},
	  {0, 2, {2, 0}, TUTTI_PARAM_FROZEN | TUTTI_PARAM_NO_SHARD}},
	 -1},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static const tutti_optimizer adamw = {.kind = TUTTI_ADAMW,
				      .lr = 0.05f,
				      .beta1 = 0.9f,
				      .beta2 = 0.95f,
				      .eps = 1e-8f,
				      .weight_decay = 0.1f};

struct run {
	const struct layout *layout;
	tutti_train_config config;
	int is_extern; /* the caller's memory, which is NULL where there are no elements */
	float values[MOST_PARAMS][MOST_ELEMENTS];
};

/* A rank's own. */
struct own {
	const struct run *run;
	tutti_trainer *trainer;
	float data[MOST_PARAMS][MOST_ELEMENTS], grad[MOST_PARAMS][MOST_ELEMENTS];
};

static size_t count_of(const struct described *param)
{
	size_t count = 1;

	for (int i = 0; i < param->ndim; i++)
		count *= (size_t)param->shape[i];
	return count;
}

static int register_param(tutti_model *model, struct own *own, int p)
{
	const struct described *d = &own->run->layout->params[p];
	bool is_empty = count_of(d) == 0;
	char name[16];

	snprintf(name, sizeof name, "p%d", p);
	if (!own->run->is_extern)
		return tutti_model_param(model, d->unit, name, d->ndim, d->shape, d->flags);
	return tutti_model_param_extern(model, d->unit, name, d->ndim, d->shape, TUTTI_F32,
					is_empty ? NULL : own->data[p],
					is_empty ? NULL : own->grad[p], d->flags);
}

static tutti_model *make_model(struct own *own)
{
	const struct layout *layout = own->run->layout;
	tutti_model *model;
	char name[16];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	for (int u = 0; u < layout->units; u++) {
		snprintf(name, sizeof name, "u%d", u);
		CHECK(tutti_model_unit(model, name) == u);
		CHECK(tutti_model_unit_stage(model, u, u) == TUTTI_OK);
	}
	for (int p = 0; p < layout->count; p++)
		CHECK(register_param(model, own, p) == p);
	if (layout->tied >= 0)
		CHECK(tutti_model_unit_uses(model, layout->units - 1, layout->tied) == TUTTI_OK);
	CHECK(tutti_model_buffer(model, "none", TUTTI_F64, 0, NULL) == 0);
	return model;
}

static void make(struct own *own, const struct run *run, tutti_comm *comm)
{
	*own = (struct own){.run = run};
	tutti_model *model = make_model(own);
	CHECK(tutti_trainer_create(&own->trainer, model, comm, &run->config) == TUTTI_OK);
	tutti_model_destroy(model);
	for (int p = 0; p < run->layout->count; p++)
		CHECK(tutti_param_init_normal(own->trainer, p, 0, 1) == TUTTI_OK);
}

static bool uses(const struct layout *layout, int unit, int p)
{
	return layout->params[p].unit == unit || (p == layout->tied && unit == layout->units - 1);
}

static void forward(const struct own *own, int unit)
{
	CHECK(tutti_forward_begin(own->trainer, unit) == TUTTI_OK);
	for (int p = 0; p < own->run->layout->count; p++)
		if (uses(own->run->layout, unit, p))
			CHECK(tutti_param_data(own->trainer, p) != NULL);
	CHECK(tutti_forward_end(own->trainer, unit) == TUTTI_OK);
}

/* The same small integers on all ranks: exact sums, whatever is added first. */
static void add(const struct own *own, int p)
{
	const struct described *d = &own->run->layout->params[p];
	void *grad = tutti_param_grad(own->trainer, p);

	CHECK((grad != NULL) == !(d->flags & TUTTI_PARAM_FROZEN));
	for (size_t i = 0; grad && i < count_of(d); i++)
		((float *)grad)[i] += (float)(1 + (i + (size_t)p) % 3);
}

static void backward(const struct own *own, int unit)
{
	CHECK(tutti_backward_begin(own->trainer, unit) == TUTTI_OK);
	for (int p = 0; p < own->run->layout->count; p++)
		if (own->run->layout->params[p].unit == unit)
			add(own, p);
	CHECK(tutti_backward_end(own->trainer, unit) == TUTTI_OK);
}

static void pass(const struct own *own, tutti_pass which)
{
	int units = own->run->layout->units;

	CHECK(tutti_micro_batch(own->trainer, which, 1, NULL) == TUTTI_OK);
	for (int u = 0; u < units; u++)
		forward(own, u);
	for (int u = units - 1; u >= 0 && which != TUTTI_PASS_EVAL; u--)
		backward(own, u);
}

static bool has_elements(const struct layout *layout)
{
	size_t count = 0;

	for (int p = 0; p < layout->count; p++)
		count += count_of(&layout->params[p]);
	return count > 0;
}

static void step(const struct own *own)
{
	tutti_step_info info;

	pass(own, TUTTI_PASS_ACCUMULATE);
	pass(own, TUTTI_PASS_EVAL);
	pass(own, TUTTI_PASS_LAST);
	CHECK(tutti_step(own->trainer, &adamw, 1, &info) == TUTTI_OK && !info.skipped);
	CHECK(has_elements(own->run->layout) ? info.grad_norm > 0 : info.grad_norm == 0);
}

static void read_values(const struct own *own, float values[MOST_PARAMS][MOST_ELEMENTS])
{
	memset(values, 0, sizeof(float[MOST_PARAMS][MOST_ELEMENTS]));
	for (int p = 0; p < own->run->layout->count; p++)
		CHECK(tutti_param_read(own->trainer, p, 0, count_of(&own->run->layout->params[p]),
				       values[p]) == TUTTI_OK);
}

static void keep_values(const struct own *own, tutti_comm *comm, struct run *run)
{
	float values[MOST_PARAMS][MOST_ELEMENTS];

	read_values(own, values);
	if (tutti_rank(comm) == 0)
		memcpy(run->values, values, sizeof values);
}

/* Calls on one parameter of no elements. */
static void look_at(const struct own *own, int p)
{
	tutti_shard shard;
	float value = 0;

	CHECK(tutti_param_read(own->trainer, p, 0, 0, NULL) == TUTTI_OK);
	CHECK(tutti_param_write(own->trainer, p, 0, 0, NULL) == TUTTI_OK);
	CHECK(tutti_param_init_constant(own->trainer, p, 1) == TUTTI_OK);
	CHECK_ERROR(tutti_param_read(own->trainer, p, 0, 1, &value), TUTTI_ERR_INVALID,
		    "which has 0");
	CHECK(tutti_param_shard(own->trainer, p, &shard) == TUTTI_OK && shard.count == 0);
}

static void train(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	tutti_train_stats stats;
	struct own own;

	make(&own, run, comm);
	for (int p = 0; p < run->layout->count; p++)
		if (count_of(&run->layout->params[p]) == 0)
			look_at(&own, p);
	for (int i = 0; i < STEPS; i++)
		step(&own);
	CHECK(tutti_check_replicas(own.trainer) == TUTTI_OK);
	CHECK(tutti_trainer_stats(own.trainer, &stats) == TUTTI_OK);
	/* A shadow counts its gradients with their padding, which is all there is. */
	size_t padding = run->config.shadow ? 64 * (size_t)run->layout->units : 0;
	CHECK(has_elements(run->layout) ||
	      stats.param_bytes + stats.grad_bytes + stats.optimizer_bytes <= padding);
	keep_values(&own, comm, run);
	tutti_trainer_destroy(own.trainer);
}

static const struct variant {
	const char *name;
	tutti_train_config config;
	int is_extern;
} variants[] = {
	/* the norm has the same bits with deterministic only */
	{"plain", {.seed = 5}, 0},
	{"deterministic 1", {.max_grad_norm = 1, .deterministic = 1}, 0},
	{"deterministic 2", {.max_grad_norm = 1, .deterministic = 2}, 0},
	{"whole tensors, small buckets", {.whole_tensors = 1, .bucket_bytes = 1}, 0},
	{"a shadow, kept units", {.shadow = 1, .keep_after_forward = 1}, 0},
	{"bf16", {.param_dtype = TUTTI_BF16, .stochastic_rounding = 1}, 0},
	{"state in files", {.offload_dir = "/tmp"}, 0},
	{"the caller's memory", {.max_grad_norm = 1, .deterministic = 1}, 1},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static tutti_train_config config_of(const struct variant *variant, tutti_strategy strategy,
				    int ranks)
{
	tutti_train_config config = variant->config;

	config.strategy = strategy;
	config.seed = 5;
	config.shard_size = strategy == TUTTI_HSDP && ranks % 2 == 0 ? 2 : 1;
	config.local_sgd_steps = strategy == TUTTI_LOCAL_SGD;
	return config;
}

static bool is_possible(const struct variant *variant, tutti_strategy strategy)
{
	return !variant->is_extern || strategy == TUTTI_DDP || strategy == TUTTI_ZERO1 ||
	       strategy == TUTTI_LOCAL_SGD;
}

/* All ways give the bits of one rank, which has none of the variants but its types. */
static void test_strategies(void **state)
{
	for (int l = 0; l < LAYOUTS; l++)
		for (int v = 0; v < VARIANTS; v++) {
			struct run one = {.layout = &layouts[l],
					  .config = config_of(&variants[v], TUTTI_DDP, 1)};
			assert_int_equal(ranks_as_threads(1, train, &one), 0);
			for (int s = TUTTI_DDP; s <= TUTTI_LOCAL_SGD; s++)
				for (int n = 1; n <= 4; n += n) {
					tutti_strategy strategy = (tutti_strategy)s;
					struct run run = {
						.layout = &layouts[l],
						.config = config_of(&variants[v], strategy, n),
						.is_extern = variants[v].is_extern};
					if (!is_possible(&variants[v], strategy))
						continue;
					print_message("%s, %s, strategy %d, %d ranks\n",
						      layouts[l].name, variants[v].name, s, n);
					assert_int_equal(ranks_as_threads(n, train, &run), 0);
					assert_memory_equal(run.values, one.values,
							    sizeof run.values);
				}
		}
}

/* An update of the caller's own, and a trainer that continues from another one. */
static void update_and_continue(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	struct own own, next;
	int64_t steps;
	float before[MOST_PARAMS][MOST_ELEMENTS], after[MOST_PARAMS][MOST_ELEMENTS];

	make(&own, run, comm);
	step(&own);
	pass(&own, TUTTI_PASS_LAST);
	CHECK(tutti_grads_finish(own.trainer, NULL) == TUTTI_OK);
	CHECK(tutti_params_updated(own.trainer) == TUTTI_OK);
	step(&own);
	make(&next, run, comm);
	CHECK(tutti_trainer_continue(next.trainer, own.trainer, &steps) == TUTTI_OK);
	CHECK(steps == 3);
	read_values(&own, before);
	read_values(&next, after);
	CHECK(memcmp(before, after, sizeof before) == 0);
	tutti_trainer_destroy(own.trainer);
	step(&next);
	tutti_trainer_destroy(next.trainer);
}

static void test_update_and_continue(void **state)
{
	for (int l = 0; l < LAYOUTS; l++)
		for (int s = TUTTI_DDP; s <= TUTTI_HSDP; s++) {
			struct run run = {.layout = &layouts[l],
					  .config = config_of(&variants[0], (tutti_strategy)s, 2)};
			assert_int_equal(ranks_as_threads(2, update_and_continue, &run), 0);
		}
}

/* Its hook is waited for as any other. */
static void miss_hook(tutti_comm *comm, void *arg)
{
	struct own own;

	make(&own, arg, comm);
	CHECK(tutti_micro_batch(own.trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	for (int u = 0; u < 2; u++)
		forward(&own, u);
	backward(&own, 0);
	if (tutti_rank(comm) == 0)
		backward(&own, 1);
	CHECK_ERROR(tutti_step(own.trainer, &adamw, 1, NULL), TUTTI_ERR_INVALID,
		    "Rank 1 did not finish the gradient of parameter 'p0' of unit 'u0'");
	step(&own);
	tutti_trainer_destroy(own.trainer);
}

static void test_missing_hook(void **state)
{
	for (int s = TUTTI_DDP; s <= TUTTI_ZERO2; s++) {
		struct run run = {.layout = &layouts[1],
				  .config = config_of(&variants[0], (tutti_strategy)s, 2)};
		assert_int_equal(ranks_as_threads(2, miss_hook, &run), 0);
	}
}

/* Ranks compare shapes that have as many elements. */
static void other_shape(tutti_comm *comm, void *arg)
{
	const int64_t shapes[2][2] = {{0, 16}, {16, 0}};
	tutti_model *model;
	tutti_trainer *trainer = NULL;

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	CHECK(tutti_model_unit(model, "u") == 0);
	CHECK(tutti_model_param(model, 0, "p", 2, shapes[tutti_rank(comm)], 0) == 0);
	CHECK_ERROR(tutti_trainer_create(&trainer, model, comm, NULL), TUTTI_ERR_MISMATCH,
		    "parameter 'p' of unit 'u': f32 [16, 0]");
	tutti_model_destroy(model);
}

/* ---- files ---- */

struct files {
	struct run run;
	char file[128];
};

static void save(tutti_comm *comm, void *arg)
{
	struct files *files = arg;
	struct own own;

	make(&own, &files->run, comm);
	step(&own);
	CHECK(tutti_save(own.trainer, saved_dir, 1) == TUTTI_OK);
	CHECK(tutti_save_wait(own.trainer) == TUTTI_OK);
	CHECK(tutti_export_safetensors(own.trainer, files->file) == TUTTI_OK);
	step(&own);
	keep_values(&own, comm, &files->run);
	tutti_trainer_destroy(own.trainer);
}

/* Loaded, the training goes on; imported, the parameters are those of the save. */
static void load(tutti_comm *comm, void *arg)
{
	struct files *files = arg;
	float loaded[MOST_PARAMS][MOST_ELEMENTS], imported[MOST_PARAMS][MOST_ELEMENTS];
	struct own own;
	int64_t at;

	make(&own, &files->run, comm);
	CHECK(tutti_load(own.trainer, saved_dir, &at) == TUTTI_OK && at == 1);
	read_values(&own, loaded);
	step(&own);
	keep_values(&own, comm, &files->run);
	CHECK(tutti_import_safetensors(own.trainer, files->file) == TUTTI_OK);
	read_values(&own, imported);
	CHECK(memcmp(loaded, imported, sizeof loaded) == 0);
	tutti_trainer_destroy(own.trainer);
}

/* A parameter of no elements, too, has one shape. */
static void refuse(tutti_comm *comm, void *arg)
{
	struct files *files = arg;
	struct layout other = *files->run.layout;
	struct run run = {.layout = &other, .config = files->run.config};
	struct own own;
	int64_t at;

	for (int p = 0; p < other.count; p++)
		if (other.params[p].ndim == 2) { /* {0, 16} becomes {16, 0} */
			int64_t first = other.params[p].shape[0];
			other.params[p].shape[0] = other.params[p].shape[1];
			other.params[p].shape[1] = first;
		}
	make(&own, &run, comm);
	CHECK_ERROR(tutti_load(own.trainer, saved_dir, &at), TUTTI_ERR_INVALID,
		    "has another shape there");
	CHECK_ERROR(tutti_import_safetensors(own.trainer, files->file), TUTTI_ERR_INVALID,
		    "has another shape there");
	tutti_trainer_destroy(own.trainer);
}

/* Another reader sees the shapes. */
static void read_by_python(const struct files *files)
{
	const struct layout *layout = files->run.layout;
	const char *source = getenv("SOURCE_DIR");
	char text[4096], line[100];

	if (!saved_has_python())
		return;
	snprintf(text, sizeof text,
		 "python3 '%s/tests/train/checkpoint/safetensors.py' values '%s'",
		 source ? source : ".", files->file);
	FILE *pipe = popen(text, "r");
	assert_non_null(pipe);
	text[fread(text, 1, sizeof text - 1, pipe)] = '\0';
	assert_int_equal(pclose(pipe), 0);
	for (int p = 0; p < layout->count; p++) {
		const struct described *d = &layout->params[p];
		int n = snprintf(line, sizeof line, "\"p%d\" F32 [", p);
		for (int i = 0; i < d->ndim; i++)
			n += snprintf(line + n, sizeof line - (size_t)n, "%s%d", i ? ", " : "",
				      (int)d->shape[i]);
		snprintf(line + n, sizeof line - (size_t)n, count_of(d) ? "]: " : "]:\n");
		assert_non_null(strstr(text, line));
	}
}

static void test_files(void **state)
{
	for (int l = 0; l < LAYOUTS; l++)
		for (int s = TUTTI_DDP; s <= TUTTI_HSDP; s++) {
			int other = TUTTI_HSDP - s;
			struct files saved = {
				.run = {.layout = &layouts[l],
					.config = config_of(&variants[s % 3], (tutti_strategy)s,
							    1 + s % 3)}};
			struct files loaded = {
				.run = {.layout = &layouts[l],
					.config = config_of(&variants[s % 3], (tutti_strategy)other,
							    1 + other)}};
			print_message("%s, strategy %d, then %d\n", layouts[l].name, s, other);
			saved_remove(saved_dir);
			saved_folder(saved_dir);
			snprintf(saved.file, sizeof saved.file, "%s/exported", saved_dir);
			strcpy(loaded.file, saved.file);
			assert_int_equal(ranks_as_threads(1 + s % 3, save, &saved), 0);
			assert_int_equal(ranks_as_threads(1 + other, load, &loaded), 0);
			assert_memory_equal(saved.run.values, loaded.run.values,
					    sizeof saved.run.values);
			if (l != 1) /* no parameter of two dimensions */
				assert_int_equal(ranks_as_threads(2, refuse, &saved), 0);
			read_by_python(&saved);
		}
}

/* ---- meshes ---- */

/* Each unit is a stage, of which some have no elements at all; p0 is split along its rows. */
static void on_a_mesh(tutti_comm *comm, void *arg)
{
	static const tutti_axis axes[] = {{"dp", 2}, {"pp", 2}, {"tp", 2}};
	const struct run *run = arg;
	struct own own = {.run = run};
	tutti_model *model = make_model(&own);
	tutti_mesh *mesh;
	tutti_train_stats estimate, stats;
	float values[MOST_PARAMS][MOST_ELEMENTS];

	CHECK(tutti_model_param_split(model, 0, "tp", 0) == TUTTI_OK);
	CHECK(tutti_memory_estimate_on(model, axes, 3, &run->config, &estimate) == TUTTI_OK);
	CHECK(tutti_mesh_create(&mesh, comm, axes, 3) == TUTTI_OK);
	CHECK(tutti_trainer_create_on(&own.trainer, model, mesh, &run->config) == TUTTI_OK);
	tutti_model_destroy(model);
	CHECK(tutti_micro_batch(own.trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	for (int u = 0; u < run->layout->units; u++)
		if (u % 2 == tutti_mesh_coord(mesh, "pp"))
			CHECK(unit_forward(own.trainer, u) == TUTTI_OK);
	for (int u = run->layout->units - 1; u >= 0; u--)
		if (u % 2 == tutti_mesh_coord(mesh, "pp"))
			CHECK(unit_backward(own.trainer, u) == TUTTI_OK);
	CHECK(tutti_step(own.trainer, &adamw, 1, NULL) == TUTTI_OK);
	CHECK(tutti_check_replicas(own.trainer) == TUTTI_OK);
	read_values(&own, values);
	CHECK(tutti_trainer_stats(own.trainer, &stats) == TUTTI_OK);
	CHECK(stats.param_bytes <= estimate.param_bytes);
	tutti_trainer_destroy(own.trainer);
	tutti_mesh_destroy(mesh);
}

static void test_meshes(void **state)
{
	for (int l = 0; l < LAYOUTS; l++)
		for (int s = TUTTI_DDP; s <= TUTTI_HSDP; s++) {
			struct run run = {.layout = &layouts[l],
					  .config = config_of(&variants[0], (tutti_strategy)s, 2)};
			print_message("%s, strategy %d on a mesh\n", layouts[l].name, s);
			assert_int_equal(ranks_as_threads(8, on_a_mesh, &run), 0);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strategies),
		cmocka_unit_test(test_update_and_continue),
		cmocka_unit_test(test_missing_hook),
		RANKS_TEST(other_shape, 2, 2),
		cmocka_unit_test(test_meshes),
		cmocka_unit_test_setup_teardown(test_files, saved_setup, saved_teardown),
	};

	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
