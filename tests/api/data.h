/* What every rank contributes to a call, and what must come out of it: a plain definition of each
 * collective's result, element by element. */
#ifndef TESTS_API_DATA_H
#define TESTS_API_DATA_H

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stdint.h>

#define DTYPES 14
#define OPS 8

enum data_kind {
	DATA_BITS,              /* any bits: for collectives that only move them                 */
	DATA_EXACT,             /* reduced without rounding on any path                          */
	DATA_ROUNDED,           /* floats whose sums round: only the fixed tree has one answer   */
};

/* One call's data; the same on all ranks. Elements differ by rank, index and seed. */
struct data {
	enum data_kind kind;
	uint64_t seed;
	tutti_dtype dtype;
	tutti_op op;
	int ranks;
};

void data_init(void);                   /* once a process, before threads */
size_t data_bytes(tutti_dtype dtype);
bool data_is_float(tutti_dtype dtype);
const char *data_dtype_name(tutti_dtype dtype);
const char *data_op_name(tutti_op op);
bool data_fits(tutti_op op, tutti_dtype dtype);

/* Elements first .. first + count of what rank contributes. */
void data_fill(const struct data *d, int rank, size_t first, size_t count, void *out);
/* The same elements of the reduction over all ranks. */
void data_expect(const struct data *d, size_t first, size_t count, void *out);

#endif
