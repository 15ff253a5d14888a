/* Starts a job's ranks: processes that this one forks, each with a launcher's variables and its
 * output in a file of its own. */
#include "tests/faults/job_internal.h"
#include "tests/faults/life.h"
#include "tests/ports.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Another one for each job: the sockets of the job before may still be there. */
static int next_port(void)
{
	static int used;

	return test_ports() + used++ % TEST_PORTS;
}

static void set_number(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof text, "%d", value);
	setenv(name, text, 1);
}

static void set_transports(const struct scenario *s, int rank)
{
	static const char *const transports[WAYS] = {"shm,tcp", "shm",   "tcp", "shm,tcp",
						     "shm,tcp", "verbs", "ucx", "shm,tcp"};
	bool has_window = s->way == WAY_WINDOW || s->way == WAY_GPUS;
	char host[32];

	setenv("TUTTI_TRANSPORTS", transports[s->way], 1);
	if (s->way == WAY_UCX)
		setenv("UCX_TLS", s->seed % 2 ? "tcp,self" : "sm,self", 1);
	/* Nodes have windows in one half of the scenarios. */
	if (s->way == WAY_NODES || s->way == WAY_HOSTS)
		has_window = s->seed % 2;
	set_number("TUTTI_WINDOW", has_window);
	snprintf(host, sizeof host, "host%d", scenario_host(s, rank));
	if (s->way == WAY_NODES)
		setenv("TUTTI_HOST_ID", host, 1);
}

static void set_environment(const struct scenario *s, int rank, int port)
{
	uint32_t here = scenario_ranks_of(s, scenario_host(s, rank));
	char address[32] = "127.0.0.1";

	if (s->way == WAY_HOSTS)
		hosts_address(0, address, sizeof address);
	set_number("RANK", rank);
	set_number("WORLD_SIZE", s->ranks);
	set_number("LOCAL_RANK", __builtin_popcount(here & ((1u << rank) - 1)));
	set_number("LOCAL_WORLD_SIZE", __builtin_popcount(here));
	setenv("MASTER_ADDR", address, 1);
	set_number("MASTER_PORT", port);
	setenv("TUTTI_SECRET", "not much of a secret", 1);
	set_number("TUTTI_TIMEOUT_MS", s->timeout_ms);
	set_number("TUTTI_SILENCE_MS", s->silence_ms);
	set_number("TUTTI_CHECKSUM", s->is_summed);
	if (s->reconnect >= 0)
		set_number("TUTTI_RECONNECT", s->reconnect);
	set_transports(s, rank);
}

/* id: by which the test knows it; rank: its number, which is another's before who comes anew. */
static void be_rank(struct job *job, int id, int rank)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	set_environment(job->s, rank, job->port);
	if (id != rank)
		set_number("TUTTI_RESTARTED", 1);
	dup2(job->outputs[id], STDOUT_FILENO);
	dup2(job->outputs[id], STDERR_FILENO);
	if (job->s->way == WAY_HOSTS) {
		if (!hosts_enter(&job->hosts, scenario_host(job->s, rank))) {
			perror("a host");
			_exit(1);
		}
		hosts_close(&job->hosts);
	}
	exit(life_run(job->s, job->board, id, job->doorbell));
}

static pid_t fork_or_die(void)
{
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0) {
		perror("fork");
		exit(1);
	}
	return pid;
}

static void start_rank(struct job *job, int id, int rank)
{
	pid_t pid = fork_or_die();

	if (pid == 0)
		be_rank(job, id, rank);
	job->running[id] = job->truth.pids[id] = pid;
	atomic_store(&job->board->seats[id].pid, pid);
}

void job_start_joiner(struct job *job, int rank)
{
	start_rank(job, job->s->ranks, rank);
}

void job_start(struct job *job)
{
	job->port = next_port();
	if (job->s->way == WAY_HOSTS) {
		job->wire = fork_or_die();
		if (job->wire == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			wire_run(&job->hosts, job->board, job->s->seed);
		}
	}
	for (int i = 0; i < scenario_seats(job->s); i++)
		job->outputs[i] = memfd_create("output", MFD_CLOEXEC);
	for (int r = 0; r < job->s->ranks; r++)
		start_rank(job, r, r);
}
