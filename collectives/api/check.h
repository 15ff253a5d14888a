/* From a public function to a call: what is checked of the arguments before it uses a sequence number or sends
 * anything. An error is INVALID (UNSUPPORTED for a stream without CUDA) with a sentence that begins with
 * the call's name. */
#ifndef COLLECTIVES_API_CHECK_H
#define COLLECTIVES_API_CHECK_H

#include "collectives/comm/comm.h"

/* Of collectives and messages: comm, dtype, a count that memory can hold for every rank, and call's own. */
tutti_status check_common(const char *name, const tutti_comm *comm, size_t count, tutti_dtype dtype,
			  const tutti_call *call);
/* Checks args as the caller gave them, forgets the buffers that are not looked at on this rank, packs blocks
 * whose offsets are NULL, and makes the call. */
tutti_status check_and_call(struct call_args *args, tutti_comm *comm, const tutti_call *call);

#endif
