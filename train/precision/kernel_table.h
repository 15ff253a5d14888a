/* The loops of kernels.c, compiled from kernel_template.h for each instruction set. All tables give
 * the same bits. Arrays are aligned to their type only. */
#ifndef TRAIN_KERNEL_TABLE_H
#define TRAIN_KERNEL_TABLE_H

#include "train/precision/precision.h"

/* The arrays and numbers of one update. */
struct kernel_adamw {
	float *value, *m, *v;
	const float *grad;
	size_t count;
	float scale;
	struct adamw_numbers numbers;
};

struct kernel_sgd {
	float *value, *m;               /* m: NULL without momentum */
	const float *grad;
	size_t count;
	float scale, lr, decay, momentum;
};

struct kernel_table {
	void (*adamw)(const struct kernel_adamw *a);
	void (*sgd)(const struct kernel_sgd *s);
	void (*widen_bf16)(float *out, const uint16_t *x, size_t n);
	void (*widen_f16)(float *out, const uint16_t *x, size_t n);
	void (*narrow_bf16)(uint16_t *out, const float *x, size_t n);
	void (*narrow_f16)(uint16_t *out, const float *x, size_t n);
	/* By the random numbers of key at first, first + 1, ..., which do not pass 2^32. */
	void (*narrow_at_random)(uint16_t *out, const float *x, size_t n, uint64_t key,
				 uint32_t first);
	void (*add)(float *sum, const float *x, size_t n);
	void (*scale)(float *out, const float *x, size_t n, float by);    /* out may be x       */
	void (*add_squares)(double sums[8], const float *x, size_t n);    /* n: a multiple of 8 */
	/* Whether all bits of mask are set in an element. */
	bool (*any_has_32)(const float *x, size_t n, uint32_t mask);
	bool (*any_has_16)(const uint16_t *x, size_t n, uint16_t mask);
};

extern const struct kernel_table kernel_table_base;
#ifdef __x86_64__
extern const struct kernel_table kernel_table_avx2, kernel_table_avx512;
#endif

#endif
