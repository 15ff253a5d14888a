/* The lock, and what is called without it as soon as it is free. */
#include "rpc/rpc_internal.h"

#include "core/callback.h"
#include "core/clock.h"

#include <stdlib.h>
#include <time.h>

_Thread_local int rpc_in_callback;
const char rpc_release_place[] = "a release function of an rpc";
const char rpc_short_place[] = "a function with TUTTI_RPC_SHORT";
/* The rpc of the user's function that this thread is in, which may come back to unlock; or NULL. */
static _Thread_local const tutti_rpc *calling;

tutti_status rpc_may_wait(const char *name)
{
	TRY(tutti_group_refuse(name));
	if (!rpc_in_callback)
		return TUTTI_OK;
	const char *place = atomic_load_explicit(&callback_now, memory_order_relaxed);
	return fail_invalid("%s waits, which %s may not: call it in another thread%s", name,
			    place ? place : "a callback of an rpc",
			    place == rpc_short_place ? ", or register the function without that "
						       "flag"
						     : "");
}

const tutti_rpc *rpc_calling(const tutti_rpc *rpc)
{
	const tutti_rpc *before = calling;

	calling = rpc;
	return before;
}

bool rpc_is_calling(const tutti_rpc *rpc)
{
	return rpc ? calling == rpc : calling != NULL;
}

void rpc_lock(tutti_rpc *rpc)
{
	pthread_mutex_lock(&rpc->lock);
}

void rpc_release_call(const tutti_rpc *rpc, struct rpc_release *due)
{
	const char *before = callback_enter(rpc_release_place);

	rpc_in_callback++;
	callback_call(due->name, due->of, rpc->rank, due->release(due->arg));
	rpc_in_callback--;
	callback_enter(before);
	free(due);
}

static void call_release(tutti_rpc *rpc)
{
	struct rpc_release *due = rpc->releases;

	rpc->releases = due->next;
	rpc->calling++;
	pthread_mutex_unlock(&rpc->lock);
	rpc_release_call(rpc, due);
	pthread_mutex_lock(&rpc->lock);
	rpc->calling--;
	pthread_cond_broadcast(&rpc->changed);
}

static void call_done(tutti_rpc *rpc)
{
	struct tutti_rpc_future *call = rpc->ended;
	tutti_done_fn done = call->done;
	void *arg = call->done_arg;
	tutti_status status = call->status;

	rpc->ended = call->next;
	pthread_mutex_unlock(&rpc->lock);
	if (status != TUTTI_OK)
		tutti_set_error(status, call->error);
	rpc_in_callback++;
	callback_done("done", "tutti_rpc_options", rpc->rank, done, arg, status);
	rpc_in_callback--;
	pthread_mutex_lock(&rpc->lock);
	rpc->calling--;
	call->done = NULL; /* it is over now for those that wait, too */
	if (call->is_released)
		free(call);
	pthread_cond_broadcast(&rpc->changed);
}

void rpc_unlock(tutti_rpc *rpc)
{
	if (!calling) {
		calling = rpc;
		while (rpc->releases || (rpc->ended && rpc_in_callback)) {
			if (rpc->releases)
				call_release(rpc);
			else
				call_done(rpc);
		}
		calling = NULL;
	}
	if (rpc->ended || rpc->releases) /* this thread is in a function of the user's */
		pthread_cond_signal(&rpc->keeper.due);
	pthread_mutex_unlock(&rpc->lock);
}

uint64_t rpc_now_ns(void)
{
	return clock_now_ns();
}

bool rpc_wait_changed(tutti_rpc *rpc, uint64_t deadline_ns)
{
	struct timespec at = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
			      .tv_nsec = (long)(deadline_ns % 1000000000u)};

	if (!deadline_ns) {
		pthread_cond_wait(&rpc->changed, &rpc->lock);
		return true;
	}
	pthread_cond_clockwait(&rpc->changed, &rpc->lock, CLOCK_MONOTONIC, &at);
	return rpc_now_ns() < deadline_ns;
}
