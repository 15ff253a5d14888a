/* Reductions of the caller's own, as tutti.h declares them: arguments are checked here,
 * core/memory/ops.c keeps them. */
#include "core/memory/ops.h"

#include "core/status.h"
#include "core/memory/dtype.h"

#include <string.h>

tutti_status tutti_op_create(tutti_op *op, const char *name, tutti_reduce_fn fn, void *arg)
{
	last_error_clear();
	if (!op || !name || !fn)
		return fail(TUTTI_ERR_INVALID, "op_create: %s is NULL",
			    !op     ? "op"
			    : !name ? "name"
				    : "fn");
	size_t length = strlen(name);
	if (length == 0 || length >= OPS_NAME_BYTES)
		return fail(TUTTI_ERR_INVALID,
			    "op_create: the name has %zu bytes; 1 to %d are allowed", length,
			    OPS_NAME_BYTES - 1);
	return op_add_user(op, name, (struct op_user){fn, arg});
}

tutti_status tutti_op_create_scaled(tutti_op *op, const void *scalar, tutti_dtype dtype)
{
	last_error_clear();
	if (!op || !scalar)
		return fail(TUTTI_ERR_INVALID, "op_create_scaled: %s is NULL",
			    op ? "scalar" : "op");
	if (dtype_bytes(dtype) == 0)
		return fail(TUTTI_ERR_INVALID, "op_create_scaled: there is no dtype %d",
			    (int)dtype);
	return op_add_scaled(op, scalar, dtype);
}

void tutti_op_destroy(tutti_op op)
{
	op_remove(op);
}
