/* Would break: sums that lack a contribution or have one twice, roundings beyond those of the
 * library's reductions, another order of blocks than promised, or more than two of them at once. */
#include "core/memory/dtype.h"
#include "tests/collectives/thread_ranks.h"
#include "tests/core/memory/twin.h"

#include <tutti/parallel.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define COUNT_MAX 3001

/* Rank from's contribution to element i of rank to's block: -12 to 12 eighths, in every type. */
static double value_of(int from, int to, size_t i)
{
	uint64_t h = (i * 7 + (uint64_t)from * 13 + (uint64_t)to * 5) * 0x9e3779b97f4a7c15u;

	return ((double)(h >> 59 & 31) - 15.0) / 8;
}

static bool is_small_float(tutti_dtype dtype)
{
	return dtype >= TUTTI_F16 && dtype <= TUTTI_F8_E5M2;
}

static void store(void *to, size_t i, tutti_dtype dtype, double x)
{
	if (dtype == TUTTI_F32)
		((float *)to)[i] = (float)x;
	else if (dtype == TUTTI_F64)
		((double *)to)[i] = x;
	else if (is_small_float(dtype) && dtype_bytes(dtype) == 2)
		((uint16_t *)to)[i] = (uint16_t)twin_encode(x, twin_format(dtype));
	else if (is_small_float(dtype))
		((uint8_t *)to)[i] = (uint8_t)twin_encode(x, twin_format(dtype));
	else {
		int64_t whole = (int64_t)(8 * x);
		memcpy((uint8_t *)to + i * dtype_bytes(dtype), &whole, dtype_bytes(dtype));
	}
}

static double load(const uint8_t *from, size_t i, tutti_dtype dtype)
{
	size_t bytes = dtype_bytes(dtype);
	uint32_t bits = 0;
	float f;
	double d;

	from += i * bytes;
	if (dtype == TUTTI_F32)
		return memcpy(&f, from, bytes), f;
	if (dtype == TUTTI_F64)
		return memcpy(&d, from, bytes), d;
	memcpy(&bits, from, bytes);
	return twin_decode(bits, twin_format(dtype));
}

/* Of a sum of n numbers below 2, in the type: a rounding at each addition, as messages may do. */
static double tolerance(tutti_dtype dtype, int n)
{
	double unit = dtype == TUTTI_F16       ? 0x1p-11
		      : dtype == TUTTI_BF16    ? 0x1p-8
		      : dtype == TUTTI_F8_E4M3 ? 0x1p-4
		      : dtype == TUTTI_F8_E5M2 ? 0x1p-3
		      : dtype == TUTTI_F32     ? 0x1p-24
					       : 0x1p-53;
	return unit * 2 * n * n;
}

struct job {
	struct rank *r;
	size_t count;
	tutti_dtype dtype;
	tutti_op op;
	bool is_deterministic, is_uneven;
	int calls;
	const void *buffers[2];
};

static double given(const struct job *j, int to, size_t i)
{
	double value = value_of(j->r->rank, to, i);

	return j->is_uneven ? value * (1 + 0.37 * j->r->rank) / 3 : value;
}

static void note(struct job *j, bool holds, const char *what)
{
	if (!holds)
		report_wrong(j->r, what, TUTTI_OK);
}

static tutti_status contribute(void *arg, int rank, void *data, size_t count)
{
	struct job *j = arg;

	note(j, rank == j->calls, "the order of the calls");
	note(j, count == j->count && (uintptr_t)data % 64 == 0, "count or alignment");
	if (!j->buffers[j->calls % 2])
		j->buffers[j->calls % 2] = data;
	note(j, data == j->buffers[0] || data == j->buffers[1], "more than two blocks");
	j->calls++;
	for (size_t i = 0; i < count; i++)
		store(data, i, j->dtype, given(j, rank, i));
	return TUTTI_OK;
}

/* The same contributions by tutti_reduce_scatter. */
static void scatter_plainly(struct job *j, uint8_t *all, uint8_t *recv)
{
	size_t bytes = j->count * dtype_bytes(j->dtype);

	for (int to = 0; to < j->r->size; to++)
		for (size_t i = 0; i < j->count; i++)
			store(all + (size_t)to * bytes, i, j->dtype, given(j, to, i));
	expect(j->r, "reduce_scatter",
	       tutti_reduce_scatter(all, recv, j->count, j->dtype, j->op, j->r->comm, NULL));
}

static void check_floats(struct job *j, const uint8_t *recv)
{
	double most = tolerance(j->dtype, j->r->size);

	for (size_t i = 0; i < j->count; i++) {
		double sum = 0;
		for (int from = 0; from < j->r->size; from++)
			sum += value_of(from, j->r->rank, i);
		if (j->op == TUTTI_AVG)
			sum /= j->r->size;
		if (fabs(load(recv, i, j->dtype) - sum) > most) {
			note(j, false, "a sum of floats");
			break;
		}
	}
}

static void scatter_once(struct job j, uint8_t *recv, uint8_t *plain, uint8_t *all)
{
	size_t bytes = j.count * dtype_bytes(j.dtype);

	memset(recv, 0xee, bytes + 1);
	expect(j.r, "reduce_scatter_each",
	       tutti_reduce_scatter_each(recv, j.count, j.dtype, j.op, contribute, &j, j.r->comm,
					 NULL));
	note(&j, j.calls == j.r->size, "the number of calls");
	note(&j, recv[bytes] == 0xee, "a byte behind recv was written");
	scatter_plainly(&j, all, plain);
	if (j.dtype >= TUTTI_I8 || j.op == TUTTI_MIN || j.op == TUTTI_MAX || j.is_deterministic)
		note(&j, memcmp(recv, plain, bytes) == 0, "not the bits of reduce_scatter");
	else if (j.op == TUTTI_SUM || j.op == TUTTI_AVG)
		check_floats(&j, recv);
}

static void scatter_all(struct rank *r)
{
	static const size_t counts[] = {1, COUNT_MAX, 0, 7, 1021};
	size_t room = COUNT_MAX * sizeof(uint64_t);
	uint8_t *recv = malloc(room + 9), *plain = malloc(room),
		*all = malloc(room * (size_t)r->size);

	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		for (int d = 0; d < DTYPE_COUNT; d++)
			for (int op = (d + (int)i) % 2; op <= TUTTI_BXOR; op += 2) {
				struct job j = {.r = r,
						.count = counts[i],
						.dtype = (tutti_dtype)d,
						.op = (tutti_op)op};
				if (op < TUTTI_BAND || d >= TUTTI_I8)
					scatter_once(j, recv + (i + (size_t)d) % 8, plain, all);
			}
	free(recv);
	free(plain);
	free(all);
}

static void test_values(void **state)
{
	for (int n = 1; n <= RANKS_MAX; n++) {
		with_ranks(n, NULL, 0, scatter_all);
		with_ranks(n, n % 2 ? "shm" : "tcp", 0, scatter_all);
	}
}

/* 700,001 elements go in many pieces. */
static void scatter_long(struct rank *r)
{
	size_t count = 700001, bytes = count * sizeof(float);
	uint8_t *recv = malloc(bytes + 1), *plain = malloc(bytes),
		*all = malloc(bytes * (size_t)r->size);
	struct job j = {.r = r, .count = count, .dtype = TUTTI_F32};

	scatter_once(j, recv, plain, all);
	free(recv);
	free(plain);
	free(all);
}

static void test_long(void **state)
{
	everywhere(scatter_long);
}

/* The bits of reduce_scatter, which depend on nothing but the data; values differ in size, so that
 * another order of additions would show. */
static void scatter_deterministically(struct rank *r)
{
	static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_F64, TUTTI_F16, TUTTI_BF16};
	const tutti_config config = {.deterministic = 1, .timeout_ms = 60000};
	size_t room = COUNT_MAX * sizeof(double);
	uint8_t *recv = malloc(room + 1), *plain = malloc(room),
		*all = malloc(room * (size_t)r->size);
	struct rank child = *r;

	expect(r, "split", tutti_comm_split(r->comm, 0, r->rank, &config, &child.comm));
	for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
		scatter_once((struct job){.r = &child,
					  .count = COUNT_MAX,
					  .dtype = dtypes[i],
					  .is_deterministic = true,
					  .is_uneven = true},
			     recv, plain, all);
	if (child.why[0])
		memcpy(r->why, child.why, sizeof r->why);
	tutti_comm_destroy(child.comm);
	free(recv);
	free(plain);
	free(all);
}

static void test_deterministic(void **state)
{
	everywhere(scatter_deterministically);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_deterministic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
