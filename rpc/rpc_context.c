/* The number of a thread's context. */
#include "rpc/rpc_context.h"

static _Thread_local uint64_t current;

uint64_t rpc_context(void)
{
	return current;
}

void rpc_context_set(uint64_t number)
{
	current = number;
}
