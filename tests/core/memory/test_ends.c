/* no_tsan: it has one thread */
/* Breaks when a kernel reads or writes beyond its buffers, be it one byte: they end, or begin,
 * where memory does. */
#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "core/memory/reduce.h"
#include "core/memory/reduce_kernels.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit.h"

#define PAGE    ((size_t)4096)
#define SOURCES (REDUCE_FUSED + 1) /* one more than one pass takes */
#define BUFFERS (2 * SOURCES)

/* Each a page between two that may not be touched. */
static uint8_t *pages[BUFFERS];

static int set_up(void **state)
{
	size_t all = (2 * BUFFERS + 1) * PAGE;
	uint8_t *space = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (space == MAP_FAILED)
		return -1;
	for (int i = 0; i < BUFFERS; i++) {
		pages[i] = space + (2 * (size_t)i + 1) * PAGE;
		if (mprotect(pages[i], PAGE, PROT_READ | PROT_WRITE) != 0)
			return -1;
	}
	return 0;
}

static uint8_t *buffer(int i, size_t bytes, bool at_end)
{
	return at_end ? pages[i] + PAGE - bytes : pages[i];
}

static void reduce_at(const struct reduce_kernels *k, struct reduction *r, bool at_end)
{
	size_t bytes = r->count * dtype_bytes(r->dtype);
	const void *src[SOURCES];
	void *dst[SOURCES];

	for (int i = 0; i < r->n_src; i++)
		src[i] = buffer(i, bytes, at_end);
	for (int i = 0; i < r->n_dst; i++)
		dst[i] = buffer(SOURCES + i, bytes, at_end);
	r->src = src;
	r->dst = dst;
	reduce_with(k, r);
	reduce_sum_fn *sum = reduce_sum_of(k, r);
	for (size_t first = 0; sum && first <= r->count; first += 1 + first)
		sum(r, first, 1024);
}

static void every_count(const struct reduce_kernels *k, tutti_dtype dtype, tutti_op op, int n_src)
{
	size_t most = 600 / dtype_bytes(dtype);

	for (size_t count = 0; count <= most; count += count < most / 2 ? 1 : 3) {
		struct reduction r = {.n_dst = (count + (size_t)n_src) % 2 ? 1 : n_src,
				      .n_src = n_src,
				      .count = count,
				      .dtype = dtype,
				      .op = op,
				      .divisor = 3};
		reduce_at(k, &r, true);
		reduce_at(k, &r, false);
	}
}

static void reductions_keep_to_their_buffers(void **state)
{
	int n = (int)simd_highest() + 1;

	for (int k = 0; k < n; k++)
		for (int dtype = 0; dtype < REDUCE_DTYPES; dtype++)
			for (int op = 0; op < OPS_BUILT_IN; op++)
				for (int n_src = 1; n_src <= SOURCES; n_src++)
					if (op_fits((tutti_op)op, (tutti_dtype)dtype) &&
					    (op == TUTTI_SUM || op == TUTTI_AVG || n_src < 4))
						every_count(reduce_kernels_of((enum simd_level)k),
							    (tutti_dtype)dtype, (tutti_op)op,
							    n_src);
}

static void the_rest_does_so_too(void **state)
{
	int n = (int)simd_highest() + 1;
	uint64_t scalar = 0;

	for (int k = 0; k < n; k++)
		for (size_t bytes = 0; bytes <= 1100; bytes++) {
			reduce_kernels_of((enum simd_level)k)
				->copy(buffer(0, bytes, true), buffer(1, bytes, true), bytes);
			reduce_kernels_of((enum simd_level)k)
				->copy(buffer(0, bytes, false), buffer(1, bytes, false), bytes);
			for (int dtype = 0; dtype < REDUCE_DTYPES; dtype++) {
				size_t element = dtype_bytes((tutti_dtype)dtype);
				struct scaling s = {.scalar = &scalar,
						    .dtype = (tutti_dtype)dtype,
						    .count = bytes / element};
				s.dst = buffer(0, s.count * element, true);
				s.src = buffer(1, s.count * element, true);
				scale_with(reduce_kernels_of((enum simd_level)k), &s);
			}
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reductions_keep_to_their_buffers),
		cmocka_unit_test(the_rest_does_so_too),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
