/* Tutti's own contenders of rpc_perf: plain messages, and calls of the rpc. */
#ifndef PERF_RPC_OURS_H
#define PERF_RPC_OURS_H

#include "measure.h"
#include "rpc_perf.h"

#include <stdbool.h>
#include <tutti/rpc.h>

#define RPC_PERF_FUNCTIONS 3 /* that the calls need on rank 1 */

extern tutti_comm *rpc_perf_comm;
extern tutti_rpc *rpc_perf_rpc;
extern const struct rpc_contender rpc_perf_messages, rpc_perf_calls, rpc_perf_pool;
extern const tutti_rpc_function rpc_perf_functions[RPC_PERF_FUNCTIONS];

#endif
