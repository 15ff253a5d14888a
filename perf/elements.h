/* Element types and operations as nccl-tests' options and columns call them, and their values as
 * bits. */
#ifndef PERF_ELEMENTS_H
#define PERF_ELEMENTS_H

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DTYPES 14
#define OPS    8

const char *element_name(tutti_dtype dtype); /* "float", "bfloat16", ... */
size_t element_bytes(tutti_dtype dtype);
bool element_is_float(tutti_dtype dtype);
bool element_is_signed(tutti_dtype dtype);
/* Integers up to this magnitude are exact in the type. */
int64_t element_exact(tutti_dtype dtype);
bool element_parse(const char *name, tutti_dtype *dtype);

bool operation_parse(const char *name, tutti_op *op);

/* The bits of a float type's value, rounded to nearest, ties to even. No overflow. */
uint64_t float_bits(tutti_dtype dtype, double value);

#endif
