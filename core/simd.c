/* Which vector instructions this CPU has, and which of them are used. */
#include "core/simd.h"

#include "core/status.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const names[SIMD_LEVELS] = {"base", "avx2", "avx512", "avx512_bf16",
					       "avx512_fp16"};

#ifdef __x86_64__
static bool simd_has_avx2(void)
{
	unsigned a, b, c = 0, d;
	return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool simd_has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

/* By number: only recent compilers know the names. */
#ifdef SIMD_HAS_FP16
static bool simd_has_avx512_bf16(void)
{
	unsigned a = 0, b, c, d;
	return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
}

static bool simd_has_avx512_fp16(void)
{
	unsigned a, b, c, d = 0;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 23);
}
#endif
#endif

enum simd_level simd_highest(void)
{
#ifdef __x86_64__
	if (!simd_has_avx2())
		return SIMD_BASE;
	if (!simd_has_avx512())
		return SIMD_AVX2;
#ifdef SIMD_HAS_FP16
	if (!simd_has_avx512_bf16())
		return SIMD_AVX512;
	return simd_has_avx512_fp16() ? SIMD_AVX512_FP16 : SIMD_AVX512_BF16;
#else
	return SIMD_AVX512;
#endif
#else
	return SIMD_BASE;
#endif
}

/* -1: not known yet. The first thread finds out; all find the same. */
static atomic_int level_in_use = -1;

enum simd_level simd_level(void)
{
	int level = atomic_load_explicit(&level_in_use, memory_order_relaxed);

	if (level < 0) {
		level = (int)simd_highest();
		atomic_store_explicit(&level_in_use, level, memory_order_relaxed);
	}
	return (enum simd_level)level;
}

const char *simd_name(enum simd_level level)
{
	return names[level];
}

tutti_status simd_use(const char *name)
{
	enum simd_level highest = simd_highest();
	char known[100] = "";

	for (int i = (int)highest; i >= 0; i--)
		if (!name || strcmp(names[i], name) == 0) {
			atomic_store_explicit(&level_in_use, i, memory_order_relaxed);
			return TUTTI_OK;
		}
	for (int i = 0; i <= (int)highest; i++) {
		size_t used = strlen(known);
		snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
	}
	return fail(TUTTI_ERR_INVALID,
		    "TUTTI_SIMD=%s: this CPU, or this build, does not have it; there are %s", name,
		    known);
}
