/* Breaks when a kernel of training gives other bits than train/precision, which does the same on
 * the host: any dtypes, counts, alignments and numbers of blocks, subnormal numbers, infinities and
 * NaNs; or writes beside its arrays. */
#include "launch.h"
#include "tests/random.h"
#include "train/precision/precision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

#define MOST   3000
#define ROOM   (MOST + 64) /* of f32 */
#define GUARD  0xa5
#define ROUNDS 400

static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16};
static uint64_t seed;

static uint64_t draw(uint64_t n)
{
	return random_below(&seed, n);
}

static size_t width(tutti_dtype dtype)
{
	return dtype == TUTTI_F32 ? 4 : 2;
}

/* Any bits, numbers near one, or numbers that have rules of their own among those. */
static uint32_t random_bits(tutti_dtype dtype, int flavour)
{
	static const uint32_t special[] = {
		0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001,
		0x7f800001, 0xff812345, 1,          0x80000001, 0x007fffff, 0x00800000,
		0x7f7fffff, 0xff7fffff, 0x7f7f8000, 0x7f7f0000, 0x3f808000, 0x3f818000,
		0x477fe000, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x387fe000};
	uint32_t bits = (uint32_t)random_next(&seed);
	float x = (float)draw(1 << 24) / (1 << 22) - 2;

	if (flavour == 2 && draw(3) == 0)
		bits = special[draw(sizeof special / sizeof *special)];
	else if (flavour != 0)
		memcpy(&bits, &x, sizeof bits);
	if (dtype == TUTTI_F16 && flavour == 1)
		return 0x3800 | (bits & 0x83ff);
	return dtype == TUTTI_F32 ? bits : bits >> 16;
}

/* The same array twice: for the host, and for the kernel. */
struct twin {
	_Alignas(64) unsigned char host[ROOM * 4], device[ROOM * 4];
	size_t offset, bytes;
};

static void fill(struct twin *a, tutti_dtype dtype, size_t count, int flavour)
{
	a->offset = width(dtype) * (draw(2) ? 16 * draw(2) : draw(20));
	a->bytes = count * width(dtype);
	memset(a->host, GUARD, sizeof a->host);
	for (size_t i = 0; i < count; i++) {
		uint32_t bits = random_bits(dtype, flavour);
		memcpy(a->host + a->offset + i * width(dtype), &bits, width(dtype));
	}
	memcpy(a->device, a->host, sizeof a->host);
}

static void *host(struct twin *a)
{
	return a->host + a->offset;
}

static void *device(struct twin *a)
{
	return a->device + a->offset;
}

static void check(const struct twin *a, const char *what)
{
	for (size_t i = 0; i < sizeof a->host; i++)
		if (a->host[i] != a->device[i])
			fail_msg("%s: byte %zu of %zu differs from the host's: %#x, not %#x", what,
				 i - a->offset, a->bytes, a->device[i], a->host[i]);
}

static void launch(kernel_block_fn *fn, const void *args)
{
	struct launch l;

	launch_start(&l, fn, args, 1 + (unsigned)draw(3));
	launch_wait(&l);
}

static struct kernel_rounding draw_rounding(void)
{
	return (struct kernel_rounding){.seed = random_next(&seed),
					.step = draw(1000),
					.param = (int)draw(50),
					.first = draw(2) ? draw(1 << 20)
							 : ((size_t)3 << 32) + draw(1000)};
}

static struct train_rounding for_kernel(const struct kernel_rounding *r, size_t count)
{
	struct rounding_key key = rounding_key(r, count);

	assert_true(key.count == count);
	return (struct train_rounding){.key = key.key, .first = (uint32_t)r->first, .is_random = 1};
}

static void draw_optimizer(tutti_optimizer *o)
{
	*o = (tutti_optimizer){.kind = draw(2) ? TUTTI_SGD : TUTTI_ADAMW,
			       .lr = (float)draw(100) / 1000,
			       .beta1 = 0.9f,
			       .beta2 = 0.95f,
			       .eps = 1e-8f,
			       .weight_decay = draw(2) ? 0.1f : 0,
			       .momentum = draw(2) ? 0.9f : 0};
}

static void updates(void **state)
{
	static struct twin value, m, v, grad, low;

	for (int round = 0; round < ROUNDS; round++) {
		size_t count = draw(draw(2) ? 40 : MOST);
		tutti_dtype grad_dtype = dtypes[draw(3)], low_dtype = dtypes[draw(3)];
		struct kernel_rounding r = draw_rounding();
		double number = (double)(1 + draw(50));
		int flavour = (int)draw(3);
		tutti_optimizer o;
		draw_optimizer(&o);
		struct adamw_numbers n = adamw_numbers(&o, number);
		int is_random = low_dtype == TUTTI_BF16 && draw(2);
		int has_m = o.kind == TUTTI_ADAMW || o.momentum != 0;
		fill(&value, TUTTI_F32, count, flavour);
		fill(&m, TUTTI_F32, count, flavour);
		fill(&v, TUTTI_F32, count, flavour);
		fill(&grad, grad_dtype, count, flavour);
		fill(&low, low_dtype, count, 0);
		struct kernel_update u = {host(&value), has_m ? host(&m) : NULL,
					  host(&v),     host(&grad),
					  grad_dtype,   count,
					  0.7f};
		if (o.kind == TUTTI_ADAMW)
			kernel_adamw(&u, &o, number);
		else
			kernel_sgd(&u, &o);
		if (is_random)
			kernel_narrow_at_random(host(&low), host(&value), count, &r);
		else if (low_dtype != TUTTI_F32)
			kernel_convert(host(&low), low_dtype, host(&value), TUTTI_F32, count);
		struct train_update_args args = {
			.value = device(&value),
			.m = has_m ? device(&m) : NULL,
			.v = o.kind == TUTTI_ADAMW ? device(&v) : NULL,
			.grad = device(&grad),
			.low = low_dtype == TUTTI_F32 ? NULL : device(&low),
			.count = count,
			.scale = 0.7f,
			.beta1 = n.beta1,
			.beta2 = n.beta2,
			.eps = n.eps,
			.keep = n.keep,
			.rate = o.kind == TUTTI_ADAMW ? n.rate : o.lr,
			.bias2 = n.bias2,
			.decay = o.weight_decay,
			.momentum = o.momentum,
			.kind = o.kind == TUTTI_ADAMW ? TRAIN_UPDATE_ADAMW : TRAIN_UPDATE_SGD,
			.grad_dtype = (int)grad_dtype,
			.low_dtype = (int)low_dtype};
		if (is_random)
			args.rounding = for_kernel(&r, count);
		launch(launch_train_update_block, &args);
		check(&value, "value");
		check(&m, "m");
		check(&v, "v");
		check(&grad, "grad");
		check(&low, "low");
	}
}

static void map_on_host(const struct train_map_args *a, struct twin *out, struct twin *x,
			const struct kernel_rounding *r)
{
	tutti_dtype to = (tutti_dtype)a->out_dtype, from = (tutti_dtype)a->x_dtype;

	if (a->what == TRAIN_MAP_ADD)
		kernel_add(host(out), to, host(x), from, a->count);
	else if (a->what == TRAIN_MAP_SCALE)
		kernel_scale(host(out), to, host(x), from, a->count, a->by);
	else if (a->rounding.is_random)
		kernel_narrow_at_random(host(out), host(x), a->count, r);
	else
		kernel_convert(host(out), to, host(x), from, a->count);
}

static void maps(void **state)
{
	static struct twin out, x;

	for (int round = 0; round < 3 * ROUNDS; round++) {
		struct train_map_args args = {.count = draw(draw(2) ? 40 : MOST),
					      .what = (int)draw(3),
					      .by = draw(2) ? 0.25f : 1e30f,
					      .out_dtype = (int)dtypes[draw(3)],
					      .x_dtype = (int)dtypes[draw(3)]};
		struct kernel_rounding r = draw_rounding();
		if (args.what == TRAIN_MAP_CONVERT && args.out_dtype != TUTTI_F32)
			args.x_dtype = TUTTI_F32;
		else if (args.what == TRAIN_MAP_CONVERT && args.x_dtype == TUTTI_F32)
			args.x_dtype = TUTTI_BF16;
		if (args.what == TRAIN_MAP_CONVERT && args.out_dtype == TUTTI_BF16 && draw(2))
			args.rounding = for_kernel(&r, args.count);
		int is_in_place = args.what == TRAIN_MAP_SCALE && args.out_dtype == args.x_dtype;
		fill(&x, (tutti_dtype)args.x_dtype, args.count, (int)draw(3));
		fill(&out, (tutti_dtype)args.out_dtype, args.count, (int)draw(3));
		struct twin *to = is_in_place && draw(2) ? &x : &out;
		args.out = device(to);
		args.x = device(&x);
		map_on_host(&args, to, &x, &r);
		launch(launch_train_map_block, &args);
		check(&out, "out");
		check(&x, "x");
	}
}

/* Several arrays into the same sums. Some are longer than a tile of a block. */
static void squares(void **state)
{
	enum { LONG = 200000 };
	static _Alignas(16) unsigned char x[LONG * 4 + 16];

	for (int round = 0; round < 60; round++) {
		uint64_t sums[TRAIN_SQUARES_WORDS] = {0}, worst = UINT64_MAX;
		struct exact_sum want = {{0}, 0}, got = {{0}, 0};
		sums[TRAIN_SQUARES_WORST] = UINT64_MAX;
		for (uint64_t param = 9; param > 6; param--) {
			tutti_dtype dtype = dtypes[draw(3)];
			size_t count = round % 8 == 0 ? LONG - draw(9) : draw(MOST);
			size_t offset = width(dtype) * draw(4);
			int64_t bad = want.nonfinite;
			int flavour = (int)draw(3);
			for (size_t i = 0; i < count; i++) {
				uint32_t bits = random_bits(dtype, flavour);
				memcpy(x + offset + i * width(dtype), &bits, width(dtype));
			}
			struct train_squares_args args = {.x = x + offset,
							  .sums = sums,
							  .count = count,
							  .param = param,
							  .dtype = (int)dtype};
			exact_sum_add(&want, x + offset, dtype, count);
			launch(launch_train_squares_block, &args);
			if (want.nonfinite > bad)
				worst = param;
		}
		exact_sum_add_halves(&got, sums);
		assert_memory_equal(&got, &want, sizeof got);
		assert_true(sums[TRAIN_SQUARES_WORST] == worst);
	}
}

int main(void)
{
	const char *given = getenv("SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(updates),
		cmocka_unit_test(maps),
		cmocka_unit_test(squares),
	};

	seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	printf("SEED=%llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
