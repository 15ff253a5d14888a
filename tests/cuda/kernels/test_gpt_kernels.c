/* What would break: a layer of examples/gpt_cuda that computes other numbers than that of
 * examples/gpt, forward or backward, of any shape and on any grid; one that writes over a gradient
 * instead of adding to it, or leaves a number unwritten; and an access beside its arrays (under
 * AddressSanitizer: each array is allocated by itself). */
#include "examples/gpt/layers.h"
#include "examples/gpt_cuda/stream.h"
#include "launch.h"
#include "tests/cuda/kernels/gpt_blocks.h"
#include "tests/random.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

#define ROUNDS 40

/* examples/gpt/layers.c, compiled with these names (tests.cmake). */
#define CPU(name) extern __typeof__(name) cpu_##name;
CPU(clear)
CPU(widen)
CPU(embed_forward)
CPU(embed_backward)
CPU(add)
CPU(linear_forward)
CPU(linear_backward)
CPU(layernorm_forward)
CPU(layernorm_backward)
CPU(attention_forward)
CPU(attention_backward)
CPU(attention_scratch)
CPU(gelu_forward)
CPU(gelu_backward)
CPU(softmax_loss)

static uint64_t seed;

static int draw(int least, int most)
{
	return least + (int)random_below(&seed, (uint64_t)(most - least + 1));
}

/* ---- the GPU: kernels as functions, on a grid of any size ---- */
#define AS_FUNCTION(name, threads)                                                                 \
	static void launch_##name(const void *args, struct kernel_block *block)                    \
	{                                                                                          \
		name##_block(args, block);                                                         \
	}
GPT_KERNELS(AS_FUNCTION)
#undef AS_FUNCTION

static kernel_block_fn *const kernels[] = {
#define FUNCTION(name, threads) launch_##name,
	GPT_KERNELS(FUNCTION)
#undef FUNCTION
};

void stream_launch(enum gpt_kernel kernel, uint64_t blocks, const void *args)
{
	struct launch launch;
	unsigned grid = blocks < 4 ? (unsigned)blocks : (unsigned)draw(1, 4);

	assert_true(blocks > 0);
	launch_start(&launch, kernels[kernel], args, grid);
	launch_wait(&launch);
}

void stream_clear(void *to, size_t bytes)
{
	memset(to, 0, bytes);
}

CUstream stream_handle(void)
{
	fail();
	return NULL;
}

/* ---- arrays: the same for both, each with a block of memory of its own ---- */
#define MOST_ARRAYS 64
static struct array {
	float *cpu, *gpu;
	size_t count;
} arrays[MOST_ARRAYS];
static int used;

/* Above 0, below 1. */
static double uniform(void)
{
	return ((double)(random_next(&seed) >> 12) + 0.5) * 0x1p-52;
}

static float normal(void)
{
	double u = uniform(), v = uniform();

	return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static struct array *new_array(size_t count)
{
	struct array *a = &arrays[used++];

	assert_true(used <= MOST_ARRAYS);
	*a = (struct array){malloc(count * sizeof(float)), malloc(count * sizeof(float)), count};
	return a;
}

static struct array *numbers(int rows, int cols)
{
	struct array *a = new_array((size_t)rows * (size_t)cols);

	for (size_t i = 0; i < a->count; i++)
		a->cpu[i] = a->gpu[i] = normal();
	return a;
}

/* For what is written, not added to. */
static struct array *nothing(int rows, int cols)
{
	struct array *a = new_array((size_t)rows * (size_t)cols);

	for (size_t i = 0; i < a->count; i++)
		a->cpu[i] = a->gpu[i] = NAN;
	return a;
}

/* Arrays are sums of some hundred products of numbers near one: f32 has 24 bits. */
static void compare(const struct array *a, const char *what)
{
	double most = 0;

	for (size_t i = 0; i < a->count; i++)
		most = fmax(most, fabs((double)a->cpu[i]));
	for (size_t i = 0; i < a->count; i++)
		if (!(fabs((double)a->cpu[i] - (double)a->gpu[i]) <= 4e-6 * (1 + most)))
			fail_msg("%s: number %zu of %zu is %.9g, not %.9g as on the CPU", what, i,
				 a->count, (double)a->gpu[i], (double)a->cpu[i]);
}

static void free_all(void)
{
	for (; used > 0; used--) {
		free(arrays[used - 1].cpu);
		free(arrays[used - 1].gpu);
	}
}

static unsigned char *draw_tokens(int n, int vocab)
{
	unsigned char *tokens = malloc((size_t)n);

	for (int i = 0; i < n; i++)
		tokens[i] = (unsigned char)draw(0, vocab - 1);
	return tokens;
}

/* ---- the layers ---- */
static void try_maps(void)
{
	int count = draw(1, 1500);
	struct array *a = numbers(1, count), *b = numbers(1, count), *sum = nothing(1, count);
	struct array *up = nothing(1, count), *wide = nothing(1, count), *zero = nothing(1, count);
	uint16_t *narrow = malloc((size_t)count * sizeof *narrow);
	tutti_dtype dtype = draw(0, 1) ? TUTTI_BF16 : TUTTI_F16;

	for (int i = 0; i < count; i++) /* no infinity, no NaN */
		narrow[i] =
			(uint16_t)(random_next(&seed) & (dtype == TUTTI_BF16 ? 0xbfff : 0xbbff));
	cpu_add(sum->cpu, a->cpu, b->cpu, count);
	add(sum->gpu, a->gpu, b->gpu, count);
	compare(sum, "add");
	cpu_gelu_forward(up->cpu, a->cpu, count);
	gelu_forward(up->gpu, a->gpu, count);
	compare(up, "gelu");
	cpu_gelu_backward(b->cpu, a->cpu, count);
	gelu_backward(b->gpu, a->gpu, count);
	compare(b, "gelu, backward");
	cpu_widen(wide->cpu, narrow, (size_t)count, dtype);
	widen(wide->gpu, narrow, (size_t)count, dtype);
	assert_memory_equal(wide->cpu, wide->gpu, (size_t)count * sizeof(float));
	cpu_clear(zero->cpu, (size_t)count);
	clear(zero->gpu, (size_t)count);
	compare(zero, "clear");
	free(narrow);
}

static void try_embedding(void)
{
	int length = draw(1, 20), sequences = draw(1, 20), c = draw(1, 300), vocab = draw(1, 60);
	struct embedding_shape shape = {.n = sequences * length,
					.length = length,
					.channels = c,
					.vocab = vocab,
					.parts = 1};
	struct array *token_w = numbers(vocab, c), *position_w = numbers(length, c);
	struct array *out = nothing(shape.n, c), *out_grad = numbers(shape.n, c);
	unsigned char *tokens = draw_tokens(shape.n, vocab);

	cpu_embed_forward(out->cpu, tokens, token_w->cpu, position_w->cpu, shape);
	embed_forward(out->gpu, tokens, token_w->gpu, position_w->gpu, shape);
	compare(out, "embedding");
	cpu_embed_backward(token_w->cpu, position_w->cpu, out_grad->cpu, tokens, shape);
	embed_backward(token_w->gpu, position_w->gpu, out_grad->gpu, tokens, shape);
	compare(token_w, "embedding, gradient of tokens");
	compare(position_w, "embedding, gradient of positions");
	free(tokens);
}

static void try_linear(void)
{
	int n = draw(1, 60), ins = draw(1, 60), outs = draw(1, 60);
	struct array *in = numbers(n, ins), *weight = numbers(ins, outs), *bias = numbers(1, outs);
	struct array *out = nothing(n, outs), *out_grad = numbers(n, outs),
		     *in_grad = nothing(n, ins);
	struct array *weight_grad = numbers(ins, outs), *bias_grad = numbers(1, outs);
	struct array *scratch = nothing(ins, outs);
	struct linear_grads cpu = {in_grad->cpu, weight_grad->cpu, bias_grad->cpu, scratch->cpu};
	struct linear_grads gpu = {in_grad->gpu, weight_grad->gpu, bias_grad->gpu, scratch->gpu};
	bool has_bias = draw(0, 1);

	cpu_linear_forward(out->cpu, in->cpu, weight->cpu, has_bias ? bias->cpu : NULL, n, ins,
			   outs);
	linear_forward(out->gpu, in->gpu, weight->gpu, has_bias ? bias->gpu : NULL, n, ins, outs);
	compare(out, "linear");
	cpu_linear_backward(&cpu, out_grad->cpu, in->cpu, weight->cpu, n, ins, outs);
	linear_backward(&gpu, out_grad->gpu, in->gpu, weight->gpu, n, ins, outs);
	compare(in_grad, "linear, gradient of in");
	compare(weight_grad, "linear, gradient of the weight");
	compare(bias_grad, "linear, gradient of the bias");
}

static void try_norm(void)
{
	int n = draw(1, 60), c = draw(2, 90);
	struct array *in = numbers(n, c), *weight = numbers(1, c), *bias = numbers(1, c);
	struct array *out = nothing(n, c), *mean = nothing(1, n), *rstd = nothing(1, n);
	struct array *out_grad = numbers(n, c), *in_grad = numbers(n, c);
	struct array *weight_grad = numbers(1, c), *bias_grad = numbers(1, c);
	struct norm_stats cpu = {mean->cpu, rstd->cpu}, gpu = {mean->gpu, rstd->gpu};
	struct norm_grads cpu_grads = {in_grad->cpu, weight_grad->cpu, bias_grad->cpu};
	struct norm_grads gpu_grads = {in_grad->gpu, weight_grad->gpu, bias_grad->gpu};

	cpu_layernorm_forward(out->cpu, cpu, in->cpu, weight->cpu, bias->cpu, n, c);
	layernorm_forward(out->gpu, gpu, in->gpu, weight->gpu, bias->gpu, n, c);
	compare(out, "layernorm");
	compare(mean, "layernorm, mean");
	compare(rstd, "layernorm, rstd");
	cpu_layernorm_backward(cpu_grads, out_grad->cpu, in->cpu, cpu, weight->cpu, n, c);
	layernorm_backward(gpu_grads, out_grad->gpu, in->gpu, cpu, weight->gpu, n, c);
	compare(in_grad, "layernorm, gradient of in");
	compare(weight_grad, "layernorm, gradient of the weight");
	compare(bias_grad, "layernorm, gradient of the bias");
}

static void try_attention(void)
{
	int heads = draw(1, 4), c = heads * draw(1, 20), sequences = draw(1, 3),
	    length = draw(1, 50);
	struct attention_shape shape = {sequences, length, c, heads};
	struct array *qkv = numbers(sequences * length, 3 * c),
		     *out = nothing(sequences * length, c);
	struct array *weights = numbers(sequences * heads * length, length);
	struct array *out_grad = numbers(sequences * length, c);
	struct array *qkv_grad = nothing(sequences * length, 3 * c);
	struct array *cpu_scratch = nothing(1, (int)cpu_attention_scratch(shape));
	struct array *scratch = nothing(1, (int)attention_scratch(shape));

	cpu_attention_forward(out->cpu, weights->cpu, qkv->cpu, shape);
	attention_forward(out->gpu, weights->gpu, qkv->gpu, shape);
	compare(out, "attention");
	/* Those of later tokens, which the CPU leaves alone, are zeros. */
	for (size_t i = 0; i < weights->count; i++) {
		size_t t = i / (size_t)length % (size_t)length, u = i % (size_t)length;
		if (u > t) {
			assert_true(weights->gpu[i] == 0);
			weights->cpu[i] = 0;
		}
	}
	compare(weights, "attention, weights");
	cpu_attention_backward(qkv_grad->cpu, cpu_scratch->cpu, out_grad->cpu, qkv->cpu,
			       weights->cpu, shape);
	attention_backward(qkv_grad->gpu, scratch->gpu, out_grad->gpu, qkv->gpu, weights->cpu,
			   shape);
	compare(qkv_grad, "attention, gradient of qkv");
}

static void try_loss(void)
{
	int n = draw(1, 60), vocab = draw(1, 90);
	struct array *logits = numbers(n, vocab), *scratch = nothing(2, n);
	struct loss_shape shape = {.n = n, .vocab = vocab};
	unsigned char *targets = draw_tokens(n, vocab);
	const float scale = draw(0, 1) ? 1 : 0.375f, *grad_scale = draw(0, 3) ? &scale : NULL;
	double cpu = 3, gpu = 3; /* sums that are added to */

	cpu_softmax_loss(&cpu, logits->cpu, targets, scratch->cpu, shape, grad_scale);
	softmax_loss(&gpu, logits->gpu, targets, scratch->gpu, shape, grad_scale);
	compare(logits, "loss, logits");
	if (!(fabs(cpu - gpu) <= 1e-6 * (1 + cpu)))
		fail_msg("the loss is %.9g, not %.9g as on the CPU", gpu, cpu);
	free(targets);
}

static void test_layers(void **state)
{
	static void (*const tries[])(void) = {try_maps, try_embedding, try_linear,
					      try_norm, try_attention, try_loss};

	for (int round = 0; round < ROUNDS; round++)
		for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
			tries[i]();
			free_all();
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers)};
	const char *given = getenv("SEED");

	seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	printf("SEED=%llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
