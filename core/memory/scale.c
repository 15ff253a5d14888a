/* Scaled inputs: dst = scalar * src. Floats of 16 and 8 bits go through f32, a block at a time. */
#include "core/memory/dtype.h"
#include "core/memory/float_unit.h"
#include "core/memory/ops.h"
#include "core/memory/reduce_kernels.h"

#include <assert.h>

static void scale_widened(const struct reduce_kernels *k, const struct scaling *s)
{
	enum { MOST = REDUCE_BLOCK_BYTES / sizeof(float) };
	float acc[MOST], by;
	size_t n;

	k->widen[s->dtype](&by, s->scalar, 1);
	for (size_t first = 0; first < s->count; first += n) {
		size_t at = first * dtype_bytes(s->dtype);
		n = s->count - first < MOST ? s->count - first : MOST;
		k->widen[s->dtype](acc, (const char *)s->src + at, n);
		k->scale[TUTTI_F32](acc, acc, &by, n);
		k->narrow[s->dtype]((char *)s->dst + at, acc, n);
	}
}

void scale_with(const struct reduce_kernels *k, const struct scaling *s)
{
	if (k->widen[s->dtype])
		scale_widened(k, s);
	else
		k->scale[s->dtype](s->dst, s->src, s->scalar, s->count);
}

void scale(void *dst, const void *src, const void *scalar, size_t count, tutti_dtype dtype)
{
	assert(dtype_bytes(dtype) > 0);
	uint64_t unit = float_unit_begin();
	scale_with(reduce_kernels_of(simd_level()),
		   &(struct scaling){dst, src, scalar, count, dtype});
	float_unit_end(unit);
}
