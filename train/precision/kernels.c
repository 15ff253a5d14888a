/* Processes arrays in blocks that fit in L1, in which 16-bit numbers are f32, by the loops of the
 * instruction set that core/simd.h chooses. kernel_template.h has the loops. */
#include "train/precision/precision.h"

#include "core/simd.h"
#include "train/base/base.h"
#include "train/precision/kernel_table.h"

#include <assert.h>
#include <fenv.h>
#include <math.h>
#include <string.h>

#define BLOCK 1024 /* elements; a multiple of 8 */

/* The loops of a level; those above AVX-512 have none of their own. */
static const struct kernel_table *kernels_loops(void)
{
	static const struct kernel_table *const of[SIMD_LEVELS] = {
		[SIMD_BASE] = &kernel_table_base,
#ifdef __x86_64__
		[SIMD_AVX2] = &kernel_table_avx2,
		[SIMD_AVX512] = &kernel_table_avx512,
		[SIMD_AVX512_BF16] = &kernel_table_avx512,
		[SIMD_AVX512_FP16] = &kernel_table_avx512,
#endif
	};

	return of[simd_level()];
}

/* A program may flush subnormal numbers or trap. A kernel would then give other bits than on other
 * ranks, or a signal, so it runs in the default floating point environment. */
static const struct kernel_table *kernels_begin(fenv_t *before)
{
	fegetenv(before);
	fesetenv(FE_DFL_ENV);
	return kernels_loops();
}

static void kernels_end(const fenv_t *before)
{
	fesetenv(before);
}

/* Elements [first, first + n) of x as f32: in place, or widened in block. */
static const float *kernel_read_block(const struct kernel_table *k, float block[BLOCK],
				      const void *x, tutti_dtype dtype, size_t first, size_t n)
{
	if (dtype == TUTTI_F32)
		return (const float *)x + first;
	assert(dtype == TUTTI_BF16 || dtype == TUTTI_F16);
	(dtype == TUTTI_BF16 ? k->widen_bf16 : k->widen_f16)(block, (const uint16_t *)x + first, n);
	return block;
}

/* For types of 16 bits. */
static void kernel_write_block(const struct kernel_table *k, void *out, tutti_dtype dtype,
			       size_t first, const float *x, size_t n)
{
	assert(dtype == TUTTI_BF16 || dtype == TUTTI_F16);
	(dtype == TUTTI_BF16 ? k->narrow_bf16 : k->narrow_f16)((uint16_t *)out + first, x, n);
}

struct adamw_numbers adamw_numbers(const tutti_optimizer *o, double number)
{
	return (struct adamw_numbers){.beta1 = o->beta1,
				      .beta2 = o->beta2,
				      .eps = o->eps,
				      .keep = 1 - o->lr * o->weight_decay,
				      .rate = (float)(o->lr / (1 - pow(o->beta1, number))),
				      .bias2 = (float)(1 / sqrt(1 - pow(o->beta2, number)))};
}

void kernel_adamw(const struct kernel_update *u, const tutti_optimizer *o, double number)
{
	struct kernel_adamw a = {.scale = u->scale, .numbers = adamw_numbers(o, number)};
	float block[BLOCK];
	fenv_t before;
	const struct kernel_table *k = kernels_begin(&before);

	for (size_t first = 0; first < u->count; first += a.count) {
		a.count = smaller(BLOCK, u->count - first);
		a.value = u->value + first;
		a.m = u->m + first;
		a.v = u->v + first;
		a.grad = kernel_read_block(k, block, u->grad, u->grad_dtype, first, a.count);
		k->adamw(&a);
	}
	kernels_end(&before);
}

void kernel_sgd(const struct kernel_update *u, const tutti_optimizer *o)
{
	struct kernel_sgd s = {
		.scale = u->scale, .lr = o->lr, .decay = o->weight_decay, .momentum = o->momentum};
	float block[BLOCK];
	fenv_t before;
	const struct kernel_table *k = kernels_begin(&before);

	for (size_t first = 0; first < u->count; first += s.count) {
		s.count = smaller(BLOCK, u->count - first);
		s.value = u->value + first;
		s.m = u->m ? u->m + first : NULL;
		s.grad = kernel_read_block(k, block, u->grad, u->grad_dtype, first, s.count);
		k->sgd(&s);
	}
	kernels_end(&before);
}

void kernel_convert(void *out, tutti_dtype dtype, const void *x, tutti_dtype x_dtype, size_t count)
{
	fenv_t before;
	const struct kernel_table *k = kernels_begin(&before);

	assert(dtype == x_dtype || dtype == TUTTI_F32 || x_dtype == TUTTI_F32);
	if (dtype != x_dtype && dtype == TUTTI_F32)
		kernel_read_block(k, out, x, x_dtype, 0, count);
	else if (dtype != x_dtype)
		kernel_write_block(k, out, dtype, 0, x, count);
	else if (count)
		memcpy(out, x, count * (dtype == TUTTI_F32 ? sizeof(float) : sizeof(uint16_t)));
	kernels_end(&before);
}

struct rounding_key rounding_key(const struct kernel_rounding *r, size_t count)
{
	uint64_t key = random_mix(random_mix(random_mix(r->seed) + r->step) + (uint64_t)r->param);
	uint64_t index = r->first, left = (UINT64_C(1) << 32) - (uint32_t)index;

	return (struct rounding_key){random_mix(key + (index >> 32)),
				     count < left ? count : (size_t)left};
}

void kernel_narrow_at_random(void *out, const float *x, size_t count,
			     const struct kernel_rounding *r)
{
	struct kernel_rounding from = *r;
	struct rounding_key next;
	uint16_t *to = out;
	fenv_t before;
	const struct kernel_table *k = kernels_begin(&before);

	for (size_t i = 0; i < count; i += next.count) {
		from.first = r->first + i;
		next = rounding_key(&from, count - i);
		k->narrow_at_random(to + i, x + i, next.count, next.key, (uint32_t)from.first);
	}
	kernels_end(&before);
}

void kernel_add(void *sum, tutti_dtype sum_dtype, const void *x, tutti_dtype x_dtype, size_t count)
{
	float block[BLOCK], widened[BLOCK];
	fenv_t before;
	const struct kernel_table *k = kernels_begin(&before);

	for (size_t first = 0, n; first < count; first += n) {
		n = smaller(BLOCK, count - first);
		const float *from = kernel_read_block(k, block, x, x_dtype, first, n);
		if (sum_dtype == TUTTI_F32) {
			k->add((float *)sum + first, from, n);
			continue;
		}
		kernel_read_block(k, widened, sum, sum_dtype, first, n);
		k->add(widened, from, n);
		kernel_write_block(k, sum, sum_dtype, first, widened, n);
	}
	kernels_end(&before);
}

void kernel_scale(void *out, tutti_dtype dtype, const void *x, tutti_dtype x_dtype, size_t count,
		  float by)
{
	float block[BLOCK];
	fenv_t before;
	const struct kernel_table *k = kernels_begin(&before);

	for (size_t first = 0, n; first < count; first += n) {
		n = smaller(BLOCK, count - first);
		float *to = dtype == TUTTI_F32 ? (float *)out + first : block;
		k->scale(to, kernel_read_block(k, block, x, x_dtype, first, n), n, by);
		if (dtype != TUTTI_F32)
			kernel_write_block(k, out, dtype, first, block, n);
	}
	kernels_end(&before);
}

double kernel_sum_of_squares(const void *x, tutti_dtype dtype, size_t count)
{
	double sums[8] = {0}, sum = 0;
	float block[BLOCK];
	fenv_t before;
	const struct kernel_table *k = kernels_begin(&before);

	for (size_t first = 0, n; first < count; first += n) {
		n = smaller(BLOCK, count - first);
		const float *from = kernel_read_block(k, block, x, dtype, first, n);
		k->add_squares(sums, from, n - n % 8);
		for (size_t i = n - n % 8; i < n; i++)
			sums[0] += (double)from[i] * (double)from[i];
	}
	for (size_t j = 0; j < 8; j++)
		sum += sums[j];
	kernels_end(&before);
	return isnan(sum) ? (double)NAN : sum;
}

/* The exponent bits. Only infinities and NaNs have all of them set. */
static uint32_t kernel_exponent_of(tutti_dtype dtype)
{
	assert(dtype == TUTTI_F32 || dtype == TUTTI_BF16 || dtype == TUTTI_F16);
	if (dtype == TUTTI_F32)
		return UINT32_C(0x7f800000);
	return dtype == TUTTI_BF16 ? 0x7f80 : 0x7c00;
}

static bool kernel_any_nonfinite(const void *x, tutti_dtype dtype, size_t first, size_t n)
{
	uint32_t exponent = kernel_exponent_of(dtype);

	if (dtype == TUTTI_F32)
		return kernels_loops()->any_has_32((const float *)x + first, n, exponent);
	return kernels_loops()->any_has_16((const uint16_t *)x + first, n, (uint16_t)exponent);
}

size_t kernel_first_nonfinite(const void *x, tutti_dtype dtype, size_t count)
{
	for (size_t first = 0, n; first < count; first += n) {
		n = smaller(BLOCK, count - first);
		if (!kernel_any_nonfinite(x, dtype, first, n))
			continue;
		while (!kernel_any_nonfinite(x, dtype, first, 1))
			first++;
		return first;
	}
	return count;
}
