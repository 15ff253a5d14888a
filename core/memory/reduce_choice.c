/* Which kernels of reductions this CPU can run, and which are used: the widest, or those that
 * TUTTI_SIMD names. */
#include "core/memory/reduce.h"

#include "core/status.h"
#include "core/memory/reduce_kernels.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#ifdef __x86_64__
static bool has_f16c(void)
{
	unsigned a, b, c = 0, d;
	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool reduce_choice_has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

/* By number: only recent compilers know the names. */
#ifdef REDUCE_HAS_FP16
static bool has_avx512_bf16(void)
{
	unsigned a = 0, b, c, d;
	return reduce_choice_has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
	       (a & 1u << 5);
}

static bool has_avx512_fp16(void)
{
	unsigned a, b, c, d = 0;
	return has_avx512_bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 23);
}
#endif
#endif

int reduce_kernels_list(const struct reduce_kernels *list[REDUCE_KERNELS_MOST])
{
	int n = 0;

	list[n++] = &reduce_kernels_base;
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2") && has_f16c())
		list[n++] = &reduce_kernels_avx2;
	if (reduce_choice_has_avx512())
		list[n++] = &reduce_kernels_avx512;
#ifdef REDUCE_HAS_FP16
	if (has_avx512_bf16())
		list[n++] = &reduce_kernels_avx512_bf16;
	if (has_avx512_fp16())
		list[n++] = &reduce_kernels_avx512_fp16;
#endif
#endif
	return n;
}

/* NULL: not known yet. The first thread finds out; all find the same. */
static _Atomic(const struct reduce_kernels *) here;

const struct reduce_kernels *reduce_kernels_here(void)
{
	const struct reduce_kernels *chosen = atomic_load_explicit(&here, memory_order_acquire);

	if (chosen == NULL) {
		const struct reduce_kernels *list[REDUCE_KERNELS_MOST];
		chosen = list[reduce_kernels_list(list) - 1];
		atomic_store_explicit(&here, chosen, memory_order_release);
	}
	return chosen;
}

tutti_status reduce_use(const char *name)
{
	const struct reduce_kernels *list[REDUCE_KERNELS_MOST], *chosen = NULL;
	int n = reduce_kernels_list(list);
	char names[100] = "";

	for (int i = 0; i < n; i++) {
		size_t used = strlen(names);
		snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", list[i]->name);
		if (!name || strcmp(list[i]->name, name) == 0)
			chosen = list[i];
	}
	if (!chosen)
		return fail(
			TUTTI_ERR_INVALID,
			"TUTTI_SIMD=%s: this CPU, or this build, does not have it; there are %s",
			name, names);
	atomic_store_explicit(&here, chosen, memory_order_release);
	return TUTTI_OK;
}
