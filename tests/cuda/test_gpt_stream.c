/* What would break: a forward or backward of examples/gpt_cuda that waits for its GPU. Here the GPU
 * does nothing until the CPU has been through two micro-batches. */
#include "examples/gpt/gpt.h"
#include "examples/gpt/place.h"
#include "gpu.h"
#include "tests/limit.h"

#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { SEQUENCES = 2, LENGTH = 5, MICRO_BATCHES = 2 };

static const struct gpt_shape tiny = {
	.vocab = 11, .length = LENGTH, .layers = 2, .heads = 2, .channels = 8};

static _Atomic uint32_t *close_gate(CUstream stream)
{
	_Atomic uint32_t *gate = gpu_alloc_pinned(sizeof *gate);
	CUdeviceptr word;

	atomic_store(gate, 0);
	GPU(mem_host_get_device_pointer, &word, (void *)(uintptr_t)gate, 0);
	GPU(stream_wait_value32, stream, word, 1, CU_STREAM_WAIT_VALUE_EQ);
	return gate;
}

static void start(struct gpt *gpt, tutti_trainer **trainer, tutti_comm *comm,
		  const tutti_train_config *config)
{
	tutti_model *model;

	must(tutti_model_create(&model));
	gpt_register(gpt, tiny, 1, model);
	must(tutti_trainer_create(trainer, model, comm, config));
	tutti_model_destroy(model);
	gpt_start(gpt, *trainer, NULL,
		  &(struct gpt_config){.max_sequences = SEQUENCES, .dtype = TUTTI_F32});
}

/* The caller's tokens are others as soon as a call has returned. */
static void pass(struct gpt *gpt, int number)
{
	unsigned char tokens[SEQUENCES * LENGTH], targets[SEQUENCES * LENGTH];

	for (int i = 0; i < SEQUENCES * LENGTH; i++) {
		tokens[i] = (unsigned char)((i * 3 + number) % tiny.vocab);
		targets[i] = (unsigned char)((i * 5 + number) % tiny.vocab);
	}
	must(tutti_micro_batch(gpt->trainer,
			       number + 1 < MICRO_BATCHES ? TUTTI_PASS_ACCUMULATE : TUTTI_PASS_LAST,
			       SEQUENCES * LENGTH, NULL));
	gpt_forward(gpt, tokens, SEQUENCES);
	memset(tokens, 0, sizeof tokens);
	gpt_loss(gpt, targets, 1);
	memset(targets, 0, sizeof targets);
	gpt_backward(gpt);
}

/* Returns the loss of a step; if gated nothing of it runs before the CPU has said all of it. */
static double step(struct gpt *gpt, CUstream stream, int is_gated)
{
	const tutti_optimizer none = {.kind = TUTTI_SGD};
	_Atomic uint32_t *gate = is_gated ? close_gate(stream) : NULL;

	for (int m = 0; m < MICRO_BATCHES; m++)
		pass(gpt, m);
	if (is_gated) {
		assert_int_equal(gpu.stream_query(stream), CUDA_ERROR_NOT_READY);
		atomic_store(gate, 1);
	}
	must(tutti_step(gpt->trainer, &none, 1, NULL));
	return gpt_loss_sum(gpt);
}

static void test_nothing_waits(void **state)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO2, TUTTI_FSDP};
	struct options options = {.matmul = "plain"};
	tutti_comm *comm;

	assert_true(gpu_open());
	assert_int_equal(place_open(&options), 0);
	CUstream stream = options.flags.config.stream;
	must(tutti_init(&comm, &(tutti_config){.world_size = 1}));
	for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
		tutti_trainer *trainer;
		struct gpt gpt;
		options.flags.config.strategy = strategies[s];
		start(&gpt, &trainer, comm, &options.flags.config);
		double want = step(&gpt, stream, 0), got = step(&gpt, stream, 1);
		assert_true(want > 1 && got == want); /* and its bits are the same twice */
		gpt_finish(&gpt);
		tutti_trainer_destroy(trainer);
	}
	tutti_comm_destroy(comm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_waits)};

	test_limit(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
