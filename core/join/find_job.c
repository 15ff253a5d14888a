/* Which rank this process is: the config says it first, then the launcher. */
#include "core/join/find_server.h"
#include "core/join/launcher.h"
#include "core/join/place.h"

#include "core/log.h"
#include "core/net.h"
#include "core/status.h"
#include "core/words/netaddr.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROW_SUFFIX ".grow"

static tutti_status find_job_config_who(struct job *job, const tutti_config *config)
{
	if (config->world_size < 0 || config->world_size > WORLD_MAX)
		return fail(TUTTI_ERR_INVALID,
			    "config.world_size is %d: it is from 1 to %d, or 0 "
			    "for the environment's",
			    config->world_size, WORLD_MAX);
	if (config->rank < 0)
		return fail(TUTTI_ERR_INVALID, "config.rank is %d: ranks count from 0",
			    config->rank);
	if (config->world_size == 0 && config->rank != 0)
		return fail(TUTTI_ERR_INVALID,
			    "config.rank is %d but config.world_size is 0: set "
			    "both, or neither to take them from the environment",
			    config->rank);
	if (config->world_size > 0 && config->rank >= config->world_size)
		return fail(TUTTI_ERR_INVALID,
			    "config.rank is %d in a world with "
			    "config.world_size %d: ranks count from 0",
			    config->rank, config->world_size);
	if (config->world_size > 0) {
		snprintf(job->launcher, sizeof job->launcher, "config");
		job->rank = config->rank;
		job->size = config->world_size;
	}
	return TUTTI_OK;
}

/* With a config that says who but not where, the launcher says where. Both must mean one job. */
static tutti_status find_job_check_agreement(const struct job *job, const struct job *launched)
{
	if (job->rank == launched->rank && job->size == launched->size)
		return TUTTI_OK;
	return fail(
		TUTTI_ERR_INVALID,
		"the config says rank %d of %d, but the environment (%s) says rank %d of %d: set "
		"config.rendezvous if the config's is another job",
		job->rank, job->size, launched->launcher, launched->rank, launched->size);
}

static tutti_status find_job_find_who(struct job *job, const tutti_config *config,
				      const struct launcher *launcher)
{
	struct job launched = *job;

	TRY(find_job_config_who(job, config));
	/* A world of one meets nobody, so it need not agree with the launcher. */
	if (launcher && job->size != 1 && (job->size == 0 || !config->rendezvous)) {
		snprintf(launched.launcher, sizeof launched.launcher, "%s", launcher->name);
		TRY(launcher->who(&launched));
		if (job->size == 0)
			*job = launched;
		else
			TRY(find_job_check_agreement(job, &launched));
		job->local_rank = launched.local_rank;
		job->local_size = launched.local_size;
	}
	if (job->size == 0 && config->rendezvous)
		return fail(TUTTI_ERR_INVALID,
			    "there is a rendezvous, but nothing says which rank this is: set "
			    "config.rank and config.world_size, or RANK and WORLD_SIZE");
	if (job->size == 0) {
		snprintf(job->launcher, sizeof job->launcher, "none");
		job->size = 1;
	}
	return TUTTI_OK;
}

static tutti_status find_job_find_where(struct job *job, const tutti_config *config,
					const struct env *env, const struct launcher *launcher)
{
	if (config->rendezvous)
		TRY(place_parse(job, config->rendezvous));
	if (config->rendezvous || job->size == 1)
		return TUTTI_OK;
	job->meeting = JOB_TCP;
	TRY(launcher ? launcher->where(job) : launcher_master(job));
	if (env->port) {
		job->port = (int)env->port;
		job->port_is_taken = 0;
	}
	return TUTTI_OK;
}

void job_reserve_ports(const struct env *env)
{
	const char *master = getenv("MASTER_PORT");
	int port;

	if (master && netaddr_read_port(master, &port)) /* others are refused where they are used */
		net_reserve_port(port);
	if (env->port)
		net_reserve_port((int)env->port);
}

static void find_job_reserve_ports_of(const struct job *job)
{
	int last = job->port_is_taken ? job->port + PROBED_PORTS : job->port;

	for (int port = job->port; port > 0 && port <= last && port <= 65535; port++)
		net_reserve_port(port);
}

static tutti_status find_job_copy_secret(struct job *job, const char *from, const char *secret,
					 size_t n)
{
	if (n == 0)
		return fail(TUTTI_ERR_INVALID, "the secret in %s is empty", from);
	if (n >= sizeof job->secret)
		return fail(TUTTI_ERR_INVALID, "the secret in %s is longer than %zu bytes", from,
			    sizeof job->secret - 1);
	memcpy(job->secret, secret, n);
	job->secret[n] = '\0';
	return TUTTI_OK;
}

/* Once a process: its job may look again, to grow. */
static void find_job_warn_of_readers(const char *path, int fd)
{
	static atomic_flag is_said = ATOMIC_FLAG_INIT;
	struct stat about;

	if (fstat(fd, &about) == 0 && (about.st_mode & 077) && log_at(LOG_INFO) &&
	    !atomic_flag_test_and_set(&is_said))
		log_line("the secret's file %s has mode %04o: other users may come to it, where "
			 "0600 keeps it to its owner",
			 path, (unsigned)(about.st_mode & 07777));
}

static tutti_status find_job_read_secret_file(struct job *job, const char *path)
{
	char text[sizeof job->secret + 1] = "", from[300];
	ssize_t n;
	/* NONBLOCK: a pipe without a writer would block open. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return fail_errno("the secret's file TUTTI_SECRET_FILE=%.200s cannot be opened",
				  path);
	n = read(fd, text, sizeof text - 1);
	if (n < 0) {
		fail_errno("the secret's file TUTTI_SECRET_FILE=%.200s cannot be read", path);
		close(fd);
		return TUTTI_ERR_SYSTEM;
	}
	find_job_warn_of_readers(path, fd);
	close(fd);
	snprintf(from, sizeof from, "TUTTI_SECRET_FILE=%.200s (its first line)", path);
	return find_job_copy_secret(job, from, text, strcspn(text, "\r\n"));
}

/* A tutti:// URL has brought its own. */
static tutti_status find_job_find_secret(struct job *job, const tutti_config *config,
					 const struct env *env)
{
	if (job->secret[0])
		return TUTTI_OK;
	if (config->secret)
		return find_job_copy_secret(job, "config.secret", config->secret,
					    strlen(config->secret));
	if (env->secret)
		return find_job_copy_secret(job, "TUTTI_SECRET", env->secret, strlen(env->secret));
	if (env->secret_file)
		return find_job_read_secret_file(job, env->secret_file);
	return TUTTI_OK;
}

/* New ranks come to a meeting of their own, whose server is one of those that are there. */
static tutti_status find_job_set_growing(struct job *job, int server)
{
	job->is_growing = 1;
	job->server = server;
	if (job->meeting != JOB_FILE)
		return TUTTI_OK;
	if (strlen(job->path) + sizeof GROW_SUFFIX > sizeof job->path)
		return fail(TUTTI_ERR_INVALID, "the rendezvous file://%.200s is too long a path",
			    job->path);
	strcat(job->path, GROW_SUFFIX);
	return TUTTI_OK;
}

struct origin {
	atomic_int holders;
	struct job job;
};

struct origin *origin_new(const struct job *job)
{
	struct origin *origin = calloc(1, sizeof *origin);

	if (!origin)
		return NULL;
	atomic_init(&origin->holders, 1);
	origin->job = *job;
	if (job->size > 1) /* the URL's server has ended; else it may still wait */
		origin->job.is_served = 0;
	if (job->is_growing && job->meeting == JOB_FILE)
		origin->job.path[strlen(job->path) - strlen(GROW_SUFFIX)] = '\0';
	return origin;
}

struct origin *origin_hold(struct origin *origin)
{
	if (origin)
		atomic_fetch_add(&origin->holders, 1);
	return origin;
}

void origin_drop(struct origin *origin)
{
	if (!origin || atomic_fetch_sub(&origin->holders, 1) > 1)
		return;
	job_forget(&origin->job);
	free(origin);
}

void job_forget(struct job *job)
{
	sodium_memzero(job->secret, sizeof job->secret);
}

static tutti_status find_job_find_where_again(struct job *job, const struct origin *origin,
					      const tutti_config *config, const struct env *env)
{
	static const struct job nothing;
	const struct job *before = origin ? &origin->job : &nothing;

	if (config->rendezvous || before->meeting == JOB_ALONE)
		TRY(find_job_find_where(job, config, env, launcher_here()));
	else {
		job->meeting = before->meeting;
		job->is_served = before->is_served;
		job->port = before->port;
		job->port_is_taken = before->port_is_taken;
		job->is_url = before->is_url;
		memcpy(job->host, before->host, sizeof job->host);
		memcpy(job->path, before->path, sizeof job->path);
	}
	/* A URL includes its secret. */
	if ((!job->is_url && !before->is_url && !config->secret) ||
	    (job->is_url && !config->rendezvous))
		memcpy(job->secret, before->secret, sizeof job->secret);
	/* config may repeat the URL by which the ranks joined. */
	if (job->is_url && strcmp(job->secret, before->secret) == 0)
		job->is_served = before->is_served;
	return TUTTI_OK;
}

tutti_status job_find_again(struct job *job, int rank, int size, const struct origin *origin,
			    const tutti_config *config, const struct env *env)
{
	struct job found = {.local_rank = -1,
			    .local_size = -1,
			    .rank = rank,
			    .size = size,
			    .has_tls = env->tls != 0};
	tutti_status status;

	snprintf(found.launcher, sizeof found.launcher, "grow");
	status = find_job_find_where_again(&found, origin, config, env);
	if (status == TUTTI_OK)
		status = find_job_find_secret(&found, config, env);
	if (status == TUTTI_OK)
		status = find_job_set_growing(&found, -1);
	if (status == TUTTI_OK) {
		find_job_reserve_ports_of(&found);
		*job = found;
	}
	job_forget(&found);
	return status;
}

/* Of a URL's addresses the first is the one by which other machines reach it. */
bool job_is_here(const struct job *job)
{
	const char *list = job->host;
	char host[HOST_BYTES];
	bool is_here = false;

	if (job->meeting != JOB_TCP || job->is_served)
		return true;
	return place_next_host(&list, host) && place_is_here(host, &is_here) == TUTTI_OK && is_here;
}

tutti_status job_launched(int *size)
{
	const struct launcher *launcher = launcher_here();
	struct job job = {.local_rank = -1, .local_size = -1};

	if (launcher)
		TRY(launcher->who(&job));
	*size = job.size;
	return TUTTI_OK;
}

tutti_status job_find(struct job *job, const tutti_config *config, const struct env *env)
{
	static const tutti_config nothing;
	const struct launcher *launcher = launcher_here();
	struct job found = {.local_rank = -1, .local_size = -1, .has_tls = env->tls != 0};

	if (!config)
		config = &nothing;
	TRY(find_job_find_who(&found, config, launcher));
	tutti_status status = find_job_find_where(&found, config, env, launcher);
	if (status == TUTTI_OK)
		status = find_job_find_secret(&found, config, env);
	if (status == TUTTI_OK && env->restarted && found.size > 1)
		status = find_job_set_growing(&found, -1);
	if (status == TUTTI_OK) {
		find_job_reserve_ports_of(&found);
		*job = found;
		log_info("rank %d of %d (%s)", job->rank, job->size, job->launcher);
	}
	job_forget(&found);
	return status;
}
