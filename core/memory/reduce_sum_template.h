/* Sums of at most REDUCE_FUSED sources of floats in one pass: each source is loaded once, the tree
 * is added up in registers, and the result is stored to every destination from there.
 *
 * Included by reduce_template.h once for each width, with WIDTH, the bytes of a vector, and
 * VECTOR(name), which names what belongs to it. A value is two vectors, so that 16-bit floats
 * unpack into one. */

typedef float VECTOR(floats) __attribute__((vector_size(WIDTH)));
typedef double VECTOR(doubles) __attribute__((vector_size(WIDTH)));
typedef uint32_t VECTOR(words) __attribute__((vector_size(WIDTH)));
typedef uint64_t VECTOR(quads) __attribute__((vector_size(WIDTH)));

struct VECTOR(value) {
	VECTOR(floats) low, high;
};

typedef struct VECTOR(value) VECTOR(load_fn)(const char *src);
typedef struct VECTOR(value) VECTOR(add_fn)(struct VECTOR(value) a, struct VECTOR(value) b);
typedef struct VECTOR(value) VECTOR(end_fn)(struct VECTOR(value) x, float by);
typedef void VECTOR(store_fn)(char *dst, struct VECTOR(value) x);

/* The operations of an element type. All of it is constant where it is used, and everything is
 * inlined. */
struct VECTOR(type) {
	size_t element, step;           /* bytes of an element, and of what one value stands for */
	VECTOR(load_fn) *load;
	VECTOR(add_fn) *add;
	VECTOR(end_fn) *end;
	VECTOR(store_fn) *store;
};

INLINE struct VECTOR(value) VECTOR(add_f32)(struct VECTOR(value) a, struct VECTOR(value) b)
{
	return (struct VECTOR(value)){a.low + b.low, a.high + b.high};
}

INLINE VECTOR(floats) VECTOR(canonical_f32)(VECTOR(floats) x)
{
	VECTOR(words) is_nan = (VECTOR(words))(x != x);
	return (VECTOR(floats))(((VECTOR(words))x & ~is_nan) | (is_nan & F32_NAN));
}

/* Divides, where by is not 0. */
INLINE struct VECTOR(value) VECTOR(divide_f32)(struct VECTOR(value) x, float by)
{
	if (DIVIDES(by)) {
		x.low /= by;
		x.high /= by;
	}
	return x;
}

/* Divides, and makes NaNs canonical where there are any. */
INLINE struct VECTOR(value) VECTOR(end_f32)(struct VECTOR(value) x, float by)
{
	x = VECTOR(divide_f32)(x, by);
	if (__builtin_expect(!NAN_IN(f32, WIDTH)(x.low, x.high), 1))
		return x;
	return (struct VECTOR(value)){VECTOR(canonical_f32)(x.low), VECTOR(canonical_f32)(x.high)};
}

/* f32 and f64: two whole vectors; of the narrowest only one, so that few elements are left over. */
#define WHOLE_STEP (WIDTH == 16 ? (size_t)16 : (size_t)(2 * WIDTH))

INLINE struct VECTOR(value) VECTOR(load_whole)(const char *src)
{
	struct VECTOR(value) x = {{0}, {0}};

	memcpy(&x.low, src, WIDTH);
	if (WHOLE_STEP > WIDTH)
		memcpy(&x.high, src + WIDTH, WIDTH);
	return x;
}

INLINE void VECTOR(store_whole)(char *dst, struct VECTOR(value) x)
{
	memcpy(dst, &x.low, WIDTH);
	if (WHOLE_STEP > WIDTH)
		memcpy(dst + WIDTH, &x.high, WIDTH);
}

INLINE struct VECTOR(value) VECTOR(add_f64)(struct VECTOR(value) a, struct VECTOR(value) b)
{
	VECTOR(doubles) low = (VECTOR(doubles))a.low + (VECTOR(doubles))b.low;
	VECTOR(doubles) high = (VECTOR(doubles))a.high + (VECTOR(doubles))b.high;
	return (struct VECTOR(value)){(VECTOR(floats))low, (VECTOR(floats))high};
}

INLINE VECTOR(floats) VECTOR(canonical_f64)(VECTOR(floats) half)
{
	VECTOR(doubles) x = (VECTOR(doubles))half;
	VECTOR(quads) is_nan = (VECTOR(quads))(x != x);
	return (VECTOR(floats))(((VECTOR(quads))x & ~is_nan) | (is_nan & F64_NAN));
}

INLINE struct VECTOR(value) VECTOR(end_f64)(struct VECTOR(value) x, float by)
{
	if (DIVIDES(by)) {
		x.low = (VECTOR(floats))((VECTOR(doubles))x.low / (double)by);
		x.high = (VECTOR(floats))((VECTOR(doubles))x.high / (double)by);
	}
	if (__builtin_expect(!NAN_IN(f64, WIDTH)(x.low, x.high), 1))
		return x;
	return (struct VECTOR(value)){VECTOR(canonical_f64)(x.low), VECTOR(canonical_f64)(x.high)};
}

/* bf16 is the upper half of f32: of each pair, the one at the lower address goes into low. */
INLINE struct VECTOR(value) VECTOR(load_bf16)(const char *src)
{
	VECTOR(words) pairs;
	memcpy(&pairs, src, sizeof pairs);
	return (struct VECTOR(value)){(VECTOR(floats))(pairs << 16),
	                              (VECTOR(floats))(pairs & UINT32_C(0xffff0000))};
}

INLINE VECTOR(words) VECTOR(round_bf16)(VECTOR(floats) x)
{
	VECTOR(words) bits = (VECTOR(words))x;
#if WIDTH == 64
	return (VECTOR(words))round_to_bf16_64((__m512i)bits);
#else
	return bits + 0x7fff + ((bits >> 16) & 1);
#endif
}

/* The result to store is in low. */
INLINE struct VECTOR(value) VECTOR(end_bf16)(struct VECTOR(value) x, float by)
{
	x = VECTOR(divide_f32)(x, by);
#if WIDTH == 64 && defined(BF16_BY_INSTRUCTION)
	if (__builtin_expect(bf16_is_plain_64((__m512)x.low, (__m512)x.high), 1)) {
		x.low = (VECTOR(floats))bf16_pack_64((__m512)x.low, (__m512)x.high);
		return x;
	}
#endif
	x = VECTOR(end_f32)(x, 0);
	x.low = (VECTOR(floats))(VECTOR(round_bf16)(x.low) >> 16 |
				 (VECTOR(round_bf16)(x.high) & UINT32_C(0xffff0000)));
	return x;
}

INLINE void VECTOR(store_bf16)(char *dst, struct VECTOR(value) x)
{
	memcpy(dst, &x.low, sizeof x.low);
}

/* Conversions by the processor round as small_narrow does. */
#ifdef __F16C__
INLINE struct VECTOR(value) VECTOR(load_f16)(const char *src)
{
	return (struct VECTOR(value)){(VECTOR(floats))F16_WIDEN(WIDTH)(src),
	                              (VECTOR(floats))F16_WIDEN(WIDTH)(src + WIDTH / 2)};
}

INLINE void VECTOR(store_f16)(char *dst, struct VECTOR(value) x)
{
	F16_NARROW(WIDTH)(dst, x.low);
	F16_NARROW(WIDTH)(dst + WIDTH / 2, x.high);
}
#endif

/* Two f16 added and rounded once. That is what comes of their sum in f32, rounded again: 24 bits
 * are twice 11 and two, enough for the first rounding never to matter; subnormal sums are exact. */
#if WIDTH == 64 && defined(__AVX512FP16__)
INLINE struct VECTOR(value) VECTOR(add_f16)(struct VECTOR(value) a, struct VECTOR(value) b)
{
	return (struct VECTOR(value)){
		(VECTOR(floats))_mm512_add_ph((__m512h)a.low, (__m512h)b.low),
		(VECTOR(floats))_mm512_add_ph((__m512h)a.high, (__m512h)b.high)};
}

INLINE __mmask32 VECTOR(nans_in_f16)(VECTOR(floats) a, VECTOR(floats) b)
{
	return _mm512_mask_cmp_ph_mask(UINT32_MAX, (__m512h)a, (__m512h)b, _CMP_UNORD_Q);
}

INLINE VECTOR(floats) VECTOR(canonical_f16)(VECTOR(floats) x)
{
	__mmask32 is_nan = VECTOR(nans_in_f16)(x, x);
	return (VECTOR(floats))_mm512_mask_mov_epi16((__m512i)x, is_nan, _mm512_set1_epi16(0x7e00));
}

INLINE struct VECTOR(value) VECTOR(end_f16)(struct VECTOR(value) x, float by)
{
	(void)by;
	if (__builtin_expect(!VECTOR(nans_in_f16)(x.low, x.high), 1))
		return x;
	return (struct VECTOR(value)){VECTOR(canonical_f16)(x.low), VECTOR(canonical_f16)(x.high)};
}
#endif

INLINE struct VECTOR(value) VECTOR(sum)(struct VECTOR(type) t, const char *const *src, int n,
                                        size_t at, float by)
{
	struct VECTOR(value) v[REDUCE_FUSED];

	for (int i = 0; i < n; i++)
		v[i] = t.load(src[i] + at);
	for (int i = 0; i + 1 < n; i += 2)
		v[i] = t.add(v[i], v[i + 1]);
	for (int i = 0; i + 2 < n; i += 4)
		v[i] = t.add(v[i], v[i + 2]);
	return t.end(n > 4 ? t.add(v[0], v[4]) : v[0], by);
}

INLINE void VECTOR(fetch)(const char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 64)
		__builtin_prefetch(at + i);
}

/* From element first on; returns the first one that is left because it makes no whole value. n and
 * n_dst are constants. */
INLINE size_t VECTOR(sums_to)(struct VECTOR(type) t, const struct reduction *r, int n, int n_dst,
                              size_t first, size_t ahead)
{
	const char *src[REDUCE_FUSED];
	char *dst[REDUCE_FUSED];
	size_t at = first * t.element, bytes = r->count * t.element;
	float by = r->op == TUTTI_AVG ? (float)r->divisor : 0;

	for (int i = 0; i < n; i++)
		src[i] = r->src[i];
	for (int d = 0; d < n_dst; d++)
		dst[d] = r->dst[d];
	for (; at + t.step <= bytes; at += t.step) {
		for (int i = 0; WIDTH >= 32 && ahead && i < n; i++)
			VECTOR(fetch)(src[i] + at + ahead, t.step);
		struct VECTOR(value) x = VECTOR(sum)(t, src, n, at, by);
		for (int d = 0; d < n_dst; d++)
			t.store(dst[d] + at, x);
	}
	return at / t.element;
}

/* Collectives ask for one destination, or for as many as there are sources. Others are left to the
 * loop over single elements. */
INLINE size_t VECTOR(sums_of)(struct VECTOR(type) t, const struct reduction *r, int n,
                              size_t first, size_t ahead)
{
	if (r->n_dst == 1)
		return VECTOR(sums_to)(t, r, n, 1, first, ahead);
	if (r->n_dst == n)
		return VECTOR(sums_to)(t, r, n, n, first, ahead);
	return first;
}

INLINE size_t VECTOR(sums)(struct VECTOR(type) t, const struct reduction *r, size_t first,
                           size_t ahead)
{
	if ((r->count - first) * t.element < t.step)
		return first;
	switch (r->n_src) {
	case 1:
		return VECTOR(sums_of)(t, r, 1, first, ahead);
	case 2:
		return VECTOR(sums_of)(t, r, 2, first, ahead);
	case 3:
		return VECTOR(sums_of)(t, r, 3, first, ahead);
	case 4:
		return VECTOR(sums_of)(t, r, 4, first, ahead);
	case 5:
		return VECTOR(sums_of)(t, r, 5, first, ahead);
	case 6:
		return VECTOR(sums_of)(t, r, 6, first, ahead);
	case 7:
		return VECTOR(sums_of)(t, r, 7, first, ahead);
	case 8:
		return VECTOR(sums_of)(t, r, 8, first, ahead);
	default:
		return first;
	}
}

static size_t VECTOR(sum_f32)(const struct reduction *r, size_t first, size_t ahead)
{
	struct VECTOR(type) t = {4,
	                         WHOLE_STEP,
	                         VECTOR(load_whole),
	                         VECTOR(add_f32),
	                         VECTOR(end_f32),
	                         VECTOR(store_whole)};
	return VECTOR(sums)(t, r, first, ahead);
}

static size_t VECTOR(sum_f64)(const struct reduction *r, size_t first, size_t ahead)
{
	struct VECTOR(type) t = {8,
	                         WHOLE_STEP,
	                         VECTOR(load_whole),
	                         VECTOR(add_f64),
	                         VECTOR(end_f64),
	                         VECTOR(store_whole)};
	return VECTOR(sums)(t, r, first, ahead);
}

static size_t VECTOR(sum_bf16)(const struct reduction *r, size_t first, size_t ahead)
{
	struct VECTOR(type) t = {
		2, WIDTH, VECTOR(load_bf16), VECTOR(add_f32), VECTOR(end_bf16), VECTOR(store_bf16)};
	return VECTOR(sums)(t, r, first, ahead);
}

#ifdef __F16C__
static size_t VECTOR(sum_f16)(const struct reduction *r, size_t first, size_t ahead)
{
#if WIDTH == 64 && defined(__AVX512FP16__)
	struct VECTOR(type) pair = {2,
	                            WHOLE_STEP,
	                            VECTOR(load_whole),
	                            VECTOR(add_f16),
	                            VECTOR(end_f16),
	                            VECTOR(store_whole)};
	if (r->n_src == 2 && (r->op == TUTTI_SUM || r->divisor == 0))
		return VECTOR(sums_of)(pair, r, 2, first, ahead);
#endif
	struct VECTOR(type) t = {
		2, WIDTH, VECTOR(load_f16), VECTOR(add_f32), VECTOR(end_f32), VECTOR(store_f16)};
	return VECTOR(sums)(t, r, first, ahead);
}
#endif

#undef WHOLE_STEP
