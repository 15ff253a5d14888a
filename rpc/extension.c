/* An attachment to an rpc. */
#include "rpc/extension.h"

#include "rpc/rpc_internal.h"

int rpc_timeout_ms(const tutti_rpc *rpc, int timeout_ms)
{
	int ms = timeout_ms ? timeout_ms : rpc->config.timeout_ms;

	return ms > 0 ? ms : 0;
}

void *rpc_extension_data(tutti_rpc *rpc)
{
	rpc_lock(rpc);
	void *data = rpc->extension.data;
	rpc_unlock(rpc);
	return data;
}

bool rpc_extension_set(tutti_rpc *rpc, const struct rpc_extension *e)
{
	rpc_lock(rpc);
	bool is_first = !rpc->extension.data;
	if (is_first)
		rpc->extension = *e;
	rpc_unlock(rpc);
	return is_first;
}

tutti_status rpc_extension_register(tutti_rpc *rpc, const tutti_rpc_function *function)
{
	rpc_lock(rpc);
	tutti_status status = rpc_functions_add(rpc, function, true);
	rpc_unlock(rpc);
	return status;
}
