/* An rpc's life. */
#include "rpc/rpc_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static tutti_status read_config(tutti_rpc_config *c, const tutti_rpc_config *config)
{
	*c = config ? *config : (tutti_rpc_config){0};
	if (c->threads < 0 || c->queue < 0 || c->num_functions < 0)
		return train_invalid(
			"tutti_rpc_create: threads %d, queue %d, num_functions %d: none "
			"may be negative",
			c->threads, c->queue, c->num_functions);
	if (c->calls < 0 || c->calls > RPC_CALLS_MAX)
		return train_invalid("tutti_rpc_create: calls is %d: there may be %d", c->calls,
				     RPC_CALLS_MAX);
	if (c->num_functions && !c->functions)
		return train_invalid("tutti_rpc_create: functions is NULL, and num_functions is %d",
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

static tutti_status allocate(tutti_rpc *rpc)
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
		return train_no_memory("an rpc of %d ranks", rpc->size);
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

static void free_entries(tutti_rpc *rpc, struct rpc_peer *peer)
{
	for (int b = 0; b < RPC_CALLS_MAX / RPC_ENTRY_BLOCK; b++) {
		struct tutti_rpc_reply *block = peer->entries[b];
		for (int i = 0; block && i < RPC_ENTRY_BLOCK; i++)
			rpc_reply_clear(&block[i]);
		while (rpc->releases) {
			rpc_lock(rpc);
			rpc_unlock(rpc);
		}
		free(block);
	}
}

/* No other thread uses it any more. */
static void free_all(tutti_rpc *rpc)
{
	rpc_refs_end(rpc); /* before what functions of the user's, which it calls, may use */
	for (int r = 0; rpc->peers && r < rpc->size; r++) {
		free_entries(rpc, &rpc->peers[r]);
		free(rpc->peers[r].slots);
	}
	rpc_notes_free(rpc);
	rpc_functions_free(rpc);
	rpc_leaving_free(rpc);
	rpc_refs_free(rpc);
	if (rpc->extension.destroy)
		rpc->extension.destroy(rpc->extension.data);
	pthread_mutex_destroy(&rpc->lock);
	pthread_cond_destroy(&rpc->changed);
	pthread_cond_destroy(&rpc->keeper.due);
	pthread_cond_destroy(&rpc->has_request);
	free(rpc->peers);
	free(rpc->first_rank);
	free(rpc->keeper.died);
	free(rpc->pool.threads);
	free(rpc->inboxes);
	free(rpc->scratch);
	free(rpc);
}

static tutti_status make(tutti_rpc **out, int rank, int size, const tutti_rpc_config *config)
{
	tutti_rpc *rpc = calloc(1, sizeof *rpc);

	if (!rpc)
		return train_no_memory("an rpc of %d ranks", size);
	rpc->config = *config;
	rpc->rank = rank;
	rpc->size = size;
	rpc->epoch = 1;
	rpc->pool.queue_tail = &rpc->pool.queue;
	rpc->sends_tail = &rpc->sends;
	init_lock(rpc);
	tutti_status status = allocate(rpc);
	if (status == TUTTI_OK)
		*out = rpc;
	else
		free_all(rpc);
	return status;
}

static tutti_status start(tutti_rpc *rpc)
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
		return train_invalid("tutti_rpc_create: %s is NULL", out ? "comm" : "rpc");
	tutti_status status = read_config(&own, config);
	if (status == TUTTI_OK)
		status = make(&rpc, tutti_rank(comm), tutti_size(comm), &own);
	status = failure_agree(comm, status);
	if (status == TUTTI_OK)
		status = tutti_comm_dup(comm, &copy);
	if (status != TUTTI_OK) {
		if (rpc)
			free_all(rpc); /* it stores no message */
		return status;
	}
	rpc->comm = copy;
	*out = rpc; /* a function may be called, and use it, from now on */
	status = start(rpc);
	if (status != TUTTI_OK) {
		*out = NULL;
		struct train_failure failure = failure_of(status);
		tutti_rpc_abort(rpc);
		tutti_rpc_destroy(rpc);
		return failure_return(&failure);
	}
	return TUTTI_OK;
}

tutti_status tutti_rpc_register(tutti_rpc *rpc, const tutti_rpc_function *function)
{
	if (!rpc || !function)
		return train_invalid("tutti_rpc_register: %s is NULL", rpc ? "function" : "rpc");
	rpc_lock(rpc);
	tutti_status status = rpc_functions_add(rpc, function, false);
	rpc_unlock(rpc);
	return status;
}

/* Whether the keeper still has calls to end. */
static bool has_calls(const tutti_rpc *rpc)
{
	return rpc->state == RPC_ENDED && !rpc->all_ended && rpc->keeper.has_thread;
}

/* Recvs of REPLYs that shutdown did not wait for, after a TIMEOUT of its own. They end with comm.
 */
static void release_recvs(tutti_rpc *rpc)
{
	for (int r = 0; r < rpc->size; r++)
		for (int i = 0; rpc->peers[r].slots && i < rpc->config.calls; i++)
			tutti_work_release(&rpc->peers[r].slots[i].work);
}

/* From now on no message is dealt with, and functions that are deferred have answered. */
static void close_comm(tutti_rpc *rpc)
{
	rpc_lock(rpc);
	while (rpc->running || rpc->calling || has_calls(rpc))
		rpc_wait_changed(rpc, 0);
	if (rpc->state != RPC_ENDED) {
		rpc->state = RPC_ENDED;
		rpc->failure.status = TUTTI_ERR_ABORTED;
		snprintf(rpc->failure.message, sizeof rpc->failure.message,
			 "tutti_rpc_destroy was called on this rank");
		rpc->all_ended = true; /* there are no calls */
	}
	rpc_inboxes_cancel(rpc);
	while (rpc->inside)
		rpc_wait_changed(rpc, 0);
	rpc_unlock(rpc);
	rpc_keeper_stop(rpc);
	rpc_sends_end(rpc);
	release_recvs(rpc);
	tutti_comm_destroy(rpc->comm);
}

void tutti_rpc_destroy(tutti_rpc *rpc)
{
	if (!rpc)
		return;
	if (rpc_in_callback || rpc_is_calling(NULL)) {
		rpc_complain(
			"rank %d: tutti_rpc_destroy does nothing in a function that the library "
			"calls: call it in another thread",
			rpc->rank);
		return;
	}
	if (!rpc->is_shut && !rpc->is_aborted &&
	    (rpc->leaving.is_leaving || tutti_rpc_shutdown(rpc, 0) != TUTTI_OK))
		tutti_rpc_abort(rpc);
	rpc_pool_stop(rpc);
	close_comm(rpc);
	free_all(rpc);
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
		return train_invalid("tutti_rpc_status: rpc is NULL");
	rpc_lock(rpc);
	tutti_status status = rpc->state == RPC_ENDED ? rpc_end_status(rpc) : TUTTI_OK;
	rpc_unlock(rpc);
	return status;
}
