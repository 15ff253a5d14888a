/* Sums of squares without rounding, so that their bits depend on no order of additions, and so on
 * no grid: train/precision/exact_sum.c says how.
 *
 * A block adds the squares of a tile to bins in shared memory, one for each exponent. The
 * mantissa's square is below 2^48, so 64 bits hold a tile of up to 2^16. Threads next to each other
 * have bins of their own, in banks of their own: neighbours often have the same exponent, and would
 * wait for each other. */
#ifndef CUDA_KERNELS_TRAIN_SQUARES_KERNEL_H
#define CUDA_KERNELS_TRAIN_SQUARES_KERNEL_H

#include "cuda/kernels/train_core.h"

#define SQUARES_TILE    16384u
#define SQUARES_WAYS    8
#define SQUARES_THREADS THREADS_OF_train_squares
#define NONFINITE       (TRAIN_SQUARES_EXPONENTS - 1)

#ifdef __CUDACC__
typedef unsigned long long squares_word;

DEVICE void add_to_bin(squares_word *bin, uint64_t x)
{
	atomicAdd(bin, x);
}

DEVICE void add_to_sum(uint64_t *sum, uint64_t x)
{
	atomicAdd((squares_word *)sum, x);
}

DEVICE void lower_to(uint64_t *least, uint64_t x)
{
	atomicMin((squares_word *)least, x);
}
#else
typedef uint64_t squares_word;

DEVICE void add_to_bin(squares_word *bin, uint64_t x)
{
	*bin += x; /* a block is a thread */
}

DEVICE void add_to_sum(uint64_t *sum, uint64_t x)
{
	_Atomic uint64_t *word = kernel_reach(sum, sizeof *sum, 1);
	atomic_fetch_add_explicit(word, x, memory_order_relaxed);
}

DEVICE void lower_to(uint64_t *least, uint64_t x)
{
	_Atomic uint64_t *word = kernel_reach(least, sizeof *least, 1);
	uint64_t was = atomic_load_explicit(word, memory_order_relaxed);
	while (x < was && !atomic_compare_exchange_weak_explicit(
				  word, &was, x, memory_order_relaxed, memory_order_relaxed))
		;
}
#endif

typedef squares_word squares_bins[SQUARES_WAYS];

DEVICE void add_square(squares_bins *bins, int way, float x)
{
	uint32_t bits = bits_of_f32(x), exponent = bits >> 23 & 0xff;
	uint64_t mantissa = (bits & 0x7fffff) | (exponent != 0 ? 0x800000u : 0);

	add_to_bin(&bins[exponent][way], exponent == NONFINITE ? 1 : mantissa * mantissa);
}

DEVICE void add_squares(squares_bins *bins, const struct train_squares_args *a, int t, uint64_t i,
			int n)
{
	float x[FOUR];

	load_floats(x, a->x, i, a->dtype, n);
	UNROLL
	for (int e = 0; e < n; e++)
		add_square(bins, t % SQUARES_WAYS, x[e]);
}

/* This thread's elements of [first, last). */
DEVICE void add_tile(squares_bins *bins, const struct train_squares_args *a, uint64_t first,
		     uint64_t last, int t)
{
	uint64_t fours = is_for_four(a->x, a->dtype) ? (last - first) / FOUR : 0;

	NO_UNROLL
	for (uint64_t i = (unsigned)t; i < fours; i += SQUARES_THREADS)
		add_squares(bins, a, t, first + i * FOUR, FOUR);
	NO_UNROLL
	for (uint64_t i = first + fours * FOUR + (unsigned)t; i < last; i += SQUARES_THREADS)
		add_squares(bins, a, t, i, 1);
}

DEVICE void empty_bin(squares_bins *bins, const struct train_squares_args *a, int e)
{
	uint64_t sum = 0;

	for (int way = 0; way < SQUARES_WAYS; way++) {
		sum += bins[e][way];
		bins[e][way] = 0;
	}
	if (sum == 0)
		return;
	add_to_sum(&a->sums[2 * e], sum & 0xffffffffu);
	add_to_sum(&a->sums[2 * e + 1], sum >> 32);
	if (e == NONFINITE)
		lower_to(&a->sums[TRAIN_SQUARES_WORST], a->param);
}

DEVICE void train_squares_body(const struct train_squares_args *a, struct kernel_block *block)
{
	BLOCK_SHARED squares_bins bins[TRAIN_SQUARES_EXPONENTS];
	uint64_t step = (uint64_t)block->count * SQUARES_TILE;

	for (int t = thread_first(); t < SQUARES_THREADS; t += thread_step())
		for (int i = t; i < SQUARES_WAYS * TRAIN_SQUARES_EXPONENTS; i += SQUARES_THREADS)
			bins[i / SQUARES_WAYS][i % SQUARES_WAYS] = 0;
	NO_UNROLL
	for (uint64_t first = block->index * (uint64_t)SQUARES_TILE; first < a->count;
	     first += step) {
		uint64_t last = a->count - first < SQUARES_TILE ? a->count : first + SQUARES_TILE;
		block_barrier();
		for (int t = thread_first(); t < SQUARES_THREADS; t += thread_step())
			add_tile(bins, a, first, last, t);
		block_barrier();
		for (int t = thread_first(); t < TRAIN_SQUARES_EXPONENTS; t += thread_step())
			empty_bin(bins, a, t);
	}
}
KERNEL(train_squares)

#endif
