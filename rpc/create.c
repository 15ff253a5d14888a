/* An rpc's beginning, and what it says of itself. */
#include "rpc/rpc_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static tutti_status create_read_config(tutti_rpc_config *c, const tutti_rpc_config *config)
{
	*c = config ? *config : (tutti_rpc_config){0};
	if (c->threads < 0 || c->queue < 0 || c->num_functions < 0)
		return fail_invalid(
			"tutti_rpc_create: threads %d, queue %d, num_functions %d: none "
			"may be negative",
			c->threads, c->queue, c->num_functions);
	if (c->calls < 0 || c->calls > RPC_CALLS_MAX)
		return fail_invalid("tutti_rpc_create: calls is %d: there may be %d", c->calls,
				    RPC_CALLS_MAX);
	if (c->num_functions && !c->functions)
		return fail_invalid("tutti_rpc_create: functions is NULL, and num_functions is %d",
				    c->num_functions);
	if (!c->threads)
		c->threads = RPC_THREADS;
	if (!c->timeout_ms)
		c->timeout_ms = RPC_TIMEOUT_MS;
	if (!c->calls)
		c->calls = RPC_CALLS;
	return TUTTI_OK;
}

static void init_lock(tutti_rpc *rpc)
{
	pthread_mutex_init(&rpc->lock, NULL);
	pthread_cond_init(&rpc->changed, NULL);
	pthread_cond_init(&rpc->keeper.due, NULL);
	pthread_cond_init(&rpc->has_request, NULL);
}

static tutti_status create_allocate(tutti_rpc *rpc)
{
	size_t n = (size_t)rpc->size;

	rpc->peers = calloc(n, sizeof *rpc->peers);
	rpc->first_rank = calloc(n, sizeof *rpc->first_rank);
	rpc->keeper.died = calloc(n, sizeof *rpc->keeper.died);
	rpc->pool.threads = calloc((size_t)rpc->config.threads, sizeof *rpc->pool.threads);
	rpc->scratch = malloc(RPC_ALONG_BYTES);
	rpc->inboxes = aligned_alloc(64, RPC_INBOXES * sizeof *rpc->inboxes);
	if (!rpc->peers || !rpc->first_rank || !rpc->keeper.died || !rpc->pool.threads ||
	    !rpc->inboxes || !rpc->scratch)
		return fail_no_memory("an rpc of %d ranks", rpc->size);
	memset(rpc->inboxes, 0, RPC_INBOXES * sizeof *rpc->inboxes);
	for (int r = 0; r < rpc->size; r++) {
		rpc->peers[r].is_alive = true;
		rpc->peers[r].now = rpc->first_rank[r] = r;
	}
	TRY(rpc_leaving_init(rpc));
	TRY(rpc_refs_init(rpc));
	for (int i = 0; i < rpc->config.num_functions; i++)
		TRY(rpc_functions_add(rpc, &rpc->config.functions[i], false));
	return TUTTI_OK;
}

static tutti_status create_make(tutti_rpc **out, int rank, int size, const tutti_rpc_config *config)
{
	tutti_rpc *rpc = calloc(1, sizeof *rpc);

	if (!rpc)
		return fail_no_memory("an rpc of %d ranks", size);
	rpc->config = *config;
	rpc->rank = rank;
	rpc->size = size;
	rpc->epoch = 1;
	rpc->pool.queue_tail = &rpc->pool.queue;
	rpc->sends_tail = &rpc->sends;
	init_lock(rpc);
	tutti_status status = create_allocate(rpc);
	if (status == TUTTI_OK)
		*out = rpc;
	else
		rpc_free(rpc);
	return status;
}

static tutti_status create_start(tutti_rpc *rpc)
{
	rpc_lock(rpc);
	tutti_status status = rpc_inboxes_post(rpc);
	if (status == TUTTI_OK)
		status = rpc_keeper_start(rpc);
	rpc_unlock(rpc);
	return status;
}

/* A rank that cannot go on has made its communicator nevertheless, so that the others do not wait;
 * it destroys it, and is dead for them. */
tutti_status tutti_rpc_create(tutti_rpc **out, tutti_comm *comm, const tutti_rpc_config *config)
{
	tutti_rpc_config own;
	tutti_comm *copy;
	tutti_rpc *rpc = NULL;

	TRY(tutti_group_refuse("tutti_rpc_create"));
	if (!out || !comm)
		return fail_invalid("tutti_rpc_create: %s is NULL", out ? "comm" : "rpc");
	tutti_status status = create_read_config(&own, config);
	if (status == TUTTI_OK)
		status = create_make(&rpc, tutti_rank(comm), tutti_size(comm), &own);
	status = error_agree(comm, status);
	if (status == TUTTI_OK)
		status = tutti_comm_dup(comm, &copy);
	if (status != TUTTI_OK) {
		if (rpc)
			rpc_free(rpc); /* it stores no message */
		return status;
	}
	rpc->comm = copy;
	*out = rpc; /* a function may be called, and use it, from now on */
	status = create_start(rpc);
	if (status != TUTTI_OK) {
		*out = NULL;
		struct kept_error failure = kept_error_of(status);
		tutti_rpc_abort(rpc);
		tutti_rpc_destroy(rpc);
		return kept_error_return(&failure);
	}
	return TUTTI_OK;
}

tutti_status tutti_rpc_register(tutti_rpc *rpc, const tutti_rpc_function *function)
{
	if (!rpc || !function)
		return fail_invalid("tutti_rpc_register: %s is NULL", rpc ? "function" : "rpc");
	rpc_lock(rpc);
	tutti_status status = rpc_functions_add(rpc, function, false);
	rpc_unlock(rpc);
	return status;
}

int tutti_rpc_rank(const tutti_rpc *rpc)
{
	return rpc ? rpc->rank : -1;
}

int tutti_rpc_size(const tutti_rpc *rpc)
{
	return rpc ? rpc->size : -1;
}

int tutti_rpc_is_alive(const tutti_rpc *rpc, int rank)
{
	return rpc && rank >= 0 && rank < rpc->size &&
	       __atomic_load_n(&rpc->peers[rank].is_alive, __ATOMIC_RELAXED);
}

tutti_status tutti_rpc_status(tutti_rpc *rpc)
{
	if (!rpc)
		return fail_invalid("tutti_rpc_status: rpc is NULL");
	rpc_lock(rpc);
	tutti_status status = rpc->state == RPC_ENDED ? rpc_end_status(rpc) : TUTTI_OK;
	rpc_unlock(rpc);
	return status;
}
