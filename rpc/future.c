/* The functions of rpc.h for callers. */
#include "rpc/rpc_internal.h"

#include "core/clock.h"

#include <stdlib.h>
#include <string.h>

/* The arguments of a call, in their order. */
struct rpc_asked {
	tutti_rpc *rpc;
	int rank;
	const char *name;
	const tutti_rpc_piece *pieces;
	int num_pieces;
	tutti_rpc_answer *answer;
	const tutti_rpc_options *options;
};

static tutti_status future_check(const char *what, const struct rpc_asked *a)
{
	size_t bytes = a->name ? strlen(a->name) : 0;

	if (!a->rpc)
		return fail_invalid("%s: rpc is NULL", what);
	if (a->rank < 0 || a->rank >= a->rpc->size)
		return fail_invalid("%s: rank %d is not in 0..%d", what, a->rank, a->rpc->size - 1);
	if (bytes < 1 || bytes > RPC_NAME_BYTES)
		return fail_invalid("%s: a function's name has 1 to %d bytes, not %zu", what,
				    RPC_NAME_BYTES, bytes);
	return rpc_pieces_check(what, a->pieces, a->num_pieces);
}

/* Writes all that is read later, but the text of the error. */
static void future_fill(struct tutti_rpc_future *call, const struct rpc_asked *a)
{
	memset(call, 0, offsetof(struct tutti_rpc_future, pieces));
	memset(&call->answer, 0,
	       offsetof(struct tutti_rpc_future, name) - offsetof(struct tutti_rpc_future, answer));
	call->rpc = a->rpc;
	call->rank = a->rank;
	call->answer = a->answer;
	call->timeout_ms = rpc_timeout_ms(a->rpc, a->options ? a->options->timeout_ms : 0);
	call->deadline_ns = call->timeout_ms ? deadline_after_ms(call->timeout_ms) : 0;
	call->status = TUTTI_IN_PROGRESS;
	memcpy(call->name, a->name, strlen(a->name) + 1);
	call->error[0] = 0;
	call->next = NULL;
	call->at = NULL;
	for (int i = 0; i < a->num_pieces; i++) {
		if (!a->pieces[i].bytes)
			continue;
		call->pieces[call->num_pieces++] = a->pieces[i];
		call->bytes += a->pieces[i].bytes;
	}
}

static tutti_status future_result(const struct tutti_rpc_future *call)
{
	return call->status == TUTTI_OK ? TUTTI_OK : tutti_set_error(call->status, call->error);
}

tutti_status tutti_rpc_call(tutti_rpc *rpc, int rank, const char *name,
			    const tutti_rpc_piece *pieces, int num_pieces, tutti_rpc_answer *answer,
			    const tutti_rpc_options *options)
{
	const struct rpc_asked args = {rpc, rank, name, pieces, num_pieces, answer, options};
	struct tutti_rpc_future call;

	TRY(rpc_may_wait("tutti_rpc_call"));
	TRY(future_check("tutti_rpc_call", &args));
	future_fill(&call, &args);
	rpc_lock(rpc);
	tutti_status status = rpc_start(&call);
	if (status == TUTTI_OK)
		rpc_await(&call, 0);
	rpc_unlock(rpc);
	return status == TUTTI_OK ? future_result(&call) : status;
}

tutti_status rpc_call_own(tutti_rpc *rpc, int rank, const char *name, const tutti_rpc_piece *pieces,
			  int num_pieces, tutti_rpc_answer *answer,
			  const tutti_rpc_options *options)
{
	const struct rpc_asked args = {rpc, rank, name, pieces, num_pieces, answer, options};
	struct tutti_rpc_future call;

	future_fill(&call, &args);
	call.is_own = true;
	TRY(rpc_start(&call));
	rpc_await(&call, 0);
	return future_result(&call);
}

/* The call is over, or in a slot that nobody waits for. */
static void finish_one_way(struct tutti_rpc_future *call)
{
	struct rpc_slot *slot = call->slot;

	if (!slot)
		return;
	slot->call = NULL;
	if (call->is_replied)
		rpc_slot_free(slot);
	else
		slot->state = SLOT_IS_ONE_WAY;
}

tutti_status tutti_rpc_send(tutti_rpc *rpc, int rank, const char *name,
			    const tutti_rpc_piece *pieces, int num_pieces,
			    const tutti_rpc_options *options)
{
	const struct rpc_asked args = {rpc, rank, name, pieces, num_pieces, NULL, options};
	struct tutti_rpc_future call;

	TRY(tutti_group_refuse("tutti_rpc_send"));
	TRY(future_check("tutti_rpc_send", &args));
	future_fill(&call, &args);
	call.is_one_way = true;
	if (call.bytes > RPC_ALONG_BYTES)
		TRY(rpc_may_wait("tutti_rpc_send of a long payload"));
	rpc_lock(rpc);
	tutti_status status = rpc_start(&call);
	if (status == TUTTI_OK && call.slot) {
		rpc_await(&call, 0);
		if (!call.is_over)
			finish_one_way(&call);
	}
	rpc_unlock(rpc);
	return status == TUTTI_OK && call.is_over ? future_result(&call) : status;
}

tutti_status tutti_rpc_call_async(tutti_rpc *rpc, int rank, const char *name,
				  const tutti_rpc_piece *pieces, int num_pieces,
				  tutti_rpc_answer *answer, const tutti_rpc_options *options,
				  tutti_rpc_future **future)
{
	const struct rpc_asked args = {rpc, rank, name, pieces, num_pieces, answer, options};

	TRY(tutti_group_refuse("tutti_rpc_call_async"));
	TRY(future_check("tutti_rpc_call_async", &args));
	if (!future && !(options && options->done))
		return fail_invalid("tutti_rpc_call_async: future is NULL, and there is no "
				    "options.done");
	struct tutti_rpc_future *call = malloc(sizeof *call);
	if (!call)
		return fail_no_memory("a call of '%s' on rank %d", name, rank);
	future_fill(call, &args);
	call->is_released = !future;
	if (options) {
		call->done = options->done;
		call->done_arg = options->done_arg;
	}
	rpc_lock(rpc);
	tutti_status status = rpc_start(call);
	if (status == TUTTI_OK && call->done)
		rpc_call_watch(call);
	if (status == TUTTI_OK && future) /* before done can be called */
		*future = call;
	rpc_unlock(rpc);
	if (status != TUTTI_OK)
		free(call);
	return status;
}

/* Of a call that is over, whose done function has not returned by its deadline. */
static tutti_status done_blocks(const struct tutti_rpc_future *call)
{
	const struct tutti_rpc_future *due = call->rpc->ended;

	while (due && due != call)
		due = due->next;
	return fail(TUTTI_ERR_TIMEOUT,
		    "rank %d, '%s': the call has ended (%s), but its done function "
		    "(tutti_rpc_options.done) has not %s by its deadline of %d ms",
		    call->rank, call->name, tutti_status_string(call->status),
		    due ? "been called" : "returned", call->timeout_ms);
}

/* The thread that calls done frees the handle. With the lock. */
static tutti_status leave_to_done(struct tutti_rpc_future *call)
{
	tutti_rpc *rpc = call->rpc;
	struct kept_error failure = kept_error_of(done_blocks(call));

	call->is_released = true;
	rpc_unlock(rpc);
	return kept_error_return(&failure);
}

tutti_status tutti_rpc_wait(tutti_rpc_future **future, int timeout_ms)
{
	TRY(rpc_may_wait("tutti_rpc_wait"));
	if (!future)
		return fail_invalid("tutti_rpc_wait: future is NULL");
	struct tutti_rpc_future *call = *future;
	if (!call)
		return TUTTI_OK;
	tutti_rpc *rpc = call->rpc;
	rpc_lock(rpc);
	tutti_status status = rpc_await(call, timeout_ms > 0 ? deadline_after_ms(timeout_ms) : 0);
	if (status == TUTTI_ERR_TIMEOUT) {
		*future = NULL;
		return leave_to_done(call);
	}
	rpc_unlock(rpc);
	if (status == TUTTI_IN_PROGRESS)
		return status;
	status = future_result(call);
	*future = NULL;
	free(call);
	return status;
}

static bool is_finished(const struct tutti_rpc_future *call)
{
	return call->is_over && !call->done;
}

tutti_status tutti_rpc_test(tutti_rpc_future *future, int *is_done)
{
	if (!future || !is_done)
		return fail_invalid("tutti_rpc_test: %s is NULL", future ? "is_done" : "future");
	tutti_rpc *rpc = future->rpc;
	rpc_lock(rpc);
	if (future->slot && !future->done)
		rpc_slot_look(future->slot);
	if (!future->is_over)
		rpc_call_look_at_clock(future, rpc_now_ns());
	*is_done = is_finished(future);
	rpc_unlock(rpc);
	return *is_done ? future_result(future) : TUTTI_OK;
}

static void future_cancel(struct tutti_rpc_future *call)
{
	if (call->is_over || call->leaving)
		return;
	rpc_call_tell_cancel(call);
	rpc_call_leave(call, TUTTI_ERR_ABORTED);
}

void tutti_rpc_cancel(tutti_rpc_future *future)
{
	if (!future)
		return;
	tutti_rpc *rpc = future->rpc;
	rpc_lock(rpc);
	future_cancel(future);
	rpc_unlock(rpc);
}

void tutti_rpc_release(tutti_rpc_future **future)
{
	struct tutti_rpc_future *call = future ? *future : NULL;

	if (!call)
		return;
	tutti_rpc *rpc = call->rpc;
	rpc_lock(rpc);
	if (call->done) { /* the thread that calls it frees the handle */
		call->is_released = true;
		*future = call = NULL;
	} else {
		future_cancel(call);
		if (!rpc_in_callback)
			rpc_await(call, 0);
		if (is_finished(call))
			*future = NULL;
		else
			call = NULL;
	}
	rpc_unlock(rpc);
	if (*future)
		rpc_complain("rank %d: tutti_rpc_release where nothing may wait has cancelled a "
			     "call whose transfers go on: release it in another thread",
			     rpc->rank);
	free(call);
}

void tutti_rpc_free(void *data)
{
	free(data);
}
