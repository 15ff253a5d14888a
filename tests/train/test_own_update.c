/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: an update of the caller's own that trains something else, with some strategy or
 * number of ranks; and writes next to the slices of a tensor that stacks all layers.
 *
 * Gradients are small integers, one of them drawn from the sign of the value that forward sees. So
 * sums are exact, and an update that a rank has not seen shows in the next step. */
#include "tests/train/ranks.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

/* Two stacked tensors of seven layers, of which four are trained; the others must not change. */
enum { UNITS = 4, LAYERS = 7, W = 30, B = 7, PARAMS = 2 * UNITS, MOST = W };
enum { SAMPLES = 8, STEPS = 3, HELD = LAYERS * (W + B) };
static const int layer_of[UNITS] = {1, 2, 4, 5};
static const float lr = 0.375f;
enum { NOBODYS = 0xa5 };

static size_t count_of(int param)
{
	return param % 2 == 0 ? W : B;
}

static size_t bytes_of(tutti_dtype dtype)
{
	return dtype == TUTTI_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* The caller's memory, as bytes, since values may be of 16 bits. */
struct stacked {
	unsigned char data[HELD * sizeof(float)], grad[HELD * sizeof(float)];
};

/* The first element of a parameter in them. */
static size_t place_of(int param)
{
	size_t layer = (size_t)layer_of[param / 2];
	return param % 2 == 0 ? layer * W : LAYERS * W + layer * B;
}

struct variant {
	const char *name;
	tutti_train_config config;
	bool is_extern;
	int shards; /* ranks of a shard group; 0: all */
};

#define COMMON .seed = 7, .deterministic = 1, .max_grad_norm = 1.5f, .bucket_bytes = 200

static const struct variant variants[] = {
	{"ddp", {COMMON, .strategy = TUTTI_DDP}, false, 1},
	{"ddp in stacked tensors", {COMMON, .strategy = TUTTI_DDP}, true, 1},
	{"zero1", {COMMON, .strategy = TUTTI_ZERO1}, false, 0},
	{"zero1 in stacked tensors", {COMMON, .strategy = TUTTI_ZERO1}, true, 0},
	{"zero1 of whole stacked tensors",
	 {COMMON, .strategy = TUTTI_ZERO1, .whole_tensors = 1},
	 true,
	 0},
	{"zero2", {COMMON, .strategy = TUTTI_ZERO2}, false, 0},
	{"zero2 of whole tensors", {COMMON, .strategy = TUTTI_ZERO2, .whole_tensors = 1}, false, 0},
	{"fsdp", {COMMON, .strategy = TUTTI_FSDP}, false, 0},
	{"fsdp of whole tensors", {COMMON, .strategy = TUTTI_FSDP, .whole_tensors = 1}, false, 0},
	{"fsdp that keeps after forward",
	 {COMMON, .strategy = TUTTI_FSDP, .keep_after_forward = 1},
	 false,
	 0},
	{"hsdp", {COMMON, .strategy = TUTTI_HSDP, .shard_size = 2}, false, 2},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* types[0] is of parameters, types[1] of gradients. */
struct run {
	const struct variant *variant;
	const tutti_dtype *types;
	bool by_step; /* tutti_step, else the update below */
	int micro_batches;
	float values[PARAMS][MOST]; /* rank 0's, at the end */
};

struct own {
	struct run *run;
	tutti_comm *comm;
	tutti_trainer *trainer;
	int rank, size;
	struct stacked memory;
};

static int add_param(tutti_model *model, struct own *own, int p)
{
	const int64_t shapes[2][2] = {{5, 6}, {B, 1}};
	const tutti_dtype *types = own->run->types;
	int unit = p / 2, ndim = 2 - p % 2;
	char name[32];

	snprintf(name, sizeof name, "h.%d.%s", unit, p % 2 == 0 ? "w" : "b");
	if (!own->run->variant->is_extern)
		return tutti_model_param(model, unit, name, ndim, shapes[p % 2], 0);
	return tutti_model_param_extern(model, unit, name, ndim, shapes[p % 2], types[0],
					own->memory.data + place_of(p) * bytes_of(types[0]),
					own->memory.grad + place_of(p) * bytes_of(types[1]), 0);
}

static void start(struct own *own, tutti_comm *comm, struct run *run)
{
	tutti_train_config config = run->variant->config;
	tutti_model *model;
	char name[32];

	*own = (struct own){
		.run = run, .comm = comm, .rank = tutti_rank(comm), .size = tutti_size(comm)};
	memset(&own->memory, NOBODYS, sizeof own->memory);
	config.param_dtype = run->types[0];
	config.grad_dtype = run->types[1];
	CHECK(tutti_model_create(&model) == TUTTI_OK);
	for (int u = 0; u < UNITS; u++) {
		snprintf(name, sizeof name, "h.%d", u);
		CHECK(tutti_model_unit(model, name) == u);
	}
	for (int p = 0; p < PARAMS; p++)
		CHECK(add_param(model, own, p) == p);
	CHECK(tutti_model_unit_uses(model, UNITS - 1, 0) == TUTTI_OK); /* tied */
	CHECK(tutti_trainer_create(&own->trainer, model, comm, &config) == TUTTI_OK);
	tutti_model_destroy(model);
	for (int p = 0; p < PARAMS; p++)
		CHECK(tutti_param_init_normal(own->trainer, p, 0.5f, 2) == TUTTI_OK);
}

static float widened(const void *values, tutti_dtype dtype, size_t i)
{
	uint32_t bits;
	float wide;

	if (dtype == TUTTI_F32)
		return ((const float *)values)[i];
	bits = (uint32_t)((const uint16_t *)values)[i] << 16;
	memcpy(&wide, &bits, sizeof wide);
	return wide;
}

/* Of small integers, which BF16 holds. */
static void add_to(void *grad, tutti_dtype dtype, size_t i, float what)
{
	float sum = widened(grad, dtype, i) + what;
	uint32_t bits;

	if (dtype == TUTTI_F32) {
		((float *)grad)[i] = sum;
		return;
	}
	memcpy(&bits, &sum, sizeof bits);
	CHECK((bits & 0xffff) == 0);
	((uint16_t *)grad)[i] = (uint16_t)(bits >> 16);
}

static void add_sample(struct own *own, int p, int unit, int sample)
{
	const tutti_dtype *types = own->run->types;
	const void *data = tutti_param_data(own->trainer, p);
	void *grad = tutti_param_grad(own->trainer, p);

	CHECK(data && grad);
	for (size_t i = 0; data && grad && i < count_of(p); i++) {
		int what = (sample * 31 + p * 7 + (int)i * 3 + unit * 5) % 5 - 2;
		what += widened(data, types[0], i) > 0;
		add_to(grad, types[1], i, (float)what);
	}
}

static void micro_batch(struct own *own, tutti_pass pass, int number)
{
	tutti_trainer *t = own->trainer;
	int first = number * SAMPLES + SAMPLES * own->rank / own->size;
	int last = number * SAMPLES + SAMPLES * (own->rank + 1) / own->size;

	CHECK(tutti_micro_batch(t, pass, last - first, NULL) == TUTTI_OK);
	CHECK(units_forward(t, UNITS) == TUTTI_OK);
	for (int u = UNITS - 1; u >= 0; u--) {
		CHECK(tutti_backward_begin(t, u) == TUTTI_OK);
		for (int sample = first; sample < last; sample++) {
			add_sample(own, 2 * u, u, sample);
			add_sample(own, 2 * u + 1, u, sample);
			if (u == UNITS - 1)
				add_sample(own, 0, u, sample);
		}
		CHECK(tutti_backward_end(t, u) == TUTTI_OK);
	}
}

/* Every element of a parameter belongs to as many ranks as there are shard groups. */
static void check_shares(const struct own *own, int p, const tutti_shard *shard)
{
	const struct variant *variant = own->run->variant;
	int groups = own->size / (variant->shards ? variant->shards : own->size);
	uint64_t held[MOST] = {0};

	CHECK(shard->first + shard->count <= count_of(p));
	CHECK(!variant->config.whole_tensors || shard->count == 0 || shard->count == count_of(p));
	for (size_t i = 0; i < shard->count; i++)
		held[shard->first + i] = 1;
	CHECK(tutti_all_reduce(held, held, count_of(p), TUTTI_U64, TUTTI_SUM, own->comm, NULL) ==
	      TUTTI_OK);
	for (size_t i = 0; i < count_of(p); i++)
		CHECK(held[i] == (uint64_t)groups);
}

static void update(struct own *own)
{
	tutti_trainer *t = own->trainer;

	CHECK(tutti_grads_finish(t, NULL) == TUTTI_OK);
	for (int p = 0; p < PARAMS; p++) {
		tutti_shard shard;
		CHECK(tutti_param_shard(t, p, &shard) == TUTTI_OK);
		check_shares(own, p, &shard);
		CHECK(shard.count == 0 || (shard.values && shard.grad));
		CHECK(shard.count == 0 || shard.grad_dtype == TUTTI_F32); /* reduce_dtype */
		for (size_t i = 0; i < shard.count; i++) {
			/* volatile: rounded after each operation, on every machine. */
			volatile float change = lr * widened(shard.grad, shard.grad_dtype, i);
			shard.values[i] -= change;
		}
	}
	CHECK(tutti_params_updated(t) == TUTTI_OK);
}

static void train_steps(struct own *own)
{
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = lr};
	int micro_batches = own->run->micro_batches;

	for (int step = 0; step < STEPS; step++) {
		for (int m = 0; m < micro_batches; m++)
			micro_batch(own,
				    m + 1 < micro_batches ? TUTTI_PASS_ACCUMULATE : TUTTI_PASS_LAST,
				    step * 10 + m);
		if (own->run->by_step)
			CHECK(tutti_step(own->trainer, &sgd, 1, NULL) == TUTTI_OK);
		else
			update(own);
	}
}

/* The memory around the slices is unchanged. */
static void check_neighbours(const struct own *own, const unsigned char *bytes, tutti_dtype dtype)
{
	bool is_ours[HELD] = {false};

	for (int p = 0; p < PARAMS && own->run->variant->is_extern; p++)
		memset(is_ours + place_of(p), true, count_of(p));
	for (size_t i = 0; i < HELD * sizeof(float); i++) {
		size_t element = i / bytes_of(dtype);
		CHECK((element < HELD && is_ours[element]) || bytes[i] == NOBODYS);
	}
}

static void train(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	float values[MOST];
	struct own own;

	start(&own, comm, run);
	train_steps(&own);
	CHECK(tutti_check_replicas(own.trainer) == TUTTI_OK);
	for (int p = 0; p < PARAMS; p++) {
		CHECK(tutti_param_read(own.trainer, p, 0, count_of(p), values) == TUTTI_OK);
		if (own.rank == 0)
			memcpy(run->values[p], values, count_of(p) * sizeof *values);
		const unsigned char *slice =
			own.memory.data + place_of(p) * bytes_of(run->types[0]);
		for (size_t i = 0; i < count_of(p) && run->variant->is_extern; i++)
			CHECK(fabsf(widened(slice, run->types[0], i) - values[i]) <=
			      (run->types[0] == TUTTI_F32 ? 0 : fabsf(values[i]) / 256));
	}
	check_neighbours(&own, own.memory.data, run->types[0]);
	check_neighbours(&own, own.memory.grad, run->types[1]);
	tutti_trainer_destroy(own.trainer);
}

static void all_variants(const tutti_dtype types[2], int micro_batches)
{
	struct run expected = {.variant = &variants[0],
			       .types = types,
			       .by_step = true,
			       .micro_batches = micro_batches};

	assert_int_equal(ranks_as_threads(1, train, &expected), 0);
	for (int v = 0; v < VARIANTS; v++)
		for (int n = 1; n <= 4; n++) {
			struct run run = {.variant = &variants[v],
					  .types = types,
					  .micro_batches = micro_batches};
			if (variants[v].shards > 1 && n % variants[v].shards != 0)
				continue;
			assert_int_equal(ranks_as_threads(n, train, &run), 0);
			if (memcmp(run.values, expected.values, sizeof run.values) != 0)
				fail_msg("%s on %d ranks, %d micro-batches, types %d and %d: other "
					 "parameters than tutti_step's",
					 variants[v].name, n, micro_batches, (int)types[0],
					 (int)types[1]);
		}
}

static void test_as_tutti_step(void **state)
{
	static const tutti_dtype f32[2] = {TUTTI_F32, TUTTI_F32};
	all_variants(f32, 1);
	all_variants(f32, 2);
}

/* The master copy is updated in f32; gradients of 16 bits are widened and added. */
static void test_of_16_bits(void **state)
{
	static const tutti_dtype wide_grads[2] = {TUTTI_BF16, TUTTI_F32};
	static const tutti_dtype narrow_grads[2] = {TUTTI_BF16, TUTTI_BF16};
	all_variants(wide_grads, 2);
	all_variants(narrow_grads, 1);
}

enum { LARGE = 1 << 18, LARGE_UNITS = 2, LARGE_LAYERS = 4 };

struct large {
	float data[LARGE_LAYERS][LARGE], grad[LARGE_LAYERS][LARGE];
};

static tutti_trainer *start_large(tutti_comm *comm, struct large *large, tutti_strategy strategy)
{
	const tutti_train_config config = {.strategy = strategy};
	const int64_t shape = LARGE;
	tutti_trainer *trainer;
	tutti_model *model;
	char name[32];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	for (int u = 0; u < LARGE_UNITS; u++) {
		snprintf(name, sizeof name, "h.%d", u);
		CHECK(tutti_model_unit(model, name) == u);
		CHECK(tutti_model_param_extern(model, u, name, 1, &shape, TUTTI_F32,
					       large->data[u + 1], large->grad[u + 1], 0) == u);
	}
	CHECK(tutti_trainer_create(&trainer, model, comm, &config) == TUTTI_OK);
	tutti_model_destroy(model);
	for (int p = 0; p < LARGE_UNITS; p++)
		CHECK(tutti_param_init_constant(trainer, p, (float)p) == TUTTI_OK);
	return trainer;
}

static void step_large(tutti_trainer *t, struct large *large, int rank)
{
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(units_forward(t, LARGE_UNITS) == TUTTI_OK);
	for (int u = LARGE_UNITS - 1; u >= 0; u--) {
		CHECK(tutti_backward_begin(t, u) == TUTTI_OK);
		for (size_t i = 0; i < LARGE; i++)
			large->grad[u + 1][i] += (float)((i + (size_t)rank) % 16);
		CHECK(tutti_backward_end(t, u) == TUTTI_OK);
	}
	CHECK(tutti_grads_finish(t, NULL) == TUTTI_OK);
	for (int p = 0; p < LARGE_UNITS; p++) {
		tutti_shard shard;
		CHECK(tutti_param_shard(t, p, &shard) == TUTTI_OK);
		for (size_t i = 0; i < shard.count; i++)
			shard.values[i] -= lr * ((const float *)shard.grad)[i];
	}
	CHECK(tutti_params_updated(t) == TUTTI_OK);
	for (int u = 0; u < LARGE_UNITS; u++)
		CHECK(tutti_param_data(t, u) == large->data[u + 1]);
}

static void train_large(tutti_comm *comm, void *arg)
{
	const tutti_strategy *strategy = arg;
	struct large *large = malloc(sizeof *large), *fresh = malloc(sizeof *large);
	int rank = tutti_rank(comm), size = tutti_size(comm);

	CHECK(large && fresh);
	memset(large, NOBODYS, sizeof *large);
	memset(fresh, NOBODYS, sizeof *fresh);
	tutti_trainer *trainer = start_large(comm, large, *strategy);
	step_large(trainer, large, rank);
	for (int l = 0; l < LARGE_LAYERS; l += LARGE_LAYERS - 1) {
		CHECK(memcmp(large->data[l], fresh->data[l], sizeof fresh->data[l]) == 0);
		CHECK(memcmp(large->grad[l], fresh->grad[l], sizeof fresh->grad[l]) == 0);
	}
	int wrong = 0;
	for (int p = 0; p < LARGE_UNITS; p++)
		for (size_t i = 0; i < LARGE; i++) {
			int sum = 0;
			for (int r = 0; r < size; r++)
				sum += (int)((i + (size_t)r) % 16);
			double expected = p - (double)lr * sum / size;
			wrong += fabs((double)large->data[p + 1][i] - expected) > 1e-5;
		}
	CHECK(wrong == 0);
	tutti_trainer_destroy(trainer);
	free(large);
	free(fresh);
}

static void test_large_slices(void **state)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1};

	for (int s = 0; s < 2; s++)
		for (int n = 1; n <= 3; n++) {
			tutti_strategy strategy = strategies[s];
			assert_int_equal(ranks_as_threads(n, train_large, &strategy), 0);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_tutti_step),
		cmocka_unit_test(test_of_16_bits),
		cmocka_unit_test(test_large_slices),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
