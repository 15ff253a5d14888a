/* The keeper, a thread of each rpc that sleeps until it is needed: it ends calls with done at their
 * deadline, and makes the next communicator when a rank has died. Then callers send again what has
 * no answer yet, and callees know it by its id. */
#include "rpc/rpc_internal.h"

#include "core/callback.h"
#include "core/clock.h"
#include "core/thread.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- deadlines ---- */

/* Returns when the next one is due. */
static uint64_t keeper_look_at_deadlines(tutti_rpc *rpc)
{
	uint64_t now = rpc_now_ns(), due = UINT64_MAX;
	struct tutti_rpc_future *next;

	for (struct tutti_rpc_future *call = rpc->with_done; call; call = next) {
		next = call->next; /* it may leave the list now */
		rpc_call_look_at_clock(call, now);
		if (!call->is_over && !call->leaving && call->deadline_ns &&
		    call->deadline_ns < due)
			due = call->deadline_ns;
	}
	return due;
}

/* ---- recovery ---- */

/* The works of the communicator have ended, or do so now. A REPLY that has come counts. */
static void keeper_collect_replies(tutti_rpc *rpc, struct rpc_peer *peer)
{
	for (int i = 0; peer->slots && i < rpc->config.calls; i++) {
		struct rpc_slot *slot = &peer->slots[i];
		if (!slot->work)
			continue;
		rpc_slot_answered(slot, tutti_work_wait(&slot->work, 0));
	}
}

static void keeper_end_slots(tutti_rpc *rpc, struct rpc_peer *peer, tutti_status status,
			     const char *why)
{
	for (int i = 0; peer->slots && i < rpc->config.calls; i++) {
		struct rpc_slot *slot = &peer->slots[i];
		struct tutti_rpc_future *call = slot->call;
		if (slot->state == SLOT_IS_FREE)
			continue;
		if (call) {
			call->is_replied = true; /* nothing comes any more: the slot is free */
			rpc_call_end(call, status, "%s", why);
		} else {
			rpc_slot_free(slot);
		}
	}
}

/* Requests of a rank that has died, or that this rank answers no more. */
static void keeper_forget_entries(tutti_rpc *rpc, struct rpc_peer *peer)
{
	for (int i = 0; i < RPC_CALLS_MAX; i++) {
		struct tutti_rpc_reply *entry = rpc_entry_at(peer, i);
		if (!entry || entry->state == ENTRY_IS_FREE)
			continue;
		__atomic_store_n(&entry->is_cancelled, 1, __ATOMIC_RELAXED);
		if (entry->state == ENTRY_RUNS)
			continue; /* its reply forgets it */
		if (entry->state == ENTRY_QUEUES)
			rpc_pool_remove(rpc, entry);
		rpc_reply_clear(entry);
		entry->state = ENTRY_IS_FREE;
	}
}

static void keeper_mark_dead(tutti_rpc *rpc, int rank)
{
	struct rpc_peer *peer = &rpc->peers[rank];
	char why[96];

	snprintf(why, sizeof why, "the rank has died, or left; the function may have run");
	__atomic_store_n(&peer->is_alive, false, __ATOMIC_RELAXED); /* tutti_rpc_is_alive */
	peer->now = -1;
	keeper_end_slots(rpc, peer, TUTTI_ERR_PEER, why);
	keeper_forget_entries(rpc, peer);
	rpc_leaving_rank_died(rpc, rank);
	rpc_refs_rank_died(rpc, rank);
}

/* Where the ranks are in next, which came from comm. Returns how many are not, and their ranks in
 * rpc->keeper.died. */
static int keeper_map_ranks(tutti_rpc *rpc, tutti_comm *next)
{
	int size = tutti_size(next), n = 0;

	for (int r = 0; r < rpc->size; r++)
		rpc->peers[r].now = -1;
	for (int r = 0; r < size; r++) { /* ranks keep their order, so none is read too late */
		rpc->first_rank[r] = rpc->first_rank[tutti_parent_rank(next, r)];
		rpc->peers[rpc->first_rank[r]].now = r;
	}
	for (int r = 0; r < rpc->size; r++)
		if (rpc->peers[r].is_alive && rpc->peers[r].now < 0)
			rpc->keeper.died[n++] = r;
	return n;
}

/* All that was in flight has ended. */
static void keeper_begin_epoch(tutti_rpc *rpc)
{
	rpc->epoch++;
	rpc->state = RPC_RUNS;
	tutti_status status = rpc_inboxes_post(rpc);
	if (status != TUTTI_OK && tutti_comm_status(rpc->comm) == TUTTI_OK) {
		rpc_end(rpc, status, tutti_comm_error(NULL)); /* it would not hear the others */
		return;
	}
	for (int r = 0; r < rpc->size; r++) {
		struct rpc_peer *peer = &rpc->peers[r];
		for (int i = 0; peer->slots && i < rpc->config.calls; i++)
			if (peer->slots[i].state != SLOT_IS_FREE)
				rpc_slot_send(&peer->slots[i]);
	}
	pthread_cond_broadcast(&rpc->changed);
}

/* Works of a communicator that has failed end soon, and done functions of the library's come for
 * them. */
static bool keeper_wait_until_outside(tutti_rpc *rpc)
{
	while (rpc->inside > 0 && !rpc->keeper.stops)
		rpc_wait_changed(rpc, 0);
	if (rpc->inside > 0)
		return false; /* a function does not return, and destroy has given up */
	for (int r = 0; r < rpc->size; r++)
		keeper_collect_replies(rpc, &rpc->peers[r]);
	rpc_sends_end(rpc);
	rpc->works = 0;
	return true;
}

static void keeper_tell_deaths(tutti_rpc *rpc, int n)
{
	struct rpc_extension extension = rpc->extension;
	bool says_user = rpc->config.died && !rpc->leaving.all_leave;

	rpc->calling++;
	rpc_unlock(rpc);
	rpc_in_callback++;
	callback_enter("died of tutti_rpc_config");
	for (int i = 0; i < n; i++) {
		if (extension.died)
			extension.died(extension.data, rpc->keeper.died[i]);
		if (says_user)
			callback_call("died", "tutti_rpc_config", rpc->rank,
				      rpc->config.died(rpc->config.died_arg, rpc->keeper.died[i]));
	}
	callback_enter(NULL);
	rpc_in_callback--;
	rpc_lock(rpc);
	rpc->calling--;
	pthread_cond_broadcast(&rpc->changed);
}

/* Without the lock. A rank that dies meanwhile is left out, too, or the next communicator fails. */
static tutti_status keeper_shrink(tutti_comm *comm, tutti_comm **next, char *why)
{
	tutti_status status = tutti_comm_shrink(comm, next);

	if (status != TUTTI_OK)
		snprintf(why, RPC_ERROR_BYTES, "%s", tutti_comm_error(comm));
	return status;
}

static void keeper_recover(tutti_rpc *rpc)
{
	tutti_comm *before = rpc->comm, *next = NULL;
	char why[RPC_ERROR_BYTES];

	if (!keeper_wait_until_outside(rpc))
		return;
	rpc_unlock(rpc);
	tutti_status status = keeper_shrink(before, &next, why);
	rpc_lock(rpc);
	if (status != TUTTI_OK) {
		rpc_end(rpc, status, why);
		return;
	}
	rpc->comm = next;
	int n = keeper_map_ranks(rpc, next);
	rpc_unlock(rpc);
	tutti_comm_destroy(before);
	rpc_lock(rpc);
	if (rpc->state != RPC_RECOVERS) { /* this rank has given up meanwhile */
		tutti_comm_abort(next);
		return;
	}
	for (int i = 0; i < n; i++)
		keeper_mark_dead(rpc, rpc->keeper.died[i]);
	keeper_begin_epoch(rpc);
	keeper_tell_deaths(rpc, n);
	rpc_unlock(rpc);
	rpc_leaving_look(rpc);
	rpc_lock(rpc);
}

/* ---- the end ---- */

/* Sets is_cancelled of all functions that run: the keeper may be waiting for one of them. */
static void keeper_tell_functions(tutti_rpc *rpc)
{
	for (int r = 0; r < rpc->size; r++)
		for (int i = 0; i < RPC_CALLS_MAX; i++) {
			struct tutti_rpc_reply *entry = rpc_entry_at(&rpc->peers[r], i);
			if (entry && entry->state == ENTRY_RUNS)
				__atomic_store_n(&entry->is_cancelled, 1, __ATOMIC_RELAXED);
		}
}

/* Destroys the communicator at once, for the others wait for that when they recover. Functions that
 * still run have nobody to answer. */
static void keeper_end_all(tutti_rpc *rpc)
{
	tutti_comm *comm = rpc->comm;

	keeper_tell_functions(rpc);
	if (!keeper_wait_until_outside(rpc))
		return;
	for (int r = 0; r < rpc->size; r++)
		keeper_forget_entries(rpc, &rpc->peers[r]);
	rpc->comm = NULL;
	rpc_unlock(rpc);
	tutti_comm_destroy(comm);
	rpc_lock(rpc);
	for (int r = 0; r < rpc->size; r++)
		keeper_end_slots(rpc, &rpc->peers[r], rpc->failure.status, rpc->failure.message);
	rpc->all_ended = true;
	pthread_cond_broadcast(&rpc->changed);
}

/* ---- the thread ---- */

static void keeper_sleep_until(tutti_rpc *rpc, uint64_t due_ns)
{
	struct timespec at = deadline_timespec(due_ns);

	rpc->keeper.sleeps_ns = due_ns;
	if (due_ns == UINT64_MAX)
		pthread_cond_wait(&rpc->keeper.due, &rpc->lock);
	else
		pthread_cond_clockwait(&rpc->keeper.due, &rpc->lock, CLOCK_MONOTONIC, &at);
	rpc->keeper.sleeps_ns = 0; /* it looks at all before it sleeps again */
}

static void *keeper_keep(void *arg)
{
	tutti_rpc *rpc = arg;

	rpc_lock(rpc);
	while (!rpc->keeper.stops) {
		uint64_t due = keeper_look_at_deadlines(rpc);
		if (rpc->state == RPC_RECOVERS && !rpc->is_shut) {
			keeper_recover(rpc);
		} else if (rpc->state == RPC_ENDED && !rpc->all_ended) {
			keeper_end_all(rpc);
		} else if (rpc->ended || rpc->releases) {
			rpc_in_callback++;
			rpc_unlock(rpc);
			rpc_in_callback--;
			rpc_lock(rpc);
		} else {
			keeper_sleep_until(rpc, due);
		}
	}
	rpc_unlock(rpc); /* calls what is due, and destroy does not join this thread before */
	pthread_mutex_lock(&rpc->lock);
	rpc->keeper.has_ended = true;
	pthread_cond_broadcast(&rpc->changed);
	pthread_mutex_unlock(&rpc->lock);
	return NULL;
}

tutti_status rpc_keeper_start(tutti_rpc *rpc)
{
	int error = thread_start(&rpc->keeper.thread, keeper_keep, rpc);

	if (error)
		return fail(TUTTI_ERR_SYSTEM,
			    "tutti_rpc_create: rank %d cannot start a thread: "
			    "pthread_create: %s",
			    rpc->rank, strerror(error));
	rpc->keeper.has_thread = true;
	return TUTTI_OK;
}

void rpc_keeper_stop(tutti_rpc *rpc)
{
	rpc->keeper.stops = true;
	pthread_cond_signal(&rpc->keeper.due);
	pthread_cond_broadcast(&rpc->changed);
}
