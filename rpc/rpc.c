/* An rpc begins, says what it is, and ends. */
#include "core/callback.h"
#include "core/clock.h"
#include "rpc/rpc_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- destroy ---- */

/* If a function of the user's does not return in time, or a reply is not ended,
 * all that it may still use stays allocated. */

enum {
	NOTICE_MS = 1000, /* after an abort: for functions to see that they are cancelled */
	OWN_MS = 10000,   /* for the library's threads, when no function of the user's runs */
};

static void rpc_free_entries(tutti_rpc *rpc, struct rpc_peer *peer)
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
static void rpc_free(tutti_rpc *rpc)
{
	rpc_refs_end(rpc); /* first: it calls functions of the user's, which may use the rest */
	for (int r = 0; rpc->peers && r < rpc->size; r++) {
		rpc_free_entries(rpc, &rpc->peers[r]);
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

/* Releases the receives of REPLYs for which shutdown did not wait after its own TIMEOUT. They end
 * with comm. */
static void rpc_release_recvs(tutti_rpc *rpc)
{
	for (int r = 0; r < rpc->size; r++)
		for (int i = 0; rpc->peers[r].slots && i < rpc->config.calls; i++)
			tutti_work_release(&rpc->peers[r].slots[i].work);
}

/* Whether the user's functions have returned, and the calls that the keeper ends have ended. */
static bool rpc_is_quiet(const tutti_rpc *rpc)
{
	bool has_calls = rpc->state == RPC_ENDED && !rpc->all_ended && rpc->keeper.has_thread;

	return !rpc->running && !rpc->calling && !has_calls &&
	       rpc->pool.num_ended == rpc->pool.num_threads;
}

static bool rpc_is_outside(const tutti_rpc *rpc)
{
	return !rpc->inside;
}

static bool rpc_keeper_has_ended(const tutti_rpc *rpc)
{
	return !rpc->keeper.has_thread || rpc->keeper.has_ended;
}

/* Waits until condition holds. False: it did not by the deadline. With the lock. */
static bool rpc_destroy_await(tutti_rpc *rpc, bool (*condition)(const tutti_rpc *),
			      uint64_t deadline_ns)
{
	while (!condition(rpc) && rpc_wait_changed(rpc, deadline_ns))
		continue;
	return condition(rpc);
}

/* Ends the threads; messages that arrive later are ignored. False: a function has not returned, or
 * a reply was not ended, by the deadline. With the lock. */
static bool rpc_end_threads(tutti_rpc *rpc, uint64_t deadline_ns)
{
	rpc->pool.stops = true; /* it starts no thread from now on */
	pthread_cond_broadcast(&rpc->has_request);
	bool is_over = rpc_destroy_await(rpc, rpc_is_quiet, deadline_ns);
	if (!is_over)
		rpc_end(rpc, TUTTI_ERR_ABORTED, "tutti_rpc_destroy was called on this rank");
	if (rpc->state != RPC_ENDED) {
		rpc->state = RPC_ENDED;
		rpc->failure.status = TUTTI_ERR_ABORTED;
		snprintf(rpc->failure.message, sizeof rpc->failure.message,
			 "tutti_rpc_destroy was called on this rank");
		rpc->all_ended = true; /* there are no calls */
	}
	uint64_t rest = deadline_after_ms(is_over ? OWN_MS : NOTICE_MS);
	rpc_inboxes_cancel(rpc);
	is_over &= rpc_destroy_await(rpc, rpc_is_outside, rest);
	rpc_keeper_stop(rpc);
	return rpc_destroy_await(rpc, rpc_keeper_has_ended, rest) && is_over;
}

static void rpc_end_thread(pthread_t thread, bool has_ended)
{
	if (has_ended)
		pthread_join(thread, NULL);
	else
		pthread_detach(thread);
}

/* Keeps rpc, with all that functions and replies may still use, in a list, so that leak checkers
 * find it reachable. */
static void rpc_destroy_leave_allocated(tutti_rpc *rpc)
{
	static tutti_rpc *left;

	rpc->next_left = __atomic_load_n(&left, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&left, &rpc->next_left, rpc, false, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		continue;
}

static void rpc_destroy_complain(const tutti_rpc *rpc, bool has_comm)
{
	char served[RPC_ERROR_BYTES / 2];
	const char *others = rpc->calling ? "a done, release or died function" : "";

	rpc_list_served(rpc, served, sizeof served);
	if (!served[0] && !rpc->calling)
		others = "a thread of the library";
	rpc_complain("rank %d: tutti_rpc_destroy gave up waiting: %s%s%s. Left allocated: the "
		     "rpc%s, objects of its references, and %d threads",
		     rpc->rank, served, served[0] && others[0] ? "; " : "", others,
		     has_comm ? "" : ", its communicator",
		     rpc->pool.num_threads - rpc->pool.num_ended + !rpc_keeper_has_ended(rpc));
}

static void rpc_close_rpc(tutti_rpc *rpc, uint64_t deadline_ns)
{
	rpc_lock(rpc);
	bool is_over = rpc_end_threads(rpc, deadline_ns);
	bool pool_has_ended = rpc->pool.num_ended == rpc->pool.num_threads;
	bool has_ended = rpc_keeper_has_ended(rpc);
	bool has_comm = has_ended && rpc_is_outside(rpc); /* nobody else uses comm any more */
	if (!is_over)
		rpc_destroy_complain(rpc, has_comm);
	rpc_unlock(rpc);
	for (int i = 0; i < rpc->pool.num_threads; i++)
		rpc_end_thread(rpc->pool.threads[i], pool_has_ended);
	if (rpc->keeper.has_thread)
		rpc_end_thread(rpc->keeper.thread, has_ended);
	if (has_comm) {
		rpc_sends_end(rpc);
		rpc_release_recvs(rpc);
		tutti_comm_destroy(rpc->comm);
	}
	if (is_over)
		rpc_free(rpc);
	else
		rpc_destroy_leave_allocated(rpc);
}

static uint64_t rpc_destroy_later(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns > b_ns ? a_ns : b_ns;
}

void tutti_rpc_destroy(tutti_rpc *rpc)
{
	if (!rpc)
		return;
	if (rpc_in_callback || callback_in_done || rpc_is_calling(NULL)) {
		rpc_complain(
			"rank %d: tutti_rpc_destroy does nothing in a function that the library "
			"calls: call it in another thread",
			rpc->rank);
		return;
	}
	int timeout_ms = rpc_timeout_ms(rpc, 0);
	if (!timeout_ms)
		timeout_ms = RPC_TIMEOUT_MS;
	uint64_t deadline = deadline_after_ms(timeout_ms);
	if (!rpc->is_shut && !rpc->is_aborted &&
	    (rpc->leaving.is_leaving || tutti_rpc_shutdown(rpc, timeout_ms) != TUTTI_OK))
		tutti_rpc_abort(rpc);
	rpc_close_rpc(rpc, rpc_destroy_later(deadline, deadline_after_ms(NOTICE_MS)));
}

/* ---- create ---- */

static tutti_status rpc_create_read_config(tutti_rpc_config *c, const tutti_rpc_config *config)
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

static void rpc_init_lock(tutti_rpc *rpc)
{
	pthread_mutex_init(&rpc->lock, NULL);
	pthread_cond_init(&rpc->changed, NULL);
	pthread_cond_init(&rpc->keeper.due, NULL);
	pthread_cond_init(&rpc->has_request, NULL);
}

static tutti_status rpc_create_allocate(tutti_rpc *rpc)
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

static tutti_status rpc_create_make(tutti_rpc **out, int rank, int size,
				    const tutti_rpc_config *config)
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
	rpc_init_lock(rpc);
	tutti_status status = rpc_create_allocate(rpc);
	if (status == TUTTI_OK)
		*out = rpc;
	else
		rpc_free(rpc);
	return status;
}

static tutti_status rpc_create_start(tutti_rpc *rpc)
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
	tutti_status status = rpc_create_read_config(&own, config);
	if (status == TUTTI_OK)
		status = rpc_create_make(&rpc, tutti_rank(comm), tutti_size(comm), &own);
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
	status = rpc_create_start(rpc);
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
