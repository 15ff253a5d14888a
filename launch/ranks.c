/* Starts ranks as processes with pipes, looks after them, starts them again and reaps them. */
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The ends of the pipes between the launcher and one rank, [0] read and [1] written. */
struct pipes {
	int out[2], err[2], in[2];
	int failure[2]; /* carries errno when exec fails, nothing when it succeeds */
};

static void set_number(const char *name, long value)
{
	char text[24];

	snprintf(text, sizeof text, "%ld", value);
	setenv(name, text, 1);
}

/* The libraries' own default is all cores of the machine, for each rank. */
static void set_threads(int cores)
{
	static const char *const names[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS",
					    "OPENBLAS_NUM_THREADS"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!getenv(names[i]))
			set_number(names[i], cores);
}

static void set_environment(const struct start *s, int local, int number, int restart)
{
	const struct options *o = s->options;

	if (restart > 0)
		set_number("TUTTI_RESTARTED", restart); /* it joins the ranks that are there */
	if (o->max_restarts > 0 && o->restart != RESTART_JOB)
		set_number("TUTTI_MAX_RESTARTS", o->max_restarts); /* tutti_recover waits */
	set_number("RANK", number);
	set_number("WORLD_SIZE", (long)o->nodes * o->ranks);
	set_number("LOCAL_RANK", local);
	set_number("LOCAL_WORLD_SIZE", o->ranks);
	set_number("NODE_RANK", o->node_rank);
	set_number("GROUP_RANK", o->node_rank);
	setenv("MASTER_ADDR", s->meeting->host, 1);
	set_number("MASTER_PORT", s->meeting->port);
	set_number("TUTTIRUN_JOB",
		   s->launcher); /* by this the library knows which tuttirun started it */
	if (s->words->fd >= 0)
		setenv("TUTTIRUN_SOCKET", s->words->name, 1);
	set_threads(bindings_cores(s->bindings, local, o));
	if (s->meeting->secret[0])
		setenv("TUTTI_SECRET", s->meeting->secret, 1);
}

/* Rank 0 has the launcher's own input; where that is a terminal, which only the launcher's process
 * group may read, a pipe from it. The others read nothing, nor does a rank that takes rank 0's
 * place. */
static void set_input(const struct pipes *p, int local)
{
	int nothing;

	if (p->in[0] >= 0)
		dup2(p->in[0], STDIN_FILENO);
	if (local == 0)
		return;
	nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (nothing >= 0)
		dup2(nothing, STDIN_FILENO);
}

__attribute__((noreturn)) static void become(const struct start *s, const struct pipes *p,
					     int local, int number, int restart)
{
	int error;

	/* Should the launcher be killed, its ranks follow it; it may have been already. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != s->launcher)
		_exit(1);
	guard_join(s->guard, local);
	set_environment(s, local, number, restart);
	bindings_apply(s->bindings, local);
	set_input(p, restart ? -1 : local);
	dup2(p->out[1], STDOUT_FILENO);
	dup2(p->err[1], STDERR_FILENO);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, s->signals, NULL);
	execvp(s->options->program[0], s->options->program);
	error = errno;
	_exit(write(p->failure[1], &error, sizeof error) == sizeof error ? 127 : 126);
}

static void close_both(int fd[2])
{
	for (int i = 0; i < 2; i++) {
		if (fd[i] >= 0)
			close(fd[i]);
		fd[i] = -1;
	}
}

static void no_pipe(void)
{
	struct rlimit limit;
	int error = errno;

	fprintf(stderr, "tuttirun: no pipe for the ranks' output: %s", strerror(error));
	if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
		fprintf(stderr,
			"; tuttirun may have %llu open and needs two for each rank: raise "
			"`ulimit -n`",
			(unsigned long long)limit.rlim_cur);
	fputs(".\n", stderr);
}

static int pipes_open(struct pipes *p, bool needs_input)
{
	*p = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
	if (pipe2(p->out, O_CLOEXEC) == 0 && pipe2(p->err, O_CLOEXEC) == 0 &&
	    pipe2(p->failure, O_CLOEXEC) == 0 && (!needs_input || pipe2(p->in, O_CLOEXEC) == 0))
		return 0;
	no_pipe();
	return -1;
}

static void pipes_close(struct pipes *p)
{
	close_both(p->out);
	close_both(p->err);
	close_both(p->in);
	close_both(p->failure);
}

/* The launcher's end of a pipe leaves the struct, never blocks and stays open. */
static int keep(int *fd)
{
	int kept = *fd;

	*fd = -1;
	fcntl(kept, F_SETFL, O_NONBLOCK);
	return kept;
}

/* 0 when the program runs; else the exit code a shell would give. */
static int started(struct pipes *p, const char *program)
{
	int error;
	ssize_t n;

	close(p->failure[1]);
	p->failure[1] = -1;
	do
		n = read(p->failure[0], &error, sizeof error);
	while (n < 0 && errno == EINTR);
	if (n != sizeof error)
		return 0;
	fprintf(stderr, "tuttirun: '%s' cannot be started: %s.\n", program, strerror(error));
	return error == ENOENT ? 127 : 126;
}

static void stream_init(struct stream *stream, struct sink *sink, int fd, const struct options *o,
			int number)
{
	stream->fd = fd;
	stream->sink = sink;
	stream->is_raw = o->ranks == 1 && !o->prefix;
	if (o->prefix)
		snprintf(stream->prefix, sizeof stream->prefix, "[%d] ", number);
}

/* restart 0: for the first time; or WITH_ALL. */
static int start_one(struct ranks *ranks, const struct start *s, int local, int restart)
{
	struct rank *rank = &ranks->rank[local];
	bool needs_input = local == 0 && !restart && isatty(STDIN_FILENO);
	struct pipes p;
	int code;

	rank->number = s->options->node_rank * s->options->ranks + local;
	if (pipes_open(&p, needs_input) != 0) {
		pipes_close(&p);
		return 1;
	}
	rank->pid = fork();
	if (rank->pid == 0) {
		setpgid(0, 0);
		become(s, &p, local, rank->number, restart);
	}
	if (rank->pid < 0) {
		fprintf(stderr, "tuttirun: rank %d cannot be started: %s.\n", rank->number,
			strerror(errno));
		rank->pid = 0;
		pipes_close(&p);
		return 1;
	}
	setpgid(rank->pid, rank->pid); /* here as well: signals may be due before it has run */
	stream_init(&rank->out, &ranks->out, keep(&p.out[0]), s->options, rank->number);
	stream_init(&rank->err, &ranks->err, keep(&p.err[0]), s->options, rank->number);
	if (needs_input)
		ranks->input_fd = keep(&p.in[1]);
	code = started(&p, s->options->program[0]);
	pipes_close(&p);
	return code;
}

int ranks_start(struct ranks *ranks, const struct start *s)
{
	*ranks = (struct ranks){.input_fd = -1};
	ranks->out.fd = STDOUT_FILENO;
	ranks->err.fd = STDERR_FILENO;
	ranks->rank = calloc((size_t)s->options->ranks, sizeof *ranks->rank);
	if (!ranks->rank) {
		fprintf(stderr, "tuttirun: no memory for %d ranks.\n", s->options->ranks);
		return 1;
	}
	ranks->n = s->options->ranks;
	for (int i = 0; i < ranks->n; i++) {
		int code = start_one(ranks, s, i, 0);

		if (code != 0) {
			ranks_signal(ranks, SIGKILL);
			ranks_finish(ranks, s->guard);
			return code;
		}
		ranks->alive++;
	}
	return 0;
}

static bool has_failed(const struct rank *rank)
{
	return rank->has_ended && (rank->exit_signal || rank->exit_code);
}

bool ranks_any_done(const struct ranks *ranks)
{
	for (int i = 0; i < ranks->n; i++)
		if (ranks->rank[i].has_ended && !has_failed(&ranks->rank[i]))
			return true;
	return false;
}

/* From then on its number may be another's. */
static void reap(const struct ranks *ranks, struct rank *rank, const struct guard *guard)
{
	guard_forget(guard, (int)(rank - ranks->rank));
	while (waitpid(rank->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	rank->pid = 0;
}

int ranks_restart(struct ranks *ranks, const struct start *s, struct rank *rank, int restart)
{
	int code;

	kill(-rank->pid, SIGKILL);
	reap(ranks, rank, s->guard);
	stream_close(&rank->out);
	stream_close(&rank->err);
	rank->exit_code = rank->exit_signal = 0;
	code = start_one(ranks, s, (int)(rank - ranks->rank), restart);
	if (code == 0) {
		rank->has_ended = false;
		rank->is_new = restart != WITH_ALL;
		rank->waits = false;
		ranks->alive++;
	}
	return code;
}

static void note_if_ended(struct ranks *ranks, struct rank *rank)
{
	siginfo_t info = {0};

	if (rank->has_ended ||
	    waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
	    info.si_pid == 0)
		return;
	rank->has_ended = true;
	ranks->alive--;
	if (info.si_code == CLD_EXITED)
		rank->exit_code = info.si_status;
	else
		rank->exit_signal = info.si_status;
}

struct rank *ranks_of(const struct ranks *ranks, pid_t process)
{
	pid_t group = getpgid(process);

	for (int i = 0; i < ranks->n; i++)
		if (group > 0 && ranks->rank[i].pid == group)
			return &ranks->rank[i];
	return NULL;
}

struct rank *ranks_observe(struct ranks *ranks)
{
	struct rank *failed = NULL;

	for (int i = 0; i < ranks->n; i++) {
		struct rank *rank = &ranks->rank[i];

		note_if_ended(ranks, rank);
		if (has_failed(rank) && (!failed || (rank->exit_signal && !failed->exit_signal)))
			failed = rank;
	}
	return failed;
}

void ranks_signal(const struct ranks *ranks, int signal)
{
	for (int i = 0; i < ranks->n; i++) {
		if (ranks->rank[i].pid > 0)
			kill(-ranks->rank[i].pid, signal);
	}
}

void ranks_finish(struct ranks *ranks, const struct guard *guard)
{
	for (int i = 0; i < ranks->n; i++) {
		struct rank *rank = &ranks->rank[i];

		if (rank->pid <= 0)
			continue;
		reap(ranks, rank, guard);
		if (rank->out.fd >= 0)
			close(rank->out.fd);
		if (rank->err.fd >= 0)
			close(rank->err.fd);
	}
	if (ranks->input_fd >= 0)
		close(ranks->input_fd);
	free(ranks->rank);
}
