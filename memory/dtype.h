/* What the element types and operations are: sizes, names, which fit together. */
#ifndef MEMORY_DTYPE_H
#define MEMORY_DTYPE_H

#include <tutti/tutti.h>

#include <stdbool.h>

size_t dtype_bytes(tutti_dtype dtype);         /* 0: unknown */
const char *dtype_name(tutti_dtype dtype);     /* "f32", "bf16", "f8_e4m3", ... */
bool dtype_is_float(tutti_dtype dtype);
const char *op_name(tutti_op op);              /* "sum", ...; "?" when unknown */
bool op_is_known(tutti_op op);
bool op_fits(tutti_op op, tutti_dtype dtype);  /* bitwise ones are for integers only */

#endif
