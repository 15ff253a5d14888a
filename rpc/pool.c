/* The threads that run functions. They start when requests wait, up to config.threads, and stay. */
#include "rpc/rpc_internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

bool rpc_pool_is_full(const tutti_rpc *rpc)
{
	int free_threads = rpc->pool.idle_threads + rpc->config.threads - rpc->pool.num_threads;

	return rpc->config.queue && rpc->queued - free_threads >= rpc->config.queue;
}

static struct tutti_rpc_reply *pool_pop(tutti_rpc *rpc)
{
	struct tutti_rpc_reply *entry = rpc->pool.queue;

	if (!(rpc->pool.queue = entry->next))
		rpc->pool.queue_tail = &rpc->pool.queue;
	rpc->queued--;
	entry->state = ENTRY_RUNS;
	rpc->running++;
	return entry;
}

static void *run_functions(void *arg)
{
	tutti_rpc *rpc = arg;

	rpc_lock(rpc);
	for (;;) {
		while (!rpc->pool.queue && !rpc->pool.stops) {
			rpc->pool.idle_threads++;
			pthread_cond_wait(&rpc->has_request, &rpc->lock);
			rpc->pool.idle_threads--;
		}
		if (!rpc->pool.queue || rpc->pool.stops)
			break;
		struct tutti_rpc_reply *entry = pool_pop(rpc);
		rpc_unlock(rpc);
		rpc_run(entry);
		rpc_lock(rpc);
	}
	rpc_unlock(rpc); /* calls what is due, and destroy does not join this thread before */
	pthread_mutex_lock(&rpc->lock);
	rpc->pool.num_ended++;
	pthread_cond_broadcast(&rpc->changed);
	pthread_mutex_unlock(&rpc->lock);
	return NULL;
}

/* Signals are for the threads of the host program. */
static int pool_start_thread(tutti_rpc *rpc)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error =
		pthread_create(&rpc->pool.threads[rpc->pool.num_threads], NULL, run_functions, rpc);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	rpc->pool.num_threads += error == 0;
	return error;
}

tutti_status rpc_pool_push(tutti_rpc *rpc, struct tutti_rpc_reply *entry)
{
	if (rpc->pool.stops) /* nobody would join a new thread */
		return fail(TUTTI_ERR_ABORTED, "the rank has left");
	if (rpc->queued >= rpc->pool.idle_threads && rpc->pool.num_threads < rpc->config.threads) {
		int error = pool_start_thread(rpc);
		if (error && rpc->pool.num_threads == 0)
			return fail(TUTTI_ERR_SYSTEM,
				    "the rank cannot start a thread for it: pthread_create: "
				    "%s",
				    strerror(error));
	}
	entry->state = ENTRY_QUEUES;
	entry->next = NULL;
	*rpc->pool.queue_tail = entry;
	rpc->pool.queue_tail = &entry->next;
	rpc->queued++;
	pthread_cond_signal(&rpc->has_request);
	return TUTTI_OK;
}

bool rpc_pool_remove(tutti_rpc *rpc, struct tutti_rpc_reply *entry)
{
	struct tutti_rpc_reply **at = &rpc->pool.queue;

	while (*at && *at != entry)
		at = &(*at)->next;
	if (!*at)
		return false;
	if (!(*at = entry->next))
		rpc->pool.queue_tail = at;
	rpc->queued--;
	return true;
}
