/* What the element types are: sizes and names. */
#ifndef MEMORY_DTYPE_H
#define MEMORY_DTYPE_H

#include <tutti/tutti.h>

#include <stdbool.h>

size_t dtype_bytes(tutti_dtype dtype);         /* 0: unknown */
const char *dtype_name(tutti_dtype dtype);     /* "f32", "bf16", "f8_e4m3", ... */
bool dtype_is_float(tutti_dtype dtype);

#endif
