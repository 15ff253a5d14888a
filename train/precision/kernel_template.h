/* The loops of a kernel_table. Each file that is compiled for an instruction set includes this file
 * once, with KERNEL_TABLE defined.
 *
 * Compilers vectorise these plain loops, except for f16, for which x86 has instructions that
 * compilers do not find. The bits are the same everywhere: no contraction, no reassociation, and
 * every NaN is made canonical, because its payload depends on the order of an instruction's
 * operands. */
#include "core/memory/f16c.h"
#include "core/memory/small_float.h"
#include "train/precision/kernel_table.h"

#include <math.h>
#include <string.h>

#define F32_INFINITY UINT32_C(0x7f800000)

static inline float one_nan(float x)
{
	return x != x ? f32_of_bits(F32_NAN) : x;
}

/* Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019. */
static void adamw(const struct kernel_adamw *a)
{
	float *restrict value = a->value, *restrict m = a->m, *restrict v = a->v;
	const float *restrict grad = a->grad;
	const struct adamw_numbers n = a->numbers;
	float beta1 = n.beta1, beta2 = n.beta2, rest1 = 1 - beta1, rest2 = 1 - beta2;
	float scale = a->scale, eps = n.eps, keep = n.keep, rate = n.rate, bias2 = n.bias2;

	for (size_t i = 0; i < a->count; i++) {
		float g = grad[i] * scale;
		float new_m = one_nan(beta1 * m[i] + rest1 * g);
		float new_v = one_nan(beta2 * v[i] + rest2 * g * g);
		m[i] = new_m;
		v[i] = new_v;
		value[i] = one_nan(keep * value[i] - rate * new_m / (sqrtf(new_v) * bias2 + eps));
	}
}

static void sgd_plain(const struct kernel_sgd *s)
{
	float *restrict value = s->value;
	const float *restrict grad = s->grad;
	float scale = s->scale, lr = s->lr, decay = s->decay;

	for (size_t i = 0; i < s->count; i++) {
		float g = grad[i] * scale + decay * value[i];
		value[i] = one_nan(value[i] - lr * g);
	}
}

static void sgd_momentum(const struct kernel_sgd *s)
{
	float *restrict value = s->value, *restrict m = s->m;
	const float *restrict grad = s->grad;
	float scale = s->scale, lr = s->lr, decay = s->decay, momentum = s->momentum;

	for (size_t i = 0; i < s->count; i++) {
		float g = grad[i] * scale + decay * value[i];
		float new_m = one_nan(momentum * m[i] + g);
		m[i] = new_m;
		value[i] = one_nan(value[i] - lr * new_m);
	}
}

static void sgd(const struct kernel_sgd *s)
{
	if (s->m)
		sgd_momentum(s);
	else
		sgd_plain(s);
}

static void widen_bf16(float *restrict out, const uint16_t *restrict x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = bf16_widen(x[i]);
}

static void narrow_bf16(uint16_t *restrict out, const float *restrict x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = bf16_narrow(one_nan(x[i]));
}

/* 16 bits of each number: the finalizer of MurmurHash3 (Appleby) without its last step. The other
 * half of the key is added in between, so that two keys do not give the same numbers in another
 * order. */
static inline uint32_t random_16(uint32_t index, uint32_t key, uint32_t key2)
{
	uint32_t x = index ^ key;

	x = (x ^ x >> 16) * UINT32_C(0x85ebca6b) + key2;
	x = (x ^ x >> 13) * UINT32_C(0xc2b2ae35);
	return x >> 16;
}

static void narrow_at_random(uint16_t *restrict out, const float *restrict x, size_t n,
			     uint64_t key, uint32_t first)
{
	uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);

	for (size_t i = 0; i < n; i++) {
		uint32_t bits = bits_of_f32(one_nan(x[i])), magnitude = bits & 0x7fffffff;
		uint32_t up = magnitude + random_16(first + (uint32_t)i, low, high);
		up = up >= F32_INFINITY ? F32_INFINITY - 1 : up;
		up = magnitude >= F32_INFINITY ? magnitude : up;
		out[i] = (uint16_t)((up | (bits ^ magnitude)) >> 16);
	}
}

static void widen_f16(float *restrict out, const uint16_t *restrict x, size_t n)
{
	size_t i = 0;
#ifdef __F16C__
	const __m256 nan = _mm256_set1_ps(f32_of_bits(F32_NAN));
	for (; i + 8 <= n; i += 8) {
		__m256 wide = f16_widen_32(x + i);
		__m256 is_nan = _mm256_cmp_ps(wide, wide, _CMP_UNORD_Q);
		_mm256_storeu_ps(out + i, _mm256_blendv_ps(wide, nan, is_nan));
	}
#endif
	for (; i < n; i++)
		out[i] = one_nan(small_widen(x[i], SMALL_F16));
}

static void narrow_f16(uint16_t *restrict out, const float *restrict x, size_t n)
{
	size_t i = 0;
#ifdef __F16C__
	const __m256 nan = _mm256_set1_ps(f32_of_bits(F32_NAN));
	for (; i + 8 <= n; i += 8) {
		__m256 wide = _mm256_loadu_ps(x + i);
		__m256 is_nan = _mm256_cmp_ps(wide, wide, _CMP_UNORD_Q);
		f16_narrow_32(out + i, _mm256_blendv_ps(wide, nan, is_nan));
	}
#endif
	for (; i < n; i++)
		out[i] = (uint16_t)small_narrow(x[i], SMALL_F16);
}

static void add(float *restrict sum, const float *restrict x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum[i] = one_nan(sum[i] + x[i]);
}

static void scale_in_place(float *x, size_t n, float by)
{
	for (size_t i = 0; i < n; i++)
		x[i] = one_nan(x[i] * by);
}

static void scale_apart(float *restrict out, const float *restrict x, size_t n, float by)
{
	for (size_t i = 0; i < n; i++)
		out[i] = one_nan(x[i] * by);
}

/* Compilers assume that out and x overlap if they may be the same array, and do not vectorise. */
static void scale(float *out, const float *x, size_t n, float by)
{
	if (out == x)
		scale_in_place(out, n, by);
	else
		scale_apart(out, x, n, by);
}

static void add_squares(double sums[8], const float *x, size_t n)
{
	double to[8];

	memcpy(to, sums, sizeof to);
	for (size_t i = 0; i < n; i += 8)
		for (size_t j = 0; j < 8; j++)
			to[j] += (double)x[i + j] * (double)x[i + j];
	memcpy(sums, to, sizeof to);
}

static bool any_has_32(const float *x, size_t n, uint32_t mask)
{
	uint32_t any = 0;

	for (size_t i = 0; i < n; i++)
		any |= (bits_of_f32(x[i]) & mask) == mask;
	return any;
}

static bool any_has_16(const uint16_t *x, size_t n, uint16_t mask)
{
	uint16_t any = 0;

	for (size_t i = 0; i < n; i++)
		any |= (x[i] & mask) == mask;
	return any;
}

const struct kernel_table KERNEL_TABLE = {
	.adamw = adamw,
	.sgd = sgd,
	.widen_bf16 = widen_bf16,
	.widen_f16 = widen_f16,
	.narrow_bf16 = narrow_bf16,
	.narrow_f16 = narrow_f16,
	.narrow_at_random = narrow_at_random,
	.add = add,
	.scale = scale,
	.add_squares = add_squares,
	.any_has_32 = any_has_32,
	.any_has_16 = any_has_16,
};
