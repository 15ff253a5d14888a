/* tuttirun, torchrun and people who set RANK themselves; Open MPI; MPICH; Slurm; TF_CONFIG. The
 * order is that of nearness: mpirun inside a Slurm job leaves both kinds of variables, and the
 * inner one counts. */
#include "core/join/launcher.h"

#include "core/machine.h"
#include "core/status.h"
#include "core/words/netaddr.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first host of a list as Slurm writes it. Only that one is needed. */

static tutti_status launcher_bad_list(const char *list)
{
	return fail(TUTTI_ERR_INVALID,
		    "\"%.100s\" is not a list of hosts such as node[01-03,7],gpu5", list);
}

static bool launcher_is_host_byte(char c)
{
	return isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_';
}

/* At "[01-03,7]": copies 01 and returns what follows the bracket; NULL: malformed. */
static const char *launcher_first_number(const char *at, char *to, size_t *n, size_t room)
{
	const char *close = strchr(at, ']');
	size_t digits = strspn(at + 1, "0123456789");
	char after = at[1 + digits];

	if (!close || digits == 0 || digits > room || !strchr(",-]", after) || after == '\0')
		return NULL;
	for (const char *c = at + 1; c < close; c++)
		if (!isdigit((unsigned char)*c) && *c != ',' && *c != '-')
			return NULL;
	memcpy(to, at + 1, digits);
	*n += digits;
	return close + 1;
}

tutti_status hostlist_first(const char *list, char *host, size_t host_bytes)
{
	const char *at = list;
	size_t n = 0;

	while (*at && *at != ',') {
		if (n + 1 >= host_bytes)
			return launcher_bad_list(list);
		if (*at == '[') {
			at = launcher_first_number(at, host + n, &n, host_bytes - n - 1);
			if (!at)
				return launcher_bad_list(list);
			continue;
		}
		if (!launcher_is_host_byte(*at))
			return launcher_bad_list(list);
		host[n++] = *at++;
	}
	host[n] = '\0';
	return n ? TUTTI_OK : launcher_bad_list(list);
}

static tutti_status launcher_parse_int(const char *name, const char *text, int min, int max,
				       int *value)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || v < min || v > max)
		return fail(TUTTI_ERR_INVALID, "%s=%.60s is not a number from %d to %d", name, text,
			    min, max);
	*value = (int)v;
	return TUTTI_OK;
}

/* A variable that may be missing: then *value stays. */
static tutti_status launcher_read_int(const char *name, int min, int max, int *value)
{
	const char *text = getenv(name);
	return text ? launcher_parse_int(name, text, min, max, value) : TUTTI_OK;
}

static tutti_status launcher_need_int(const char *name, const char *because, int max, int *value)
{
	const char *text = getenv(name);
	if (!text)
		return fail(TUTTI_ERR_INVALID, "%s is set but %s is not: a job needs both", because,
			    name);
	return launcher_parse_int(name, text, 0, max, value);
}

/* Rank and size, of the job and of the machine, under the names that a launcher gives them. NULL:
 * it does not say. */
struct names {
	const char *rank, *size, *local_rank, *local_size;
};

static tutti_status launcher_read_local_size(struct job *job, struct names n)
{
	TRY(launcher_read_int(n.local_size, 1, WORLD_MAX, &job->local_size));
	if (job->local_size > job->size)
		return fail(TUTTI_ERR_INVALID, "%s=%d is more than %s=%d", n.local_size,
			    job->local_size, n.size, job->size);
	if (job->local_size > 0 && job->local_rank >= job->local_size)
		return fail(TUTTI_ERR_INVALID, "%s=%d is not below %s=%d", n.local_rank,
			    job->local_rank, n.local_size, job->local_size);
	return TUTTI_OK;
}

static tutti_status launcher_read_who(struct job *job, struct names n)
{
	TRY(launcher_need_int(n.rank, n.size, WORLD_MAX - 1, &job->rank));
	TRY(launcher_need_int(n.size, n.rank, WORLD_MAX, &job->size));
	TRY(launcher_read_int(n.local_rank, 0, WORLD_MAX - 1, &job->local_rank));
	if (job->size == 0)
		return fail(TUTTI_ERR_INVALID, "%s=0: a world has at least one rank", n.size);
	if (job->rank >= job->size)
		return fail(TUTTI_ERR_INVALID,
			    "%s=%d is not a rank of a world with %s=%d: ranks count from 0", n.rank,
			    job->rank, n.size, job->size);
	return n.local_size ? launcher_read_local_size(job, n) : TUTTI_OK;
}

static tutti_status launcher_copy_host(struct job *job, const char *name, const char *host)
{
	const char *why = netaddr_read_host(host, job->host, sizeof job->host);

	return why ? fail(TUTTI_ERR_INVALID, "%s=%.200s %s", name, host, why) : TUTTI_OK;
}

static tutti_status launcher_copy_port(struct job *job, const char *text)
{
	if (netaddr_read_port(text, &job->port))
		return TUTTI_OK;
	return fail(TUTTI_ERR_INVALID, "MASTER_PORT=%.60s is not a number from 1 to 65535", text);
}

tutti_status launcher_master(struct job *job)
{
	const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");

	if (!host || !port)
		return fail(TUTTI_ERR_INVALID,
			    "%s is not set: the %d ranks of the world need MASTER_ADDR and "
			    "MASTER_PORT (or a rendezvous in their config) to find rank 0",
			    host ? "MASTER_PORT" : "MASTER_ADDR", job->size);
	TRY(launcher_copy_host(job, "MASTER_ADDR", host));
	return launcher_copy_port(job, port);
}

/* A port for job number n that all its ranks come to alone. Another job may have the same, so rank
 * 0 takes the first free one above. */
static tutti_status launcher_derive_port(struct job *job, uint64_t n)
{
	const char *port = getenv("MASTER_PORT");

	if (port)
		return launcher_copy_port(job, port);
	job->port = DERIVED_PORT_FIRST + (int)(n % DERIVED_PORTS);
	job->port_is_taken = 1;
	return TUTTI_OK;
}

static uint64_t launcher_hash_text(const char *text)
{
	uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
	return h ^ h >> 32;
}

static bool launcher_ranks_are_here(void)
{
	return getenv("RANK") || getenv("WORLD_SIZE");
}

static tutti_status launcher_ranks_who(struct job *job)
{
	struct names names = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
	const char *name = getenv("TUTTIRUN_JOB")          ? "tuttirun"
			   : getenv("TORCHELASTIC_RUN_ID") ? "torchrun"
							   : "environment";

	snprintf(job->launcher, sizeof job->launcher, "%s", name);
	return launcher_read_who(job, names);
}

/* torchrun's agent serves a store of its own at MASTER_PORT; tuttirun --hosts has chosen one
 * without knowing whether it is free on the machine of rank 0. */
static bool launcher_master_port_is_taken(void)
{
	const char *chosen = getenv("TUTTIRUN_PORT_TAKEN");

	if (getenv("TUTTIRUN_JOB"))
		return chosen && strcmp(chosen, "1") == 0;
	return getenv("TORCHELASTIC_RUN_ID") != NULL;
}

static tutti_status launcher_ranks_where(struct job *job)
{
	TRY(launcher_master(job));
	job->port_is_taken = launcher_master_port_is_taken();
	return TUTTI_OK;
}

static bool launcher_openmpi_is_here(void)
{
	return getenv("OMPI_COMM_WORLD_RANK") || getenv("OMPI_COMM_WORLD_SIZE");
}

static tutti_status launcher_openmpi_who(struct job *job)
{
	struct names names = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
			      "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};

	return launcher_read_who(job, names);
}

static tutti_status launcher_openmpi_where(struct job *job)
{
	const char *host = getenv("MASTER_ADDR"), *number = getenv("PMIX_NAMESPACE");

	if (!host && job->local_size < 0)
		return fail(TUTTI_ERR_INVALID,
			    "OMPI_COMM_WORLD_LOCAL_SIZE is not set: whether the %d ranks share a "
			    "machine is not known, so say where rank 0 is with MASTER_ADDR",
			    job->size);
	if (!host && job->local_size != job->size)
		return fail(TUTTI_ERR_INVALID,
			    "mpirun has started %d ranks on several machines (%d here): say where "
			    "rank 0 is with mpirun -x MASTER_ADDR=<host of rank 0>",
			    job->size, job->local_size);
	TRY(launcher_copy_host(job, "MASTER_ADDR", host ? host : netaddr_loopback()));
	if (!number)
		number = getenv("OMPI_MCA_ess_base_jobid");
	return launcher_derive_port(job, launcher_hash_text(number ? number : "openmpi"));
}

/* Hydra, the mpiexec of MPICH and of Intel's MPI. Slurm's PMI-2 has PMI_RANK, too, but not the
 * other. */
static bool launcher_mpich_is_here(void)
{
	return getenv("PMI_RANK") && getenv("MPI_LOCALRANKID");
}

static tutti_status launcher_mpich_who(struct job *job)
{
	return launcher_read_who(
		job, (struct names){"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
}

/* A process's parent and name; false: they are not to be seen. */
static bool launcher_look_at_process(int pid, int *parent, char name[64])
{
	char path[40], text[256];

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	return machine_text(path, text, sizeof text) &&
	       sscanf(text, "%*d (%63[^)]) %*c %d", name, parent) == 2;
}

/* No variable says which job it is. All ranks of a machine descend from one process of hydra's. */
static int launcher_hydra_process(void)
{
	int pid = getppid(), parent;
	char name[64];

	for (; pid > 1 && launcher_look_at_process(pid, &parent, name); pid = parent)
		if (strncmp(name, "hydra_", 6) == 0)
			return pid;
	return 0;
}

static tutti_status launcher_mpich_where(struct job *job)
{
	const char *host = getenv("MASTER_ADDR");

	if (!host && job->local_size != job->size)
		return fail(TUTTI_ERR_INVALID,
			    "mpiexec has started %d ranks, and not all of them on this machine: "
			    "say where rank 0 is with mpiexec -genv MASTER_ADDR <host of rank 0> "
			    "-genv MASTER_PORT <port>",
			    job->size);
	if (host && job->local_size != job->size)
		return launcher_master(job);
	TRY(launcher_copy_host(job, "MASTER_ADDR", host ? host : netaddr_loopback()));
	return launcher_derive_port(job, (uint64_t)launcher_hydra_process() * 31);
}

/* A batch script itself has Slurm's variables too, but is not one of srun's tasks. */
static bool launcher_slurm_is_here(void)
{
	const char *environment = getenv("ENVIRONMENT");

	if (environment && strcmp(environment, "BATCH") == 0 && !getenv("SLURM_STEP_ID"))
		return false;
	return getenv("SLURM_PROCID") && (getenv("SLURM_NTASKS") || getenv("SLURM_STEP_NUM_TASKS"));
}

static tutti_status launcher_slurm_who(struct job *job)
{
	const char *size = getenv("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
	return launcher_read_who(job, (struct names){"SLURM_PROCID", size, "SLURM_LOCALID", NULL});
}

static tutti_status launcher_slurm_where(struct job *job)
{
	static const char *const lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
					    "SLURM_NODELIST"};
	const char *host = getenv("MASTER_ADDR"), *list = NULL;
	int number = 0, step = 0;

	for (size_t i = 0; i < 3 && !list; i++)
		list = getenv(lists[i]);
	if (!host && !list)
		return fail(TUTTI_ERR_INVALID,
			    "SLURM_PROCID is set but neither SLURM_JOB_NODELIST nor "
			    "MASTER_ADDR says where rank 0 is");
	if (host)
		TRY(launcher_copy_host(job, "MASTER_ADDR", host));
	else
		TRY(hostlist_first(list, job->host, sizeof job->host));
	TRY(launcher_read_int("SLURM_JOB_ID", 0, 0x7fffffff, &number));
	/* Names that are not numbers are steps of Slurm's own. */
	if (getenv("SLURM_STEP_ID"))
		step = atoi(getenv("SLURM_STEP_ID"));
	return launcher_derive_port(job, (uint64_t)number * 31 + (uint64_t)step * 17);
}

static bool launcher_tf_is_here(void)
{
	return getenv("TF_CONFIG") != NULL;
}

static tutti_status launcher_tf_who(struct job *job)
{
	return tf_config_read(job, getenv("TF_CONFIG"));
}

static tutti_status launcher_tf_where(struct job *job)
{
	struct job again;

	TRY(tf_config_read(&again, getenv("TF_CONFIG")));
	memcpy(job->host, again.host, sizeof job->host);
	job->port = again.port;
	return TUTTI_OK;
}

const struct launcher *launcher_here(void)
{
	static const struct launcher launchers[] = {
		{"environment", launcher_ranks_are_here, launcher_ranks_who, launcher_ranks_where},
		{"openmpi", launcher_openmpi_is_here, launcher_openmpi_who, launcher_openmpi_where},
		{"mpich", launcher_mpich_is_here, launcher_mpich_who, launcher_mpich_where},
		{"slurm", launcher_slurm_is_here, launcher_slurm_who, launcher_slurm_where},
		{"tf_config", launcher_tf_is_here, launcher_tf_who, launcher_tf_where},
	};

	for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
		if (launchers[i].is_here())
			return &launchers[i];
	return NULL;
}
