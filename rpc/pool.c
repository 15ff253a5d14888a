/* The threads that run functions. They start when requests wait, up to config.threads, and stay. */
#include "rpc/rpc_internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

bool rpc_pool_is_full(const tutti_rpc *rpc)
{
	int free_threads = rpc->idle_threads + rpc->config.threads - rpc->num_threads;

	return rpc->config.queue && rpc->queued - free_threads >= rpc->config.queue;
}

static struct tutti_rpc_reply *pop(tutti_rpc *rpc)
{
	struct tutti_rpc_reply *entry = rpc->queue;

	if (!(rpc->queue = entry->next))
		rpc->queue_tail = &rpc->queue;
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
		while (!rpc->queue && !rpc->pool_stops) {
			rpc->idle_threads++;
			pthread_cond_wait(&rpc->has_request, &rpc->lock);
			rpc->idle_threads--;
		}
		if (!rpc->queue || rpc->pool_stops)
			break;
		struct tutti_rpc_reply *entry = pop(rpc);
		rpc_unlock(rpc);
		rpc_run(entry);
		rpc_lock(rpc);
	}
	rpc_unlock(rpc);
	return NULL;
}

/* Signals are for the threads of the host program. */
static int start_thread(tutti_rpc *rpc)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error = pthread_create(&rpc->threads[rpc->num_threads], NULL, run_functions, rpc);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	rpc->num_threads += error == 0;
	return error;
}

tutti_status rpc_pool_push(tutti_rpc *rpc, struct tutti_rpc_reply *entry)
{
	if (rpc->queued >= rpc->idle_threads && rpc->num_threads < rpc->config.threads) {
		int error = start_thread(rpc);
		if (error && rpc->num_threads == 0)
			return train_fail(TUTTI_ERR_SYSTEM,
					  "the rank cannot start a thread for it: pthread_create: "
					  "%s",
					  strerror(error));
	}
	entry->state = ENTRY_QUEUES;
	entry->next = NULL;
	*rpc->queue_tail = entry;
	rpc->queue_tail = &entry->next;
	rpc->queued++;
	pthread_cond_signal(&rpc->has_request);
	return TUTTI_OK;
}

bool rpc_pool_remove(tutti_rpc *rpc, struct tutti_rpc_reply *entry)
{
	struct tutti_rpc_reply **at = &rpc->queue;

	while (*at && *at != entry)
		at = &(*at)->next;
	if (!*at)
		return false;
	if (!(*at = entry->next))
		rpc->queue_tail = at;
	rpc->queued--;
	return true;
}

void rpc_pool_stop(tutti_rpc *rpc)
{
	rpc_lock(rpc);
	rpc->pool_stops = true;
	pthread_cond_broadcast(&rpc->has_request);
	rpc_unlock(rpc);
	for (int i = 0; i < rpc->num_threads; i++)
		pthread_join(rpc->threads[i], NULL);
}
