/* What another folder of the library may use of an rpc: an attachment, which the rpc does not know,
 * but tells of deaths, and destroys at its end; and the context of a thread. */
#ifndef RPC_EXTENSION_H
#define RPC_EXTENSION_H

#include "core/words/export.h"

#include <tutti/rpc.h>

#include <stdbool.h>
#include <stdint.h>

/* Without the lock; neither may wait. */
struct rpc_extension {
	void *data;
	void (*died)(void *data,
		     int rank);      /* once for each rank, after tutti_rpc_is_alive says 0 */
	void (*destroy)(void *data); /* no function runs any more, and no object is left    */
};

/* Of any thread. data, or NULL: there is none yet. */
void *rpc_extension_data(tutti_rpc *rpc) TUTTI_PRIVATE(rpc_extension_data);
/* false: there is one already, and e is not used. */
bool rpc_extension_set(tutti_rpc *rpc, const struct rpc_extension *e)
	TUTTI_PRIVATE(rpc_extension_set);
/* Of a call that was given timeout_ms: 0: the rpc's; no limit: 0. */
int rpc_timeout_ms(const tutti_rpc *rpc, int timeout_ms) TUTTI_PRIVATE(rpc_timeout_ms);
/* INVALID: the call of this name waits, and this thread may not; or its group is open. */
tutti_status rpc_may_wait(const char *name) TUTTI_PRIVATE(rpc_may_wait);
/* As tutti_rpc_register, with a name that begins with "tutti.". */
tutti_status rpc_extension_register(tutti_rpc *rpc, const tutti_rpc_function *function)
	TUTTI_PRIVATE(rpc_extension_register);

/* The number of the context that a thread is in. A call carries it to its function, which runs with
 * it; 0 is none. What it means is up to who sets it. */
uint64_t rpc_context(void) TUTTI_PRIVATE(rpc_context); /* of this thread */
void rpc_context_set(uint64_t number) TUTTI_PRIVATE(rpc_context_set);

#endif
