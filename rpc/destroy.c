/* Destroys an rpc. If a function of the user's does not return in time, or a reply is not ended,
 * all that it may still use stays allocated. */
#include "rpc/rpc_internal.h"

#include "core/callback.h"
#include "core/clock.h"

#include <stdlib.h>

enum {
	NOTICE_MS = 1000, /* after an abort: for functions to see that they are cancelled */
	OWN_MS = 10000,   /* for the library's threads, when no function of the user's runs */
};

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

void rpc_free(tutti_rpc *rpc)
{
	rpc_refs_end(rpc); /* first: it calls functions of the user's, which may use the rest */
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

/* Releases the receives of REPLYs for which shutdown did not wait after its own TIMEOUT. They end
 * with comm. */
static void release_recvs(tutti_rpc *rpc)
{
	for (int r = 0; r < rpc->size; r++)
		for (int i = 0; rpc->peers[r].slots && i < rpc->config.calls; i++)
			tutti_work_release(&rpc->peers[r].slots[i].work);
}

/* Whether the user's functions have returned, and the calls that the keeper ends have ended. */
static bool is_quiet(const tutti_rpc *rpc)
{
	bool has_calls = rpc->state == RPC_ENDED && !rpc->all_ended && rpc->keeper.has_thread;

	return !rpc->running && !rpc->calling && !has_calls &&
	       rpc->pool.num_ended == rpc->pool.num_threads;
}

static bool is_outside(const tutti_rpc *rpc)
{
	return !rpc->inside;
}

static bool keeper_has_ended(const tutti_rpc *rpc)
{
	return !rpc->keeper.has_thread || rpc->keeper.has_ended;
}

/* Waits until condition holds. False: it did not by the deadline. With the lock. */
static bool destroy_await(tutti_rpc *rpc, bool (*condition)(const tutti_rpc *),
			  uint64_t deadline_ns)
{
	while (!condition(rpc) && rpc_wait_changed(rpc, deadline_ns))
		continue;
	return condition(rpc);
}

/* Ends the threads; messages that arrive later are ignored. False: a function has not returned, or
 * a reply was not ended, by the deadline. With the lock. */
static bool end_threads(tutti_rpc *rpc, uint64_t deadline_ns)
{
	rpc->pool.stops = true; /* it starts no thread from now on */
	pthread_cond_broadcast(&rpc->has_request);
	bool is_over = destroy_await(rpc, is_quiet, deadline_ns);
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
	is_over &= destroy_await(rpc, is_outside, rest);
	rpc_keeper_stop(rpc);
	return destroy_await(rpc, keeper_has_ended, rest) && is_over;
}

static void end_thread(pthread_t thread, bool has_ended)
{
	if (has_ended)
		pthread_join(thread, NULL);
	else
		pthread_detach(thread);
}

/* Keeps rpc, with all that functions and replies may still use, in a list, so that leak checkers
 * find it reachable. */
static void destroy_leave_allocated(tutti_rpc *rpc)
{
	static tutti_rpc *left;

	rpc->next_left = __atomic_load_n(&left, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&left, &rpc->next_left, rpc, false, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		continue;
}

static void destroy_complain(const tutti_rpc *rpc, bool has_comm)
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
		     rpc->pool.num_threads - rpc->pool.num_ended + !keeper_has_ended(rpc));
}

static void close_rpc(tutti_rpc *rpc, uint64_t deadline_ns)
{
	rpc_lock(rpc);
	bool is_over = end_threads(rpc, deadline_ns);
	bool pool_has_ended = rpc->pool.num_ended == rpc->pool.num_threads;
	bool has_ended = keeper_has_ended(rpc);
	bool has_comm = has_ended && is_outside(rpc); /* nobody else uses comm any more */
	if (!is_over)
		destroy_complain(rpc, has_comm);
	rpc_unlock(rpc);
	for (int i = 0; i < rpc->pool.num_threads; i++)
		end_thread(rpc->pool.threads[i], pool_has_ended);
	if (rpc->keeper.has_thread)
		end_thread(rpc->keeper.thread, has_ended);
	if (has_comm) {
		rpc_sends_end(rpc);
		release_recvs(rpc);
		tutti_comm_destroy(rpc->comm);
	}
	if (is_over)
		rpc_free(rpc);
	else
		destroy_leave_allocated(rpc);
}

static uint64_t destroy_later(uint64_t a_ns, uint64_t b_ns)
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
	close_rpc(rpc, destroy_later(deadline, deadline_after_ms(NOTICE_MS)));
}
