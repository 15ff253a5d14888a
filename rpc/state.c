/* The state of an rpc: it runs, recovers, or has ended. */
#include "rpc/rpc_internal.h"

#include "core/log.h"

#include <stdarg.h>

void rpc_note_failure(tutti_rpc *rpc)
{
	if (rpc->state == RPC_RUNS) {
		rpc->state = RPC_RECOVERS;
		pthread_cond_signal(&rpc->keeper.due);
		pthread_cond_broadcast(&rpc->changed);
	}
}

void rpc_end(tutti_rpc *rpc, tutti_status status, const char *message)
{
	if (rpc->state == RPC_ENDED)
		return;
	rpc->state = RPC_ENDED;
	rpc->failure.status = status;
	snprintf(rpc->failure.message, sizeof rpc->failure.message, "%s", message);
	tutti_comm_abort(rpc->comm); /* so that all works end */
	pthread_cond_signal(&rpc->keeper.due);
	pthread_cond_broadcast(&rpc->changed);
}

tutti_status rpc_end_status(const tutti_rpc *rpc)
{
	return kept_error_return(&rpc->failure);
}

void rpc_complain(const char *format, ...)
{
	char text[RPC_ERROR_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	log_notice("rpc: %s", text);
}
