/* The vector instructions that loops compiled for several of them use: reductions, and the kernels
 * of training. All of them give the same bits. */
#ifndef CORE_SIMD_H
#define CORE_SIMD_H

#include "core/words/export.h"
#include "tutti/tutti.h"

/* Each contains those before it. */
enum simd_level {
	SIMD_BASE, /* what every CPU of the architecture has */
	SIMD_AVX2,
	SIMD_AVX512,
	SIMD_AVX512_BF16,
	SIMD_AVX512_FP16,
	SIMD_LEVELS,
};

/* The highest level that this CPU and this build have. */
enum simd_level simd_highest(void);
/* The level in use: the highest, or the one that simd_use chose. Another thread may change it from
 * one call to the next. */
enum simd_level simd_level(void) TUTTI_PRIVATE(simd_level);
const char *simd_name(enum simd_level level);
/* Chooses the level of this process by its name (TUTTI_SIMD); NULL selects the highest. May be
 * called at any time, by any thread. Returns: INVALID if this CPU or build does not have it. */
tutti_status simd_use(const char *name);

#endif
