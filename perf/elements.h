/* Element types and operations as nccl-tests' options and columns call them, and their values as
 * bits. */
#ifndef PERF_ELEMENTS_H
#define PERF_ELEMENTS_H

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DTYPES 14

/* X(the number's name, the option's word, whether it is of integers only), in tutti.h's order. An
 * op of tutti.h that lacks a line here does not compile (-Wswitch in elements.c). */
#define OPERATIONS(X)                                                                              \
	X(SUM, "sum", false)                                                                       \
	X(PROD, "prod", false)                                                                     \
	X(MIN, "min", false)                                                                       \
	X(MAX, "max", false)                                                                       \
	X(AVG, "avg", false)                                                                       \
	X(BAND, "band", true)                                                                      \
	X(BOR, "bor", true)                                                                        \
	X(BXOR, "bxor", true)

#define OPERATION_NUMBER(name, ...) OPERATION_##name,
enum { OPERATIONS(OPERATION_NUMBER) OPS };
#undef OPERATION_NUMBER

const char *element_name(tutti_dtype dtype); /* "float", "bfloat16", ... */
size_t element_bytes(tutti_dtype dtype);
bool element_is_float(tutti_dtype dtype);
bool element_is_signed(tutti_dtype dtype);
/* Integers up to this magnitude are exact in the type. */
int64_t element_exact(tutti_dtype dtype);
bool element_parse(const char *name, tutti_dtype *dtype);

const char *operation_name(tutti_op op);
bool operation_is_bitwise(tutti_op op);
bool operation_fits(tutti_op op, tutti_dtype dtype); /* bitwise ones are for integers */
bool operation_parse(const char *name, tutti_op *op);

/* The bits of a float type's value, rounded to nearest, ties to even. No overflow. */
uint64_t float_bits(tutti_dtype dtype, double value);

#endif
