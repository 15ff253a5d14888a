/* The arguments of the kernels of training, as args.h. Numbers of dtypes are those of tutti.h: F32,
 * BF16 or F16. Pointers are aligned to their elements; fast where they are aligned to four. */
#ifndef CUDA_KERNELS_TRAIN_ARGS_H
#define CUDA_KERNELS_TRAIN_ARGS_H

#include <stdint.h>

/* How f32 becomes 16 bits: to the nearest, or at random by key and the element's number. */
struct train_rounding {
	uint64_t key;
	uint32_t first; /* number of element 0; numbers do not pass 2^32 */
	int32_t is_random;
};

enum { TRAIN_UPDATE_ADAMW, TRAIN_UPDATE_SGD };

/* An update of an optimizer, with the bits of kernel_adamw() or kernel_sgd(). low: of 16 bits, what
 * values are rounded to, or NULL. SGD: m is NULL without momentum; rate is the learning rate. */
struct train_update_args {
	float *value, *m, *v;
	const void *grad;
	void *low;
	uint64_t count;
	struct train_rounding rounding;
	float scale, beta1, beta2, eps, keep, rate, bias2, decay, momentum;
	int32_t kind, grad_dtype, low_dtype;
};

enum { TRAIN_MAP_CONVERT, TRAIN_MAP_ADD, TRAIN_MAP_SCALE };

/* out = x, out += x or out = x * by, with the bits of kernel_convert(), kernel_narrow_at_random(),
 * kernel_add() and kernel_scale(). out may be x, if the dtypes are the same. */
struct train_map_args {
	void *out;
	const void *x;
	uint64_t count;
	struct train_rounding rounding;
	float by;
	int32_t what, out_dtype, x_dtype;
};

/* Adds the squares of an array to sums, without rounding. A square is an integer times a power of
 * two that follows from its exponent: sums[2 e] has the lower and sums[2 e + 1] the upper halves of
 * the integers of exponent e. Infinities and NaNs are counted under the last exponent; then
 * sums[TRAIN_SQUARES_WORST] becomes the least param. */
#define TRAIN_SQUARES_EXPONENTS 256
#define TRAIN_SQUARES_WORST     (2 * TRAIN_SQUARES_EXPONENTS)
#define TRAIN_SQUARES_WORDS     (TRAIN_SQUARES_WORST + 1)

struct train_squares_args {
	const void *x;
	uint64_t *sums;
	uint64_t count, param;
	int32_t dtype, unused;
};

#endif
