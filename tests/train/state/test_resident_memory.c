/* slow: 2 s */
/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: a strategy that holds other memory than its formula, and statistics that are
 * not measured. This test measures the trainer's tutti_mem_alloc memory and the heap. It compares
 * two models, because what does not grow with the model (communicators, tables) does not depend on
 * the strategy. */
#include "tests/train/ranks.h"
#include "tests/train/stack.h"

#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "tests/unit.h"

enum { MOST_REGIONS = 256, MOST_RANKS = 8, RUN_STEPS = 2, MOST_BATCHES = 3 };
enum { SMALL = 4032, LARGE = 32704, BIAS = 64 };

static struct region {
	void *at;
	size_t bytes;
	int rank;
} regions[MOST_REGIONS];
static size_t held[MOST_RANKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

tutti_status __real_tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm);
tutti_status __wrap_tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm);
tutti_status __real_tutti_mem_free(void *ptr);
tutti_status __wrap_tutti_mem_free(void *ptr);

static void change(struct region *region, void *at, size_t bytes, int rank)
{
	held[region->rank] -= region->bytes;
	*region = (struct region){at, bytes, rank};
	held[region->rank] += region->bytes;
}

static struct region *region_at(const void *at)
{
	for (int i = 0; i < MOST_REGIONS; i++)
		if (regions[i].at == at)
			return &regions[i];
	return NULL;
}

tutti_status __wrap_tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm)
{
	tutti_status status = __real_tutti_mem_alloc(ptr, bytes, comm);

	if (status != TUTTI_OK)
		return status;
	pthread_mutex_lock(&lock);
	struct region *region = region_at(NULL);
	CHECK(region != NULL);
	if (region)
		change(region, *ptr, bytes, tutti_rank(comm));
	pthread_mutex_unlock(&lock);
	return TUTTI_OK;
}

tutti_status __wrap_tutti_mem_free(void *ptr)
{
	pthread_mutex_lock(&lock);
	struct region *region = region_at(ptr);
	CHECK(region != NULL);
	if (region)
		change(region, NULL, 0, 0);
	pthread_mutex_unlock(&lock);
	return __real_tutti_mem_free(ptr);
}

/* Exists in builds with a sanitizer, which then owns the heap. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t heap_bytes(void)
{
	if (__sanitizer_get_current_allocated_bytes)
		return __sanitizer_get_current_allocated_bytes();
	struct mallinfo2 all = mallinfo2();
	return all.uordblks + all.hblkhd;
}

#define BF16_PARAMS .param_dtype = TUTTI_BF16
#define BF16_ALL    BF16_PARAMS, .reduce_dtype = TUTTI_BF16, .grad_dtype = TUTTI_BF16

static const struct {
	const char *name;
	tutti_train_config config;
	int least, most; /* ranks */
} variants[] = {
	{"ddp", {.strategy = TUTTI_DDP}, 1, 8},
	{"zero1", {.strategy = TUTTI_ZERO1}, 1, 8},
	{"zero2", {.strategy = TUTTI_ZERO2}, 1, 8},
	{"fsdp", {.strategy = TUTTI_FSDP}, 1, 8},
	{"hsdp", {.strategy = TUTTI_HSDP, .shard_size = 2}, 2, 8},
	{"zero2 in order", {.strategy = TUTTI_ZERO2, .deterministic = 1}, 1, 8},
	{"fsdp in order", {.strategy = TUTTI_FSDP, .deterministic = 1}, 1, 8},
	{"local sgd", {.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 1}, 1, 8},
	{"ddp of bf16", {.strategy = TUTTI_DDP, BF16_PARAMS}, 1, 2},
	{"ddp, sums of bf16",
	 {.strategy = TUTTI_DDP, BF16_PARAMS, .reduce_dtype = TUTTI_BF16},
	 1,
	 2},
	{"zero1, all of bf16", {.strategy = TUTTI_ZERO1, BF16_ALL}, 2, 2},
	{"zero2, all of bf16", {.strategy = TUTTI_ZERO2, BF16_ALL}, 4, 4},
	{"fsdp of bf16", {.strategy = TUTTI_FSDP, BF16_PARAMS}, 2, 2},
	{"fsdp, all of bf16", {.strategy = TUTTI_FSDP, BF16_ALL}, 4, 4},
	{"fsdp, sums of bf16",
	 {.strategy = TUTTI_FSDP, BF16_PARAMS, .reduce_dtype = TUTTI_BF16},
	 2,
	 2},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

struct run {
	int variant, micro_batches;
	struct stack stack;
	tutti_train_stats stats[MOST_RANKS], estimate;
	size_t regions[MOST_RANKS]; /* of tutti_mem_alloc, on each rank */
	size_t heap;                /* of all of them */
};

static size_t heap_now(tutti_comm *comm)
{
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	size_t bytes = heap_bytes();
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	return bytes;
}

static void hold(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	tutti_train_config config = variants[run->variant].config;
	int rank = tutti_rank(comm);

	config.bucket_bytes = 1; /* every unit is one, as with FSDP */
	tutti_model *model = stack_register(&run->stack);
	tutti_train_stats estimate;
	CHECK(tutti_memory_estimate(model, tutti_size(comm), &config, &estimate) == TUTTI_OK);
	tutti_model_destroy(model);
	size_t before = heap_now(comm);
	tutti_trainer *trainer = stack_create(&run->stack, comm, &config);
	for (int step = 0; step < RUN_STEPS; step++)
		stack_step(trainer, &run->stack, run->micro_batches);
	size_t after = heap_now(comm);
	CHECK(tutti_trainer_stats(trainer, &run->stats[rank]) == TUTTI_OK);
	pthread_mutex_lock(&lock);
	run->regions[rank] = held[rank];
	pthread_mutex_unlock(&lock);
	if (rank == 0) {
		run->heap = after - before;
		run->estimate = estimate;
	}
	tutti_trainer_destroy(trainer);
	pthread_mutex_lock(&lock);
	CHECK(held[rank] == 0);
	pthread_mutex_unlock(&lock);
}

struct formula {
	size_t params, grads, state;
	size_t whole; /* units and gradients that do not stay, */
	size_t kept;  /* and more of the latter while micro-batches are added in order: of the heap
		       */
};

static bool keeps_all(const struct run *run)
{
	return variants[run->variant].config.deterministic && run->micro_batches > 1;
}

static size_t width_of(tutti_dtype dtype)
{
	return dtype == TUTTI_F32 ? 4 : 2;
}

/* 16-bit parameters have a master copy; a gradient that is sent as another type has a copy. */
static struct formula formula_of(const struct run *run, int ranks)
{
	const tutti_train_config *config = &variants[run->variant].config;
	size_t elements = stack_elements(&run->stack), wide = sizeof(float);
	size_t values = width_of(config->param_dtype) * elements,
	       grad = width_of(config->grad_dtype);
	size_t copy =
		config->grad_dtype == config->reduce_dtype ? 0 : width_of(config->reduce_dtype);
	size_t states = (config->param_dtype == TUTTI_F32 ? 2 : 3) * wide;
	size_t cut = config->strategy == TUTTI_HSDP ? 2 : (size_t)ranks, part = elements / cut;
	/* In order: whole gradients are kept until the last micro-batch. */
	size_t grads = (grad + copy) * elements, whole = grads * 2 / STACK_UNITS;
	size_t kept = keeps_all(run) ? grads - whole : 0, sums = (copy ? wide : grad) * part;

	if (ranks == 1 || config->strategy == TUTTI_DDP || config->strategy == TUTTI_LOCAL_SGD)
		return (struct formula){values, grads, states * elements, 0, 0};
	if (config->strategy == TUTTI_ZERO1)
		return (struct formula){values, grads, states * part, 0, 0};
	if (config->strategy == TUTTI_ZERO2)
		return (struct formula){values, sums, states * part, whole, kept};
	return (struct formula){values / cut, sums, states * part, 2 * values / STACK_UNITS + whole,
				kept};
}

static void expect(const struct run *run, int ranks, const char *what, size_t got, size_t expected)
{
	if (got != expected)
		fail_msg("%s on %d ranks, %d micro-batches: %s: %zu bytes instead of %zu",
			 variants[run->variant].name, ranks, run->micro_batches, what, got,
			 expected);
}

static void check_run(const struct run *run, int ranks)
{
	struct formula f = formula_of(run, ranks);

	for (int r = 0; r < ranks; r++) {
		const tutti_train_stats *s = &run->stats[r];
		expect(run, ranks, "taken from tutti_mem_alloc", run->regions[r],
		       f.params + f.grads + f.whole);
		expect(run, ranks, "param_bytes", s->param_bytes, f.params);
		expect(run, ranks, "grad_bytes", s->grad_bytes, f.grads);
		expect(run, ranks, "optimizer_bytes", s->optimizer_bytes, f.state);
		/* One gradient may exist while the next is begun. */
		assert_in_range(s->gathered_peak_bytes, f.whole / 2, f.whole + f.kept);
	}
	expect(run, ranks, "estimated param_bytes", run->estimate.param_bytes, f.params);
	expect(run, ranks, "estimated grad_bytes", run->estimate.grad_bytes, f.grads);
	expect(run, ranks, "estimated optimizer_bytes", run->estimate.optimizer_bytes, f.state);
	expect(run, ranks, "estimated whole units", run->estimate.gathered_peak_bytes, f.whole);
}

/* The growth of all ranks' heap with the model: the state, and what deterministic micro-batches
 * keep. Without a window the communicators' message buffers grow as well. */
static void check_growth(const struct run *small, const struct run *large, int ranks)
{
	struct formula to = formula_of(large, ranks), from = formula_of(small, ranks);
	size_t state = (size_t)ranks * (to.state + to.kept - from.state - from.kept);
	size_t grown = large->heap - small->heap;

	if (grown < state - state / 25 || grown > state + state / 25)
		fail_msg("%s on %d ranks, %d micro-batches: a larger model takes %zu bytes more of "
			 "the heap instead of %zu",
			 variants[large->variant].name, ranks, large->micro_batches, grown, state);
}

static void check_variant(int variant, int ranks, int micro_batches)
{
	tutti_dtype grads = variants[variant].config.grad_dtype;
	struct run small = {.variant = variant,
			    .micro_batches = micro_batches,
			    .stack = {.weight = SMALL, .bias = BIAS, .grad_dtype = grads}};
	struct run large = small;

	large.stack.weight = LARGE;
	assert_int_equal(ranks_as_threads(ranks, hold, &small), 0);
	check_run(&small, ranks);
	if (micro_batches == 2)
		return; /* for want of time */
	assert_int_equal(ranks_as_threads(ranks, hold, &large), 0);
	check_run(&large, ranks);
	check_growth(&small, &large, ranks);
}

static void held_by_all(void **state)
{
	for (int n = 1; n <= MOST_RANKS; n *= 2)
		for (int v = 0; v < VARIANTS; v++)
			for (int m = 1; m <= MOST_BATCHES; m++)
				if (n % variants[v].least == 0 && n <= variants[v].most)
					check_variant(v, n, m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(held_by_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
