/* The operations: those of tutti.h, and those that callers created.
 *
 * Created ones (a caller's function, or a scaled sum) lie in one bounded table of the process. Any
 * thread may create, destroy and look up at any time; lookups take no lock. A number finds its op
 * until the op is destroyed, and beyond that as long as a call holds it. */
#ifndef CORE_MEMORY_OPS_H
#define CORE_MEMORY_OPS_H

#include "core/words/export.h"

#include <tutti/tutti.h>

#include <stdbool.h>

/* The built-in ops: X(the number's name, the op's name, whether it is bitwise: of integers only).
 * The order is tutti.h's and is checked at compile time; an op of tutti.h that lacks a line here
 * does not compile (-Wswitch in op_is_bitwise). */
#define OPS_LIST(X)                                                                                \
	X(SUM, "sum", false)                                                                       \
	X(PROD, "prod", false)                                                                     \
	X(MIN, "min", false)                                                                       \
	X(MAX, "max", false)                                                                       \
	X(AVG, "avg", false)                                                                       \
	X(BAND, "band", true)                                                                      \
	X(BOR, "bor", true)                                                                        \
	X(BXOR, "bxor", true)

#define OPS_COUNT(name, ...) OPS_PLACE_##name,
enum { OPS_LIST(OPS_COUNT) OPS_BUILT_IN };
#undef OPS_COUNT
#define OPS_CHECK(name, ...)                                                                       \
	_Static_assert((int)OPS_PLACE_##name == (int)TUTTI_##name, "OPS_LIST has tutti.h's order");
OPS_LIST(OPS_CHECK)
#undef OPS_CHECK

#define OPS_FIRST      64       /* the number of the first created op                          */
#define OPS_MOST       1024     /* created and not destroyed, or still held by a call          */
#define OPS_NAME_BYTES 64       /* with the zero at the end                                    */

/* A caller's function; see reduce.h for how it is called. */
struct op_user {
	tutti_reduce_fn fn;
	void *arg;
};

/* A bitwise one is built in, and works on integers only. */
static inline bool op_is_bitwise(tutti_op op)
{
	switch (op) {
#define OPS_CASE(name, text, is_bitwise)                                                           \
	case TUTTI_##name:                                                                         \
		return is_bitwise;
		OPS_LIST(OPS_CASE)
#undef OPS_CASE
	case TUTTI_OP_MAX_:
		break;
	}
	return false;
}
/* Built in, or created and not destroyed. */
bool op_is_known(tutti_op op) TUTTI_PRIVATE(op_is_known);
/* Known, and works on dtype: bitwise ones on integers only, a scaled sum on its own dtype only, a
 * caller's function on all. */
bool op_fits(tutti_op op, tutti_dtype dtype) TUTTI_PRIVATE(op_fits);
/* "sum", "user op 'name'", "scaled sum"; "?" when unknown. Lives as long as the op. */
const char *op_name(tutti_op op) TUTTI_PRIVATE(op_name);
/* The same on all ranks for the same op, where the numbers of created ones differ: of a built-in op
 * its number, of a caller's function a hash of its name, of all scaled sums one constant. */
uint32_t op_identity(tutti_op op);
/* The name behind an identity, which may be of another rank: "sum", "user op 'name'", "a user op
 * not known on this rank", "scaled sum"; else "?". Returns name. */
const char *op_identity_name(uint32_t identity, char *name, size_t name_bytes);
/* The op that reduce() carries out for it: the sum for a scaled sum, whose inputs are scaled
 * before, else op itself. */
tutti_op op_kernel(tutti_op op);
const void *op_scalar(tutti_op op);             /* a scaled sum's scalar, else NULL */
const struct op_user *op_user(tutti_op op);     /* NULL if not a caller's function      */

/* dst = scalar * src, all of dtype; dst may be src; they may not overlap otherwise. Floats of 16
 * and 8 bits multiply in f32 and round once, integers wrap, NaN results are canonical. Pointers
 * need no alignment. */
void scale(void *dst, const void *src, const void *scalar, size_t count, tutti_dtype dtype);

/* name and scalar are copied. MEMORY when OPS_MOST are there. */
tutti_status op_add_user(tutti_op *op, const char *name, struct op_user user);
tutti_status op_add_scaled(tutti_op *op, const void *scalar, tutti_dtype dtype);
/* Unknown to new calls from here on. Does nothing for an op that was not created. */
void op_remove(tutti_op op);
/* A call in flight keeps its op's function, scalar and name, also if the op is destroyed meanwhile.
 * Both do nothing for built-in ops. */
void op_hold(tutti_op op);
void op_release(tutti_op op);

#endif
