/* tutti_init and its kin: from a launcher's environment, or a config, to a communicator. Also the
 * joining threads of a process that has several ranks. */
#include "collectives/comm/join.h"
#include "core/auth.h"
#include "core/clock.h"
#include "core/join/rendezvous.h"
#include "core/log.h"
#include "core/simd.h"
#include "core/thread.h"
#include "cuda/device.h"
#include "cuda/kind.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ranks of one process in a job of several processes. Each goes to the meeting as a rank of
 * tutti_init does (arrive.c), by a connection and with a proof of its own, and on a thread of its
 * own, since each waits for all others there. Once all have joined the threads end: the ranks are
 * the caller's threads'. */

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

static void *init_local_ranks_thread_main(void *arg)
{
	struct local_rank *rank = arg;

	pthread_mutex_lock(&rank->gate->lock);
	bool is_open = rank->gate->is_open;
	pthread_mutex_unlock(&rank->gate->lock);
	if (is_open)
		comm_local_ranks_join(rank);
	return NULL;
}

/* The first rank has the calling thread. Returns how many ranks have a thread. */
static int init_local_ranks_start_threads(struct local_rank *ranks, int n)
{
	int started = 1, error = 0;

	while (started < n && error == 0) {
		struct local_rank *rank = &ranks[started];
		error = thread_start(&rank->thread, init_local_ranks_thread_main, rank);
		started += error == 0;
	}
	errno = error;
	return started;
}

/* All ranks have the same error, but those that lost the others on the way to it. */
static tutti_status init_first_error(const struct local_rank *ranks, int n)
{
	for (int r = 0; r < n; r++)
		if (ranks[r].status != TUTTI_OK)
			return fail(ranks[r].status, "%.*s", ERROR_BYTES - 1, ranks[r].message);
	return TUTTI_OK;
}

static tutti_status init_join_by_threads(struct local_rank *ranks, int n)
{
	struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
	tutti_status status = TUTTI_OK;

	for (int r = 0; r < n; r++)
		ranks[r].gate = &gate;
	pthread_mutex_lock(&gate.lock);
	int started = init_local_ranks_start_threads(ranks, n);
	gate.is_open = started == n;
	if (!gate.is_open)
		status = fail_errno("cannot start the threads by which %d ranks join", n);
	pthread_mutex_unlock(&gate.lock);
	if (gate.is_open)
		comm_local_ranks_join(&ranks[0]);
	for (int r = 1; r < started; r++)
		pthread_join(ranks[r].thread, NULL);
	pthread_mutex_destroy(&gate.lock);
	return status == TUTTI_OK ? init_first_error(ranks, n) : status;
}

/* The job's ranks, of which this process has n from job->rank on. config and the launcher count
 * processes. INVALID: as job_find, and config.local_ranks is not n. */
static tutti_status init_local_ranks_find(struct job *job, int n, const tutti_config *config,
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

/* Fills in n communicators, which are empty (comm_new), of the ranks from first->rank on. OK on all
 * ranks of this process or an error, with the message of a rank that has it; then the caller frees
 * all of them. */
static tutti_status init_local_ranks_join(struct tutti_comm **comms, int n, const struct job *first)
{
	struct local_rank *ranks = calloc((size_t)n, sizeof *ranks);

	if (!ranks)
		return fail(TUTTI_ERR_MEMORY, "no memory to join %d ranks", n);
	for (int r = 0; r < n; r++) {
		ranks[r].comm = comms[r];
		ranks[r].job = *first;
		ranks[r].job.rank += r;
	}
	tutti_status status = init_join_by_threads(ranks, n);
	for (int r = 0; r < n; r++)
		job_forget(&ranks[r].job);
	free(ranks);
	return status;
}

static const tutti_config no_config;

static bool init_is_name(const char *name)
{
	size_t n = 0;
	while (n < ENGINE_NAME_BYTES && name[n] >= ' ' && name[n] <= '~')
		n++;
	return n > 0 && n < ENGINE_NAME_BYTES && name[n] == 0;
}

/* number is an ordinal + 1, or 0. */
static tutti_status init_check_device(int number)
{
	int devices = number ? cuda_device_count() : 0;

	if (number && !memory_kind(TUTTI_MEMORY_CUDA))
		return fail(TUTTI_ERR_UNSUPPORTED, "config.device is %d, but there is no CUDA: %s",
			    number, cuda_driver() ? "TUTTI_CUDA is 0" : cuda_driver_missing());
	if (number < 0 || number > devices)
		return fail(TUTTI_ERR_INVALID,
			    "config.device is %d: CUDA device 0 is 1, and there are %d (0, if the "
			    "program has not initialised CUDA)",
			    number, devices);
	return TUTTI_OK;
}

tutti_status comm_check_config(const tutti_config *config)
{
	if (config->timeout_ms < 0)
		return fail(TUTTI_ERR_INVALID, "config.timeout_ms is %d: it must not be negative",
			    config->timeout_ms);
	TRY(init_check_device(config->device));
	if (config->deterministic < 0 || config->deterministic > 1)
		return fail(TUTTI_ERR_INVALID, "config.deterministic is %d: it must be 0 or 1",
			    config->deterministic);
	if (config->name && !init_is_name(config->name))
		return fail(TUTTI_ERR_INVALID,
			    "config.name is not 1 to %d printable characters of ASCII",
			    ENGINE_NAME_BYTES - 1);
	if (config->local_ranks < 0)
		return fail(TUTTI_ERR_INVALID, "config.local_ranks is %d: it must not be negative",
			    config->local_ranks);
	if (memcmp(config->reserved, no_config.reserved, sizeof config->reserved) != 0)
		return fail(TUTTI_ERR_INVALID,
			    "config.reserved is not zero: zero-initialise the config");
	return TUTTI_OK;
}

/* The environment, and what of it holds for the whole process. */
static tutti_status init_load_settings(struct env *env)
{
	TRY(env_load(env));
	job_reserve_ports(env);
	if (env->cuda)
		cuda_kind_use();
	return simd_use(env->simd);
}

static tutti_status init_join(struct tutti_comm *comm, const struct job *job)
{
	struct arrival arrival;
	struct member alone;

	if (job->size > 1) {
		TRY(comm_arrive(comm, job, -1, &arrival));
		return comm_conclude(comm, &arrival, TUTTI_OK);
	}
	TRY(comm_keep_origin(comm, job));
	TRY(arrive_describe(comm, &alone));
	TRY(comm_meet(comm, &alone));
	return comm_start(comm);
}

tutti_status comm_init(struct tutti_comm **out, const tutti_config *config)
{
	struct env env;
	struct job job;
	struct tutti_comm *comm = NULL;

	if (!config)
		config = &no_config;
	TRY(init_load_settings(&env));
	TRY(comm_check_config(config));
	if (config->local_ranks > 1)
		return fail(TUTTI_ERR_INVALID,
			    "config.local_ranks is %d, but tutti_init makes one rank: "
			    "tutti_init_all makes several",
			    config->local_ranks);
	TRY(job_find(&job, config, &env));
	job.local_ranks = 1;
	log_set_rank(job.rank);
	tutti_status status = comm_new(&comm, config, &env, job.rank, job.size);
	if (status == TUTTI_OK)
		status = init_join(comm, &job);
	job_forget(&job);
	if (status != TUTTI_OK) {
		comm_free(comm);
		return status;
	}
	last_error_clear(); /* an attempt that was made again is no error */
	*out = comm;
	return TUTTI_OK;
}

static tutti_status init_open_windows(struct tutti_comm **comms, int n)
{
	struct window_config *configs = calloc((size_t)n, sizeof *configs);
	struct window **windows = calloc((size_t)n, sizeof(struct window *));
	tutti_status status = TUTTI_OK;
	if (!configs || !windows)
		status = fail(TUTTI_ERR_MEMORY, "no memory for the windows of %d ranks", n);
	if (status == TUTTI_OK) {
		for (int r = 0; r < n; r++)
			configs[r] = comm_window_config(comms[r]);
		status = window_join_all(windows, configs, n);
		for (int r = 0; status == TUTTI_OK && r < n; r++) {
			comms[r]->window = windows[r];
			comm_keep_window(comms[r], true);
		}
		if (status != TUTTI_OK)
			log_info("no window, messages instead: %s", last_error());
	}
	free(configs);
	free(windows);
	return status == TUTTI_ERR_MEMORY ? status : TUTTI_OK;
}

#define LOOK_MS 5

/* Connects one rank after another. A rank that waits may wait for one that has failed and cannot
 * say so. */
static tutti_status init_connect_all(struct tutti_comm **comms, int n)
{
	uint64_t deadline = deadline_after_ms(comms[0]->settings.timeout_ms);

	for (int r = 0; r < n;) {
		tutti_status status =
			comm_connect(comms[r], deadline_after_ms(LOOK_MS), NULL, NULL);
		if (status == TUTTI_OK) {
			r++;
			continue;
		}
		for (int k = 0; k < n && status == TUTTI_ERR_TIMEOUT; k++) {
			tutti_status other = comm_connect(comms[k], 0, NULL, NULL);
			status = other == TUTTI_OK ? status : other;
		}
		if (status != TUTTI_ERR_TIMEOUT || clock_now_ns() >= deadline)
			return status;
	}
	return TUTTI_OK;
}

/* Ranks of one process take the devices in turn, from the one that is named, or current. */
static int init_device_of_rank(const tutti_config *config, int rank)
{
	int first = memory_kind(TUTTI_MEMORY_CUDA) ? cuda_channels_device(config->device - 1) : -1;
	int count = first < 0 ? 0 : cuda_device_count();

	return count ? (first + rank) % count : -1;
}

static void init_keep_devices(struct tutti_comm **comms, int n)
{
	uint32_t all_have = HAS_ALL;

	for (int r = 0; r < n; r++)
		all_have &= comm_has(comms[r]);
	for (int r = 0; r < n; r++)
		comm_keep_device(comms[r], all_have);
}

/* Ranks from first on, of size. */
static tutti_status init_make_all(struct tutti_comm **comms, int n, const tutti_config *config,
				  const struct env *env, int first, int size)
{
	for (int r = 0; r < n; r++) {
		TRY(comm_new(&comms[r], config, env, first + r, size));
		comms[r]->settings.device = init_device_of_rank(config, r);
		comms[r]->place.has_no_thread = n > 1;
	}
	return TUTTI_OK;
}

/* All ranks of the job. */
static tutti_status init_join_all(struct tutti_comm **comms, int n, const tutti_config *config,
				  const struct env *env)
{
	struct member *members = calloc((size_t)n, sizeof *members);
	uint64_t id[2];
	uint8_t key[TUTTI_KEY_BYTES];
	tutti_status status =
		members ? TUTTI_OK : fail(TUTTI_ERR_MEMORY, "no memory to join %d ranks", n);

	auth_random(id, sizeof id);
	auth_random(key, sizeof key);
	if (status == TUTTI_OK)
		status = init_make_all(comms, n, config, env, 0, n);
	for (int r = 0; status == TUTTI_OK && r < n; r++) {
		memcpy(comms[r]->identity.id, id, sizeof id);
		memcpy(comms[r]->identity.key, key, sizeof key);
		status = arrive_describe(comms[r], &members[r]);
	}
	for (int r = 0; status == TUTTI_OK && r < n; r++)
		status = comm_meet(comms[r], members);
	if (status == TUTTI_OK)
		init_keep_devices(comms, n);
	if (status == TUTTI_OK && n > 1 && comms[0]->reach.may_have_window)
		status = init_open_windows(comms, n);
	for (int r = 0; status == TUTTI_OK && r < n; r++)
		status = comm_start(comms[r]);
	if (status == TUTTI_OK)
		status = init_connect_all(comms, n);
	free(members);
	return status;
}

/* This process's ranks of a job that has others. */
static tutti_status init_join_others(struct tutti_comm **comms, int n, const tutti_config *config,
				     const struct env *env, const struct job *job)
{
	TRY(init_make_all(comms, n, config, env, job->rank, job->size));
	return init_local_ranks_join(comms, n, job);
}

tutti_status comm_init_all(struct tutti_comm **comms, int n, const tutti_config *config)
{
	struct env env;
	struct job job = {.size = n};

	if (!config)
		config = &no_config;
	TRY(init_load_settings(&env));
	TRY(comm_check_config(config));
	if (config->local_ranks)
		TRY(init_local_ranks_find(&job, n, config, &env));
	struct tutti_comm **made = calloc((size_t)n, sizeof(struct tutti_comm *));
	if (!made)
		return fail(TUTTI_ERR_MEMORY, "no memory for %d communicators", n);
	tutti_status status = job.size > n ? init_join_others(made, n, config, &env, &job)
					   : init_join_all(made, n, config, &env);
	job_forget(&job);
	for (int r = 0; r < n; r++)
		if (status == TUTTI_OK)
			comms[r] = made[r];
		else
			comm_free(made[r]);
	free(made);
	if (status == TUTTI_OK)
		last_error_clear(); /* an attempt that was made again is no error */
	return status;
}
