/* Shared parts of the kernels of gpt_cuda. cuda/kernels/kernel_machine.h says how bodies are written: nvcc reads them, and
 * for tests on a machine without a GPU the C compiler. */
#ifndef EXAMPLES_GPT_CUDA_KERNELS_CORE_H
#define EXAMPLES_GPT_CUDA_KERNELS_CORE_H

#include "cuda/kernels/train_core.h"
#include "examples/gpt_cuda/kernels/args.h"

#include <math.h>

#define GPT_THREADS_OF(name, threads) THREADS_OF_##name = threads,
enum { GPT_KERNELS(GPT_THREADS_OF) };
#undef GPT_THREADS_OF

#define EACH_THREAD(t) for (int t = thread_first(); t < GPT_THREADS; t += thread_step())

DEVICE float get(const float *x, int64_t i)
{
	return f32_of_bits((uint32_t)load_8(x + i, 4));
}

DEVICE void put(float *x, int64_t i, float value)
{
	store_8(x + i, bits_of_f32(value), 4);
}

DEVICE int get_byte(const unsigned char *x, int64_t i)
{
	return (int)load_8(x + i, 1);
}

/* A block works on several rows (or columns) at once, each with so many threads: its lanes. */
#define LANES 32
#define GROUPS (GPT_THREADS / LANES)

DEVICE int lane_of(int t)
{
	return t % LANES;
}

DEVICE int group_of(int t)
{
	return t / LANES;
}

/* A number of each lane, and one of each group that is made of them. */
struct groups {
	float part[GROUPS][LANES], all[GROUPS];
};

/* In the order of the lanes. */
DEVICE float sum_of_lanes(const float part[LANES])
{
	float sum = 0;

	for (int i = 0; i < LANES; i++)
		sum += part[i];
	return sum;
}

/* Between two phases. */
DEVICE void sum_lanes(struct groups *groups)
{
	block_barrier();
	EACH_THREAD(t)
		if (lane_of(t) == 0)
			groups->all[group_of(t)] = sum_of_lanes(groups->part[group_of(t)]);
	block_barrier();
}

DEVICE float most_of_lanes(const float part[LANES])
{
	float most = part[0];

	for (int i = 1; i < LANES; i++)
		most = part[i] > most ? part[i] : most;
	return most;
}

#endif
