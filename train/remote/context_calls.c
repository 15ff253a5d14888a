/* The functions of rpc.h that begin and end contexts, and that ask about them. */
#include "train/remote/remote.h"

#include "rpc/extension.h"

#include <inttypes.h>
#include <stdlib.h>

enum { RANKS_MAX = 65534 }; /* the rank is in 16 bits of a number */

uint64_t tutti_rpc_context_now(void)
{
	return rpc_context();
}

void tutti_rpc_context_set(uint64_t context)
{
	rpc_context_set(context);
}

static uint64_t context_calls_next_number(struct remote *remote)
{
	uint64_t count = ++remote->last & 0xffffffff;

	return (uint64_t)(remote->rank + 1) << 48 | count << 16 | (remote->salt & 0xffff);
}

tutti_status tutti_rpc_context_begin(tutti_rpc *rpc, uint64_t *context)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_context_begin", &status);
	struct remote_context *made;

	if (!remote)
		return status;
	if (!context)
		return fail_invalid("tutti_rpc_context_begin: context is NULL.");
	if (remote->size > RANKS_MAX)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tutti_rpc_context_begin: the rpc has %d ranks; contexts are for "
			    "up to %d.",
			    remote->size, RANKS_MAX);
	pthread_mutex_lock(&remote->lock);
	if (remote->begun >= TUTTI_RPC_CONTEXTS)
		status = fail(TUTTI_ERR_MEMORY,
			      "tutti_rpc_context_begin: rank %d has begun %d contexts that "
			      "have not ended: call tutti_rpc_context_end.",
			      remote->rank, remote->begun);
	else
		status = context_make(remote, context_calls_next_number(remote), true, &made);
	if (status == TUTTI_OK)
		*context = made->number;
	pthread_mutex_unlock(&remote->lock);
	if (status == TUTTI_OK)
		rpc_context_set(*context);
	return status;
}

tutti_status context_take(struct remote *remote, const char *call, uint64_t number,
			  enum context_state state, struct remote_context **context)
{
	tutti_status status = TUTTI_OK;

	*context = context_find(remote, number);
	if (!*context)
		return context_unknown(call, number, ", or it has ended");
	pthread_mutex_lock(&remote->lock);
	if (!(*context)->is_begun)
		status = fail_invalid("%s: context %" PRIx64 " was begun by rank %d, which alone "
				      "steps and ends it.",
				      call, number, context_beginner(number));
	else if ((*context)->is_busy)
		status = fail_invalid("%s: another thread steps or ends context %" PRIx64 ".", call,
				      number);
	else if ((*context)->state == CONTEXT_ENDS && state != CONTEXT_ENDS)
		status = fail_invalid("%s: context %" PRIx64 " has ended on some ranks: call "
				      "tutti_rpc_context_end again.",
				      call, number);
	else {
		(*context)->is_busy = true;
		(*context)->state = state;
	}
	pthread_mutex_unlock(&remote->lock);
	if (status != TUTTI_OK)
		context_leave(remote, *context);
	return status;
}

void context_give(struct remote *remote, struct remote_context *context, enum context_state state)
{
	pthread_mutex_lock(&remote->lock);
	context->is_busy = false;
	context->state = state;
	pthread_mutex_unlock(&remote->lock);
	context_leave(remote, context);
}

static tutti_status end_here(void *arg, struct remote_peer *self)
{
	(void)arg, (void)self;
	return TUTTI_OK;
}

/* Participants that have freed it, or that are dead, are none any more. */
static tutti_status end_on_others(struct remote *remote, struct remote_context *context,
				  int timeout_ms)
{
	const tutti_rpc_piece pieces[] = {{&context->number, sizeof context->number}, {NULL, 0}};
	struct remote_peers *peers;
	struct kept_error first = {0};

	TRY(remote_peers_of(remote, context, &peers));
	remote_peers_call(remote, peers, "tutti.context.end", pieces, timeout_ms, end_here, NULL);
	pthread_mutex_lock(&remote->lock);
	for (int i = 0; i < peers->count; i++) {
		const struct remote_peer *peer = &peers->each[i];
		if (peer->failure.status == TUTTI_OK ||
		    !tutti_rpc_is_alive(remote->rpc, peer->rank))
			context->is_participant[peer->rank] = 0;
		else if (first.status == TUTTI_OK)
			first = peer->failure;
	}
	pthread_mutex_unlock(&remote->lock);
	free(peers);
	return kept_error_return(&first);
}

tutti_status tutti_rpc_context_end(tutti_rpc *rpc, uint64_t number, int timeout_ms)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_context_end", &status);
	struct remote_context *context;

	if (!remote)
		return status;
	TRY(rpc_may_wait("tutti_rpc_context_end"));
	TRY(context_take(remote, "tutti_rpc_context_end", number, CONTEXT_ENDS, &context));
	if (rpc_context() == number)
		rpc_context_set(0);
	status = end_on_others(remote, context, timeout_ms);
	struct kept_error failure = kept_error_of(status);
	if (status == TUTTI_OK) {
		pthread_mutex_lock(&remote->lock);
		context_remove(remote, context);
		pthread_mutex_unlock(&remote->lock);
		context_leave(remote, context);
		return TUTTI_OK;
	}
	context_give(remote, context, CONTEXT_ENDS);
	return fail(status, "tutti_rpc_context_end, which can be called again: %s",
		    failure.message);
}

tutti_status tutti_rpc_context_ranks(tutti_rpc *rpc, uint64_t number, int *ranks, int room,
				     int *count)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_context_ranks", &status);

	if (!remote)
		return status;
	if (!count || room < 0 || (room > 0 && !ranks))
		return fail_invalid("tutti_rpc_context_ranks: room for %d ranks at %p, count at "
				    "%p.",
				    room, (void *)ranks, (void *)count);
	struct remote_context *context = context_find(remote, number);
	if (!context)
		return context_unknown("tutti_rpc_context_ranks", number, ", or it has ended");
	pthread_mutex_lock(&remote->lock);
	if (!context->is_begun)
		status = fail_invalid("tutti_rpc_context_ranks: rank %d knows the participants of "
				      "context %" PRIx64 ", which it began.",
				      context_beginner(number), number);
	for (int rank = 0, n = 0; status == TUTTI_OK && rank < remote->size; rank++) {
		if (context->is_participant[rank] && n++ < room)
			ranks[n - 1] = rank;
		*count = n;
	}
	pthread_mutex_unlock(&remote->lock);
	context_leave(remote, context);
	return status;
}
