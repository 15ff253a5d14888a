/* The elements: hashes of (seed, rank, index), cut to what the operation can do exactly. */
#include "data.h"

#include "api.h"

#include "../core/memory/twin.h"

#include <math.h>
#include <string.h>

static const struct {
	const char *name;
	size_t bytes;
	int exact; /* integers up to this are summed exactly over 8 ranks           */
} dtypes[DTYPES] = {
	[TUTTI_F32] = {"f32", 4, 1000},   [TUTTI_F64] = {"f64", 8, 1000},
	[TUTTI_F16] = {"f16", 2, 256},    [TUTTI_BF16] = {"bf16", 2, 32},
	[TUTTI_F8_E4M3] = {"e4m3", 1, 2}, [TUTTI_F8_E5M2] = {"e5m2", 1, 1},
	[TUTTI_I8] = {"i8", 1, 0},        [TUTTI_U8] = {"u8", 1, 0},
	[TUTTI_I16] = {"i16", 2, 0},      [TUTTI_U16] = {"u16", 2, 0},
	[TUTTI_I32] = {"i32", 4, 0},      [TUTTI_U32] = {"u32", 4, 0},
	[TUTTI_I64] = {"i64", 8, 0},      [TUTTI_U64] = {"u64", 8, 0},
};

#define NAME(op, name, ...) name,
static const char *const ops[OPS_BUILT_IN] = {OPS_LIST(NAME)};

/* What MIN and MAX are tried on, in order; index 0 is NaN, which wins always. */
static const double ordered[] = {(double)NAN, -448,     -3, -2, -1, -0.015625, -0.0,
				 0.0,         0.015625, 1,  2,  3,  448};
#define ORDERED  (sizeof ordered / sizeof ordered[0])
#define INTEGERS 2048 /* bits of -INTEGERS .. INTEGERS are looked up */

static uint64_t ordered_bits[DTYPES][ORDERED];
static uint64_t integer_bits[DTYPES][2 * INTEGERS + 1];

size_t data_bytes(tutti_dtype dtype)
{
	return dtypes[dtype].bytes;
}

bool data_is_float(tutti_dtype dtype)
{
	return dtype <= TUTTI_F8_E5M2;
}

const char *data_dtype_name(tutti_dtype dtype)
{
	return dtypes[dtype].name;
}

const char *data_op_name(const struct data *d)
{
	return d->maker == DATA_USER     ? "an op of the caller's"
	       : d->maker == DATA_SCALED ? "a scaled sum"
					 : ops[d->op];
}

bool data_fits(tutti_op op, tutti_dtype dtype)
{
	return !op_is_bitwise(op) || !data_is_float(dtype);
}

/* x in the dtype's bits; NaNs become the canonical one. */
uint64_t data_bits_of(double x, tutti_dtype dtype)
{
	uint64_t bits = 0;
	float narrow = (float)x;

	if (dtype == TUTTI_F64) {
		memcpy(&bits, &x, sizeof x);
		return isnan(x) ? UINT64_C(0x7ff8000000000000) : bits;
	}
	if (dtype != TUTTI_F32)
		return twin_encode(x, twin_format(dtype));
	memcpy(&bits, &narrow, sizeof narrow);
	return isnan(x) ? 0x7fc00000 : bits;
}

void data_init(void)
{
	for (int dtype = 0; dtype <= TUTTI_F8_E5M2; dtype++) {
		for (size_t i = 0; i < ORDERED; i++)
			ordered_bits[dtype][i] = data_bits_of(ordered[i], (tutti_dtype)dtype);
		for (int i = -INTEGERS; i <= INTEGERS; i++)
			integer_bits[dtype][i + INTEGERS] = data_bits_of(i, (tutti_dtype)dtype);
	}
}

static uint64_t hash(const struct data *d, int rank, size_t i)
{
	uint64_t z = d->seed + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) +
		     (uint64_t)(rank + 1) * UINT64_C(0xd1342543de82ef95);
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* With these every sum stays exact: all products are even, or zero. */
int data_scalar(const struct data *d, int rank)
{
	static const int scalars[] = {2, -2, 2, -2, 0};
	return d->maker == DATA_SCALED ? scalars[hash(d, rank, SIZE_MAX) % 5] : 1;
}

static int small_integer(const struct data *d, int rank, size_t i)
{
	int most = dtypes[d->dtype].exact;
	return (int)(hash(d, rank, i) % (uint64_t)(2 * most + 1)) - most;
}

/* 1, -1, 2 and -2: products of 8 ranks stay inside of every format. */
static double factor(const struct data *d, int rank, size_t i)
{
	uint64_t h = hash(d, rank, i);
	return (h & 1 ? -1.0 : 1.0) * (h & 6 ? 1.0 : 2.0);
}

static size_t place_in_order(const struct data *d, int rank, size_t i)
{
	size_t k = hash(d, rank, i) % (4 * ORDERED);
	return k < ORDERED ? k : 1 + k % (ORDERED - 1); /* NaNs are rare */
}

/* In [-1, 1) times a power of two, so that sums round and order matters. */
static double rounded(const struct data *d, int rank, size_t i)
{
	uint64_t h = hash(d, rank, i);
	double x = ldexp((double)(h >> 12), (int)(h & 7) - 55) - ldexp(1, (int)(h & 7) - 4);
	if (d->dtype == TUTTI_F64)
		return x;
	if (d->dtype == TUTTI_F32)
		return (double)(float)x;
	return twin_decode((uint32_t)data_bits_of(x, d->dtype), twin_format(d->dtype));
}

uint64_t data_element(const struct data *d, int rank, size_t i)
{
	if (d->maker == DATA_USER && d->dtype == TUTTI_F64)
		return data_bits_of(rounded(d, rank, i), TUTTI_F64); /* no NaNs */
	if (d->kind == DATA_BITS || d->maker == DATA_USER || !data_is_float(d->dtype))
		return hash(d, rank, i);
	if (d->kind == DATA_ROUNDED)
		return data_bits_of(rounded(d, rank, i), d->dtype);
	if (d->op == TUTTI_PROD)
		return data_bits_of(factor(d, rank, i), d->dtype);
	if (d->op == TUTTI_SUM || d->op == TUTTI_AVG)
		return integer_bits[d->dtype][small_integer(d, rank, i) + INTEGERS];
	size_t k = place_in_order(d, rank, i);
	if (k == 0 && d->ranks > 1)
		return UINT64_MAX; /* a NaN with a sign and a payload */
	return ordered_bits[d->dtype][k];
}

void data_fill(const struct data *d, int rank, size_t first, size_t count, void *out)
{
	size_t bytes = data_bytes(d->dtype);
	for (size_t i = 0; i < count; i++) {
		uint64_t bits = data_element(d, rank, first + i);
		memcpy((char *)out + i * bytes, &bits, bytes);
	}
}

uint64_t data_hash(const char *bytes, size_t n)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
	return h;
}

static uint64_t expect_ordered(const struct data *d, size_t i)
{
	size_t best = place_in_order(d, 0, i);
	for (int rank = 1; rank < d->ranks; rank++) {
		size_t k = place_in_order(d, rank, i);
		if (best == 0 || k == 0)
			best = 0;
		else if ((k < best) == (d->op == TUTTI_MIN))
			best = k;
	}
	return ordered_bits[d->dtype][best];
}

static uint64_t expect_product(const struct data *d, size_t i)
{
	double product = 1;
	for (int rank = 0; rank < d->ranks; rank++)
		product *= factor(d, rank, i);
	return data_bits_of(product, d->dtype);
}

static uint64_t expect_exact_sum(const struct data *d, size_t i)
{
	bool is_minus_zero = d->maker == DATA_SCALED; /* when all products are */
	int sum = 0;

	for (int rank = 0; rank < d->ranks; rank++) {
		int x = small_integer(d, rank, i), by = data_scalar(d, rank);
		sum += x * by;
		is_minus_zero &= x * by == 0 && (x < 0 || by < 0);
	}
	if (is_minus_zero)
		return data_bits_of(-0.0, d->dtype);
	if (d->op == TUTTI_AVG && d->dtype == TUTTI_F64)
		return data_bits_of((double)sum / d->ranks, d->dtype);
	if (d->op == TUTTI_AVG)
		return data_bits_of((double)((float)sum / (float)d->ranks), d->dtype);
	return sum >= -INTEGERS && sum <= INTEGERS ? integer_bits[d->dtype][sum + INTEGERS]
						   : data_bits_of(sum, d->dtype);
}

static uint64_t expect_exact(const struct data *d, size_t i)
{
	switch ((int)d->op) {
	case TUTTI_SUM:
	case TUTTI_AVG:
		return expect_exact_sum(d, i);
	case TUTTI_PROD:
		return expect_product(d, i);
	case TUTTI_MIN:
	case TUTTI_MAX:
		return expect_ordered(d, i);
	default:
		twin_lacks_op(d->op);
	}
}

/* The fixed association: by distance 1, 2, 4, ... */
static uint64_t expect_tree(const struct data *d, size_t i)
{
	double wide[API_RANKS];
	float narrow[API_RANKS];

	for (int rank = 0; rank < d->ranks; rank++) {
		wide[rank] = rounded(d, rank, i);
		narrow[rank] = (float)wide[rank];
	}
	for (int far = 1; far < d->ranks; far *= 2) {
		for (int rank = 0; rank + far < d->ranks; rank += 2 * far) {
			wide[rank] += wide[rank + far];
			narrow[rank] += narrow[rank + far];
		}
	}
	if (d->op == TUTTI_AVG) {
		wide[0] /= d->ranks;
		narrow[0] /= (float)d->ranks;
	}
	return data_bits_of(d->dtype == TUTTI_F64 ? wide[0] : (double)narrow[0], d->dtype);
}

static bool is_signed(tutti_dtype dtype)
{
	return dtype == TUTTI_I8 || dtype == TUTTI_I16 || dtype == TUTTI_I32 || dtype == TUTTI_I64;
}

/* Sign or zero extended. */
static __int128 widen(uint64_t bits, tutti_dtype dtype)
{
	unsigned unused = 64 - 8 * (unsigned)data_bytes(dtype);
	if (is_signed(dtype))
		return (int64_t)(bits << unused) >> unused;
	return bits << unused >> unused;
}

static uint64_t combine(uint64_t x, uint64_t y, tutti_dtype dtype, tutti_op op)
{
	return twin_combine(x, y, widen(x, dtype) < widen(y, dtype), op);
}

static uint64_t expect_integer(const struct data *d, size_t i)
{
	uint64_t result = data_element(d, 0, i) * (uint64_t)data_scalar(d, 0);
	__int128 sum = widen(result, d->dtype);

	for (int rank = 1; rank < d->ranks; rank++) {
		uint64_t x = data_element(d, rank, i) * (uint64_t)data_scalar(d, rank);
		sum += widen(x, d->dtype);
		result = combine(result, x, d->dtype, d->op);
	}
	return d->op == TUTTI_AVG ? (uint64_t)(sum / d->ranks) : result;
}

void data_expect(const struct data *d, size_t first, size_t count, void *out)
{
	size_t bytes = data_bytes(d->dtype);
	for (size_t i = 0; i < count; i++) {
		uint64_t bits = d->maker == DATA_USER      ? own_op_expect(d, first + i)
				: !data_is_float(d->dtype) ? expect_integer(d, first + i)
				: d->kind == DATA_ROUNDED  ? expect_tree(d, first + i)
							   : expect_exact(d, first + i);
		memcpy((char *)out + i * bytes, &bits, bytes);
	}
}
