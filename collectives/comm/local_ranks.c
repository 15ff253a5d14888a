/* The ranks of one process in a job of several processes. Each goes to the meeting as a rank of
 * tutti_init does (arrive.c), by a connection and with a proof of its own, and on a thread of its
 * own, since each waits for all others there. Once all have joined the threads end: the ranks are
 * the caller's threads'. */
#include "collectives/comm/local_ranks.h"

#include "core/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZE_MOST 65536

/* All threads begin, or none does: the lock is held while they are started. */
struct gate {
	pthread_mutex_t lock;
	bool is_open;
};

struct local_rank {
	struct tutti_comm *comm;
	struct job job;
	struct gate *gate;
	pthread_t thread;
	tutti_status status;
	char message[ERROR_BYTES];
};

static void comm_local_ranks_join(struct local_rank *rank)
{
	struct arrival arrival;

	log_set_rank(rank->job.rank);
	rank->status = comm_arrive(rank->comm, &rank->job, -1, &arrival);
	rank->status = comm_conclude(rank->comm, &arrival, rank->status);
	if (rank->status != TUTTI_OK)
		snprintf(rank->message, sizeof rank->message, "%s", last_error());
}

static void *local_ranks_thread_main(void *arg)
{
	struct local_rank *rank = arg;

	pthread_mutex_lock(&rank->gate->lock);
	bool is_open = rank->gate->is_open;
	pthread_mutex_unlock(&rank->gate->lock);
	if (is_open)
		comm_local_ranks_join(rank);
	return NULL;
}

/* The first rank has the calling thread. The others' threads see no signal: they are the program's.
 * Returns how many ranks have a thread. */
static int local_ranks_start_threads(struct local_rank *ranks, int n)
{
	sigset_t all, old;
	int started = 1, error = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (started < n && error == 0) {
		struct local_rank *rank = &ranks[started];
		error = pthread_create(&rank->thread, NULL, local_ranks_thread_main, rank);
		started += error == 0;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = error;
	return started;
}

/* All ranks have the same error, but those that lost the others on the way to it. */
static tutti_status first_error(const struct local_rank *ranks, int n)
{
	for (int r = 0; r < n; r++)
		if (ranks[r].status != TUTTI_OK)
			return fail(ranks[r].status, "%.*s", ERROR_BYTES - 1, ranks[r].message);
	return TUTTI_OK;
}

static tutti_status join_by_threads(struct local_rank *ranks, int n)
{
	struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
	tutti_status status = TUTTI_OK;

	for (int r = 0; r < n; r++)
		ranks[r].gate = &gate;
	pthread_mutex_lock(&gate.lock);
	int started = local_ranks_start_threads(ranks, n);
	gate.is_open = started == n;
	if (!gate.is_open)
		status = fail_errno("cannot start the threads by which %d ranks join", n);
	pthread_mutex_unlock(&gate.lock);
	if (gate.is_open)
		comm_local_ranks_join(&ranks[0]);
	for (int r = 1; r < started; r++)
		pthread_join(ranks[r].thread, NULL);
	pthread_mutex_destroy(&gate.lock);
	return status == TUTTI_OK ? first_error(ranks, n) : status;
}

tutti_status local_ranks_find(struct job *job, int n, const tutti_config *config,
			      const struct env *env)
{
	struct job found;

	if (config->local_ranks != n)
		return fail(TUTTI_ERR_INVALID,
			    "config.local_ranks is %d, but tutti_init_all is to make %d ranks: it "
			    "is as many, or 0 for a job of this process alone",
			    config->local_ranks, n);
	if (env->local_ranks && env->local_ranks != n)
		return fail(TUTTI_ERR_INVALID,
			    "config.local_ranks is %d, but TUTTI_LOCAL_RANKS is %lld (tuttirun "
			    "--local-ranks)",
			    n, (long long)env->local_ranks);
	TRY(job_find(&found, config, env));
	if (n > SIZE_MOST / found.size)
		return fail(TUTTI_ERR_INVALID,
			    "%d processes of config.local_ranks %d are too many: a world has %d "
			    "ranks at most",
			    found.size, n, SIZE_MOST);
	found.rank *= n;
	found.size *= n;
	found.local_ranks = n;
	*job = found;
	return TUTTI_OK;
}

tutti_status local_ranks_join(struct tutti_comm **comms, int n, const struct job *first)
{
	struct local_rank *ranks = calloc((size_t)n, sizeof *ranks);

	if (!ranks)
		return fail(TUTTI_ERR_MEMORY, "no memory to join %d ranks", n);
	for (int r = 0; r < n; r++) {
		ranks[r].comm = comms[r];
		ranks[r].job = *first;
		ranks[r].job.rank += r;
	}
	tutti_status status = join_by_threads(ranks, n);
	for (int r = 0; r < n; r++)
		job_forget(&ranks[r].job);
	free(ranks);
	return status;
}
