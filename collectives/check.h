/* What is checked of a call's arguments before it uses a sequence number or sends anything. Each function
 * returns OK, or INVALID (UNSUPPORTED for a stream without CUDA) with a sentence that begins with name. */
#ifndef COLLECTIVES_CHECK_H
#define COLLECTIVES_CHECK_H

#include "collectives/comm.h"

tutti_status check_common(const char *name, const tutti_comm *comm, size_t count, tutti_dtype dtype,
			  const tutti_call *call);
tutti_status check_op(const char *name, tutti_op op, tutti_dtype dtype);
tutti_status check_rank(const char *name, const tutti_comm *comm, const char *what, int rank);
/* Both buffers of a complete call: not NULL where they hold anything, and apart, or in place. */
tutti_status check_buffers(const struct call_args *args, const tutti_comm *comm);
/* Fills args->counts and offsets of a side, offsets NULL meaning packed, and checks that the sum fits
 * into memory. */
tutti_status check_counts(struct call_args *args, int side, tutti_comm *comm, const size_t *counts,
			  const size_t *offsets);

#endif
