/* A server: a shard of the parameters, the functions that workers call, and the staleness of what
 * they read. */
#ifndef EXAMPLES_PARAMETER_SERVER_SERVER_H
#define EXAMPLES_PARAMETER_SERVER_SERVER_H

#include "job.h"

enum { SERVER_FUNCTIONS = 4 };

struct server;

/* Rank job->rank's shard, with first values. MEMORY. job stays until server_destroy. */
tutti_status server_create(struct server **server, const struct job *job);
/* After tutti_rpc_destroy. NULL is fine. */
void server_destroy(struct server *server);
/* For tutti_rpc_config. */
void server_functions(struct server *server, tutti_rpc_function functions[SERVER_FUNCTIONS]);
void server_died(void *server, int rank);
/* Serves until each worker is at its end or dead, or a server is dead. */
void server_wait(struct server *server);
/* After tutti_rpc_abort: workers whose pushes wait get ABORTED. */
void server_stop(struct server *server);
/* When all ranks have left: OK, or that a server, or all workers, died. Server 0
 * prints the loss at the end. */
tutti_status server_end(struct server *server);

#endif
