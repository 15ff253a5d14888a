/* The threads of replicas: they sleep between turns. */
#include "train/data_parallel/replica_threads.h"

#include "train/base/base.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct replica_thread {
	struct replica_threads *threads;
	pthread_t thread;
	int replica;
};

struct replica_threads {
	int count, started;          /* replicas; threads that run */
	struct replica_thread *list; /* [0] has no thread */
	pthread_mutex_t lock;        /* of all below */
	pthread_cond_t begins, ends;
	uint64_t turn;
	int left; /* threads that have not ended this turn */
	bool is_over;
	replica_task task;
	void *arg;
};

/* False: there are no more turns. */
static bool wait_for_turn(struct replica_threads *threads, uint64_t *turn)
{
	pthread_mutex_lock(&threads->lock);
	while (threads->turn == *turn && !threads->is_over)
		pthread_cond_wait(&threads->begins, &threads->lock);
	bool is_over = threads->is_over;
	*turn = threads->turn;
	pthread_mutex_unlock(&threads->lock);
	return !is_over;
}

static void end_turn(struct replica_threads *threads)
{
	pthread_mutex_lock(&threads->lock);
	if (--threads->left == 0)
		pthread_cond_signal(&threads->ends);
	pthread_mutex_unlock(&threads->lock);
}

static void *replica_threads_thread_main(void *arg)
{
	struct replica_thread *own = arg;
	struct replica_threads *threads = own->threads;

	for (uint64_t turn = 0; wait_for_turn(threads, &turn);) {
		threads->task(threads->arg, own->replica);
		end_turn(threads);
	}
	return NULL;
}

void replica_threads_run(struct replica_threads *threads, replica_task task, void *arg)
{
	pthread_mutex_lock(&threads->lock);
	threads->task = task;
	threads->arg = arg;
	threads->left = threads->count - 1;
	threads->turn++;
	pthread_cond_broadcast(&threads->begins);
	pthread_mutex_unlock(&threads->lock);
	task(arg, 0);
	pthread_mutex_lock(&threads->lock);
	while (threads->left > 0)
		pthread_cond_wait(&threads->ends, &threads->lock);
	pthread_mutex_unlock(&threads->lock);
}

static int replica_threads_start_thread(struct replica_threads *threads, int replica)
{
	struct replica_thread *own = &threads->list[replica];
	char name[24]; /* of which 15 are the name's: at most 1024 replicas */

	*own = (struct replica_thread){.threads = threads, .replica = replica};
	int error = pthread_create(&own->thread, NULL, replica_threads_thread_main, own);
	if (error)
		return error;
	threads->started++;
	snprintf(name, sizeof name, "tutti-rep-%d", replica);
	pthread_setname_np(own->thread, name);
	return 0;
}

/* The threads take no signals: they are for the program's own threads. */
static tutti_status replica_threads_start(struct replica_threads *threads)
{
	sigset_t all, before;
	int error = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (int r = 1; r < threads->count && !error; r++)
		error = replica_threads_start_thread(threads, r);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		return TUTTI_OK;
	return fail(TUTTI_ERR_SYSTEM, "Starting a thread for replica %d of %d failed: %s.",
		    threads->started + 1, threads->count, strerror(error));
}

tutti_status replica_threads_create(struct replica_threads **threads, int count)
{
	struct replica_threads *made = calloc(1, sizeof *made);
	struct replica_thread *list = calloc((size_t)count, sizeof *list);

	if (!made || !list) {
		free(made);
		free(list);
		return fail_no_memory("%d replicas", count);
	}
	made->count = count;
	made->list = list;
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->begins, NULL);
	pthread_cond_init(&made->ends, NULL);
	tutti_status status = replica_threads_start(made);
	if (status != TUTTI_OK) {
		struct kept_error why = kept_error_of(status);
		replica_threads_destroy(made);
		return kept_error_return(&why);
	}
	*threads = made;
	return TUTTI_OK;
}

void replica_threads_destroy(struct replica_threads *threads)
{
	if (!threads)
		return;
	pthread_mutex_lock(&threads->lock);
	threads->is_over = true;
	pthread_cond_broadcast(&threads->begins);
	pthread_mutex_unlock(&threads->lock);
	for (int r = 1; r <= threads->started; r++)
		pthread_join(threads->list[r].thread, NULL);
	pthread_cond_destroy(&threads->begins);
	pthread_cond_destroy(&threads->ends);
	pthread_mutex_destroy(&threads->lock);
	free(threads->list);
	free(threads);
}
