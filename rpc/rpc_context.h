/* The number of the context that a thread is in. A call carries it to its function, which runs with
 * it; 0 is none. What it means is up to who sets it. */
#ifndef RPC_RPC_CONTEXT_H
#define RPC_RPC_CONTEXT_H

#include "core/words/export.h"

#include <stdint.h>

uint64_t rpc_context(void) TUTTI_PRIVATE(rpc_context); /* of this thread */
void rpc_context_set(uint64_t number) TUTTI_PRIVATE(rpc_context_set);

#endif
