/* Breaks when kernels reduce or scale to other bits than the host's core/memory/reduce.c: any
 * dtype, op, number of sources and alignment, special values, several blocks; or write beside the
 * result. */
#include "launch.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "core/memory/reduce.h"
#include "tests/random.h"
#include "tests/whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

#define SOURCES_MOST 1024
#define COUNT_MOST   1200
#define ROOM         (COUNT_MOST * 8 + 64)
#define GUARD        0xa5

static uint64_t seed;

static uint64_t draw(uint64_t n)
{
	return random_below(&seed, n);
}

static const void *sources[SOURCES_MOST];
static char *memory;

/* Numbers near one, whose sums round, any bits, and numbers that have rules of their own. */
static uint64_t random_bits(tutti_dtype dtype, int flavour)
{
	static const uint32_t f32[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
				       0xffc00001, 0x7f800001, 0xff812345, 1,          0x80000001,
				       0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f800000};
	static const uint64_t edges[] = {0,
					 1,
					 UINT64_MAX,
					 UINT64_MAX >> 1,
					 UINT64_C(1) << 63,
					 UINT64_C(0x7ff0000000000000),
					 UINT64_C(0x7ff8000000000001)};
	unsigned unused = 64 - 8 * (unsigned)dtype_bytes(dtype);
	uint64_t bits = random_next(&seed);
	float f = (float)((double)(bits >> 40) / (1 << 24) * 4 - 2);
	double d = f;

	if (flavour == 0)
		return bits;
	if (flavour == 2 && draw(3) == 0)
		return dtype == TUTTI_F32 ? f32[draw(15)] : edges[draw(7)] >> unused;
	if (dtype == TUTTI_F32 || dtype == TUTTI_BF16) {
		memcpy(&bits, &f, sizeof f);
		bits = dtype == TUTTI_F32 ? (uint32_t)bits : (uint32_t)bits >> 16;
	} else if (dtype == TUTTI_F64) {
		memcpy(&bits, &d, sizeof d);
	} else if (dtype == TUTTI_F16) {
		bits = (bits & 0x83ff) | 0x3800 | (bits >> 20 & 0x400);
	}
	return bits;
}

/* shift: from a multiple of 64 bytes. */
static void fill_sources(int n, size_t count, tutti_dtype dtype, int flavour, const int *shift)
{
	size_t bytes = dtype_bytes(dtype);

	for (int s = 0; s < n; s++) {
		char *at = memory + (size_t)s * ROOM + shift[s % 8];
		sources[s] = at;
		for (size_t i = 0; i < count; i++) {
			uint64_t bits = random_bits(dtype, flavour);
			memcpy(at + i * bytes, &bits, bytes);
		}
	}
}

struct shape {
	tutti_dtype dtype;
	tutti_op op;
	int n_src, n_dst, divisor;
	size_t count;
	unsigned blocks;
	int in_place, shift[8];
};

static void check_equal(const struct shape *s, const char *got, const char *want)
{
	size_t bytes = dtype_bytes(s->dtype);

	for (size_t i = 0; i < s->count; i++)
		if (memcmp(got + i * bytes, want + i * bytes, bytes) != 0) {
			uint64_t g = 0, w = 0;
			memcpy(&g, got + i * bytes, bytes);
			memcpy(&w, want + i * bytes, bytes);
			fail_msg("%s of %s, %d sources, count %zu, divisor %d, %u blocks, element "
				 "%zu: got %#llx, want %#llx",
				 op_name(s->op), dtype_name(s->dtype), s->n_src, s->count,
				 s->divisor, s->blocks, i, (unsigned long long)g,
				 (unsigned long long)w);
		}
}

static void check_guards(const char *room, const char *at, size_t bytes)
{
	for (const char *p = room; p < at; p++)
		assert_int_equal((unsigned char)*p, GUARD);
	for (const char *p = at + bytes; p < room + ROOM; p++)
		assert_int_equal((unsigned char)*p, GUARD);
}

static void launch(kernel_block_fn *fn, const void *args, unsigned blocks)
{
	struct launch l;
	launch_start(&l, fn, args, blocks);
	launch_wait(&l);
}

static void launch_reduction(const struct shape *s, void *const *dst)
{
	struct reduce_wide_args wide = {.count = s->count,
					.n_dst = s->n_dst,
					.n_src = s->n_src,
					.dtype = (int)s->dtype,
					.op = (int)s->op,
					.divisor = s->divisor};
	struct reduce_args few = {.count = s->count,
				  .n_dst = s->n_dst,
				  .n_src = s->n_src,
				  .dtype = (int)s->dtype,
				  .op = (int)s->op,
				  .divisor = s->divisor};

	memcpy(wide.dst, dst, sizeof wide.dst);
	memcpy(few.dst, dst, sizeof few.dst);
	memcpy(wide.src, sources, sizeof sources[0] * (size_t)s->n_src);
	if (s->n_src > REDUCE_KERNEL_SOURCES) {
		launch(launch_reduce_wide_block, &wide, s->blocks);
	} else {
		memcpy(few.src, sources, sizeof sources[0] * (size_t)s->n_src);
		launch(launch_reduce_block, &few, s->blocks);
	}
}

static void check_shape(const struct shape *s, int flavour)
{
	static char want[ROOM], results[REDUCE_KERNEL_DSTS][ROOM] __attribute__((aligned(64)));
	size_t bytes = s->count * dtype_bytes(s->dtype);
	void *dst[REDUCE_KERNEL_DSTS] = {NULL}, *expected = want;

	fill_sources(s->n_src, s->count, s->dtype, flavour, s->shift);
	reduce(&expected, 1, sources, s->n_src, s->count, s->dtype, s->op, s->divisor);
	memset(results, GUARD, sizeof results);
	for (int d = 0; d < s->n_dst; d++)
		dst[d] = results[d] + s->shift[(d + 1) % 8];
	if (s->in_place) {
		memcpy(dst[0], sources[s->n_src - 1], bytes);
		sources[s->n_src - 1] = dst[0];
	}
	launch_reduction(s, dst);
	for (int d = 0; d < s->n_dst; d++) {
		check_equal(s, dst[d], want);
		check_guards(results[d], dst[d], bytes);
	}
}

static void draw_shifts(struct shape *s)
{
	int size = (int)dtype_bytes(s->dtype), even = (int)draw(16), kind = (int)draw(4);

	for (int i = 0; i < 8; i++) {
		s->shift[i] = even; /* any alignment, but the same */
		if (kind == 1)
			s->shift[i] = (int)draw((uint64_t)(16 / size)) * size;
		if (kind == 2)
			s->shift[i] = (int)draw(16);
		if (kind == 3)
			s->shift[i] = even - even % size;
	}
}

static const int n_sources[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 32, 33, 70};

static void every_dtype_op_and_shape(void **state)
{
	int flavours = whole_or(3, 2, 1);

	for (int dtype = 0; dtype < (int)DTYPE_COUNT; dtype++)
		for (int op = 0; op < OPS_BUILT_IN; op++) {
			if (!op_fits((tutti_op)op, (tutti_dtype)dtype))
				continue;
			for (size_t n = 0; n < sizeof n_sources / sizeof n_sources[0]; n++)
				for (int flavour = 0; flavour < flavours; flavour++) {
					struct shape s = {.dtype = (tutti_dtype)dtype,
							  .op = (tutti_op)op,
							  .n_src = n_sources[n],
							  .n_dst =
								  1 + (int)draw(REDUCE_KERNEL_DSTS),
							  .count = draw(draw(2) ? 40 : COUNT_MOST),
							  .blocks = 1 + (unsigned)draw(3),
							  .in_place = (int)draw(2)};
					s.divisor = (int)draw(2) * s.n_src;
					draw_shifts(&s);
					check_shape(&s, flavour);
				}
		}
}

/* The hot sums where a thread has several vectors of each source, some of them beyond the end. */
static void sums_of_many_vectors(void **state)
{
	static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16, TUTTI_F64, TUTTI_I8};

	for (int round = 0; round < whole_or(60, 30, 10); round++) {
		struct shape s = {.dtype = dtypes[draw(5)],
				  .op = draw(2) ? TUTTI_SUM : TUTTI_AVG,
				  .n_src = 1 + (int)draw(8),
				  .n_dst = 1 + (int)draw(2),
				  .blocks = 1};
		s.count = COUNT_MOST - draw(9);
		s.divisor = s.n_src;
		check_shape(&s, (int)draw(3));
	}
}

static void as_many_sources_as_there_may_be(void **state)
{
	static const int n[] = {64, 65, 511, 1000, 1023, 1024};

	for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
		struct shape s = {.dtype = draw(2) ? TUTTI_BF16 : TUTTI_F32,
				  .op = TUTTI_SUM,
				  .n_src = n[i],
				  .n_dst = 1,
				  .count = 21,
				  .blocks = 1};
		draw_shifts(&s);
		check_shape(&s, 1);
		s.dtype = draw(2) ? TUTTI_I64 : TUTTI_U64;
		s.op = TUTTI_AVG;
		s.divisor = n[i];
		check_shape(&s, 0);
	}
}

static void scaled_inputs(void **state)
{
	static char want[ROOM], result[ROOM] __attribute__((aligned(64)));

	for (int round = 0; round < whole_or(300, 150, 60); round++) {
		struct shape s = {.dtype = (tutti_dtype)draw(DTYPE_COUNT),
				  .count = draw(draw(2) ? 40 : COUNT_MOST),
				  .n_src = 1,
				  .blocks = 1 + (unsigned)draw(3)};
		uint64_t scalar = random_bits(s.dtype, (int)draw(3));
		draw_shifts(&s);
		fill_sources(1, s.count, s.dtype, (int)draw(3), s.shift);
		scale(want, sources[0], &scalar, s.count, s.dtype);
		memset(result, GUARD, sizeof result);
		struct scale_args args = {.dst = result + s.shift[1],
					  .src = sources[0],
					  .scalar = scalar,
					  .count = s.count,
					  .dtype = (int)s.dtype};
		launch(launch_scale_block, &args, s.blocks);
		check_equal(&s, args.dst, want);
		check_guards(result, args.dst, s.count * dtype_bytes(s.dtype));
	}
}

int main(void)
{
	const char *given = getenv("SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_dtype_op_and_shape),
		cmocka_unit_test(sums_of_many_vectors),
		cmocka_unit_test(as_many_sources_as_there_may_be),
		cmocka_unit_test(scaled_inputs),
	};
	int failed;

	seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	printf("SEED=%llu\n", (unsigned long long)seed);
	memory = aligned_alloc(64, (size_t)SOURCES_MOST * ROOM);
	assert_non_null(memory);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(memory);
	return failed;
}
