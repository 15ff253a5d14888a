/* The element types: sizes and names. */
#ifndef CORE_MEMORY_DTYPE_H
#define CORE_MEMORY_DTYPE_H

#include "core/words/export.h"

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stdint.h>

#define DTYPE_COUNT (TUTTI_U64 + 1)

extern const uint8_t dtype_sizes[DTYPE_COUNT] TUTTI_PRIVATE(dtype_sizes);

/* 0: unknown. Any number may come from a caller: compared as unsigned, a negative one is unknown.
 */
static inline size_t dtype_bytes(tutti_dtype dtype)
{
	return (unsigned)dtype < DTYPE_COUNT ? dtype_sizes[dtype] : 0;
}

/* "f32", "bf16", "f8_e4m3", ... */
const char *dtype_name(tutti_dtype dtype) TUTTI_PRIVATE(dtype_name);
bool dtype_is_float(tutti_dtype dtype);

#endif
