/* What every rank contributes to a call, and what must come out of it: a plain definition of each
 * collective's result, element by element. */
#ifndef TESTS_API_DATA_H
#define TESTS_API_DATA_H

#include "../../core/memory/ops.h"

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stdint.h>

#define DTYPES 14

enum data_kind {
	DATA_BITS,              /* any bits: for collectives that only move them                 */
	DATA_EXACT,             /* reduced without rounding on any path                          */
	DATA_ROUNDED,           /* floats whose sums round: only the fixed tree has one answer   */
};

/* Whose the operation is: the library's, or made by each rank for the call (own_ops.c). */
enum data_maker {
	DATA_BUILT_IN,
	DATA_USER,              /* a function of the caller's, by dtype; op is not looked at      */
	DATA_SCALED,            /* op is SUM; each rank has a scalar of its own                  */
};

/* One call's data; the same on all ranks. Elements differ by rank, index and seed. */
struct data {
	enum data_kind kind;
	uint64_t seed;
	tutti_dtype dtype;
	tutti_op op;
	enum data_maker maker;
	int ranks;
};

void data_init(void);                   /* once a process, before threads */
size_t data_bytes(tutti_dtype dtype);
bool data_is_float(tutti_dtype dtype);
const char *data_dtype_name(tutti_dtype dtype);
const char *data_op_name(const struct data *d);
bool data_fits(tutti_op op, tutti_dtype dtype);

/* Elements first .. first + count of what rank contributes. */
void data_fill(const struct data *d, int rank, size_t first, size_t count, void *out);
/* One of them, in the lowest bits. */
uint64_t data_element(const struct data *d, int rank, size_t i);
int data_scalar(const struct data *d, int rank);
uint64_t data_bits_of(double x, tutti_dtype dtype);
/* The same elements of the reduction over all ranks. */
void data_expect(const struct data *d, size_t first, size_t count, void *out);
uint64_t data_hash(const char *bytes, size_t n);

/* own_ops.c: makes every fifth one that the callers make. */
void own_op_draw(struct data *d, uint64_t *random);
/* What a call of this data is issued with on a rank; to be closed after it was issued. */
tutti_status own_op_open(const struct data *d, int rank, tutti_op *op);
void own_op_close(const struct data *d, tutti_op op);
uint64_t own_op_expect(const struct data *d, size_t i); /* DATA_USER's result */

#endif
