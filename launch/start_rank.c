/* One rank becomes a process: pipes, fork, environment, exec. */
#include "start_rank.h"

#include "agent.h"
#include "environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The ends of the pipes between the launcher and one rank, [0] read and [1] written. */
struct pipes {
	int out[2], err[2], in[2];
	int failure[2]; /* carries errno when exec fails, nothing when it succeeds */
};

static void start_rank_set_environment(const struct start *s, int local, int restart)
{
	struct setting settings[SETTINGS_MAX];
	int cores = bindings_cores(s->bindings, local, s->options);
	int n = environment_of(settings, s, local, restart, cores);

	for (int i = 0; i < n; i++)
		setenv(settings[i].name, settings[i].text, 1);
}

/* Rank 0 has the launcher's own input; where that is a terminal, which only the launcher's process
 * group may read, a pipe from it. The others read nothing, nor does a rank that takes rank 0's
 * place. Where the launcher is told on its own input what to do, it was told rank 0's as well. */
static bool has_input(const struct start *s, int local, int restart)
{
	return s->hosts ||
	       (local == 0 && !restart && (!s->options->is_agent || s->agent.input_fd >= 0));
}

/* Without any of these it keeps the launcher's own. */
static void start_rank_set_input(const struct pipes *p, const struct start *s, bool has_input)
{
	int input = p->in[0] >= 0 ? p->in[0] : s->agent.input_fd;

	if (!has_input)
		input = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (input >= 0)
		dup2(input, STDIN_FILENO);
}

/* errno of execvp. If no folder of PATH has the program, and one of them may not be entered, execvp
 * says EACCES; ENOENT tells more. */
static int start_rank_error(const char *program)
{
	const char *path = getenv("PATH"), *end;
	char file[4096];
	int error = errno;

	if (error != EACCES || strchr(program, '/') || !path)
		return error;
	for (;; path = end + 1) {
		end = strchrnul(path, ':');
		/* an empty part is this folder */
		snprintf(file, sizeof file, "%.*s%s%s", (int)(end - path), path,
			 end > path ? "/" : "", program);
		if (access(file, F_OK) == 0)
			return error;
		if (!*end)
			break;
	}
	return ENOENT;
}

__attribute__((noreturn)) static void
start_rank_become(const struct start *s, const struct pipes *p, int local, int restart)
{
	char **program = s->options->program;
	int error;

	follow_parent(s->launcher);
	guard_join(s->guard, local);
	if (s->hosts) {
		program = hosts_command(s->hosts, local);
	} else {
		start_rank_set_environment(s, local, restart);
		bindings_apply(s->bindings, local);
	}
	start_rank_set_input(p, s, has_input(s, local, restart));
	dup2(p->out[1], STDOUT_FILENO);
	dup2(p->err[1], STDERR_FILENO);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, s->signals, NULL);
	execvp(program[0], program);
	error = start_rank_error(program[0]);
	_exit(write(p->failure[1], &error, sizeof error) == sizeof error ? 127 : 126);
}

static void start_rank_close_both(int fd[2])
{
	for (int i = 0; i < 2; i++) {
		if (fd[i] >= 0)
			close(fd[i]);
		fd[i] = -1;
	}
}

static void start_rank_no_pipe(void)
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

static int start_rank_pipes_open(struct pipes *p, bool needs_input)
{
	*p = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
	if (pipe2(p->out, O_CLOEXEC) == 0 && pipe2(p->err, O_CLOEXEC) == 0 &&
	    pipe2(p->failure, O_CLOEXEC) == 0 && (!needs_input || pipe2(p->in, O_CLOEXEC) == 0))
		return 0;
	start_rank_no_pipe();
	return -1;
}

static void start_rank_pipes_close(struct pipes *p)
{
	start_rank_close_both(p->out);
	start_rank_close_both(p->err);
	start_rank_close_both(p->in);
	start_rank_close_both(p->failure);
}

/* The launcher's end of a pipe leaves the struct, never blocks and stays open. */
static int start_rank_keep(int *fd)
{
	int kept = *fd;

	*fd = -1;
	fcntl(kept, F_SETFL, O_NONBLOCK);
	return kept;
}

static bool start_rank_is_python(const char *program)
{
	size_t bytes = strlen(program);

	return bytes > 3 && strcmp(program + bytes - 3, ".py") == 0;
}

/* Where a file with this name is there, the kernel's error alone would not say what is wrong. */
static void start_rank_say_unstarted(const char *program, int error)
{
	bool is_here = access(program, F_OK) == 0, has_folder = strchr(program, '/');

	fprintf(stderr, "tuttirun: '%s' cannot be started: %s", program, strerror(error));
	if (is_here && start_rank_is_python(program) && (error == EACCES || !has_folder))
		fprintf(stderr, "; a program in Python is started by its interpreter: python3 %s",
			program);
	else if (is_here && error == ENOENT && !has_folder)
		fprintf(stderr, " in PATH; the one in this folder is ./%s", program);
	else if (is_here && error == ENOENT)
		fputs("; the file is there, but not the interpreter that it names", stderr);
	fputs(".\n", stderr);
}

/* 0 when the program runs; else the exit code a shell would give. */
static int start_rank_started(struct pipes *p, const char *program)
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
	start_rank_say_unstarted(program, error);
	return error == ENOENT ? 127 : 126;
}

static void start_rank_stream_init(struct stream *stream, struct sink *sink, int fd,
				   const struct options *o, struct rank *rank)
{
	stream->fd = fd;
	stream->sink = sink;
	stream->log = &rank->log;
	stream->is_raw = o->ranks == 1 && !o->prefix;
	if (o->prefix)
		snprintf(stream->prefix, sizeof stream->prefix, "[%d] ", rank->number);
}

/* The end of a pipe that will be an agent's stdin, or nobody's. Returns 0, or the exit code. */
static int start_rank_tell_agent(const struct start *s, const struct pipes *p, int local)
{
	if (!s->hosts)
		return 0;
	fcntl(p->in[1], F_SETFL, O_NONBLOCK);
	return letter_send(p->in[1], s->hosts, s->meeting, local) == 0 ? 0 : 1;
}

static void start_rank_name_rank(struct rank *rank, const struct start *s, int local)
{
	if (s->hosts)
		snprintf(rank->name, sizeof rank->name, "host %s", s->hosts->name[local]);
	else if (rank->pid > 0)
		snprintf(rank->name, sizeof rank->name, "rank %d (pid %d)", rank->number,
			 (int)rank->pid);
	else
		snprintf(rank->name, sizeof rank->name, "rank %d", rank->number);
}

static void start_rank_keep_pipes(struct ranks *ranks, const struct start *s, struct pipes *p,
				  int local)
{
	struct rank *rank = &ranks->rank[local];

	start_rank_stream_init(&rank->out, &ranks->out, start_rank_keep(&p->out[0]), s->options,
			       rank);
	start_rank_stream_init(&rank->err, &ranks->err, start_rank_keep(&p->err[0]), s->options,
			       rank);
	if (s->hosts)
		rank->control_fd = start_rank_keep(&p->in[1]);
	else if (p->in[1] >= 0)
		ranks->input_fd = start_rank_keep(&p->in[1]);
}

int start_rank(struct ranks *ranks, const struct start *s, int local, int restart)
{
	struct rank *rank = &ranks->rank[local];
	bool needs_pipe = s->hosts || (has_input(s, local, restart) && isatty(STDIN_FILENO));
	struct pipes p;
	int code;

	if (start_rank_pipes_open(&p, needs_pipe) != 0 ||
	    start_rank_tell_agent(s, &p, local) != 0) {
		start_rank_pipes_close(&p);
		return 1;
	}
	rank->pid = fork();
	if (rank->pid == 0) {
		setpgid(0, 0);
		start_rank_become(s, &p, local, restart);
	}
	start_rank_name_rank(rank, s, local);
	if (rank->pid < 0) {
		fprintf(stderr, "tuttirun: %s cannot be started: %s.\n", rank->name,
			strerror(errno));
		rank->pid = 0;
		start_rank_pipes_close(&p);
		return 1;
	}
	setpgid(rank->pid, rank->pid); /* here as well: signals may be due before it has run */
	start_rank_keep_pipes(ranks, s, &p, local);
	code = start_rank_started(&p, s->hosts ? *hosts_command(s->hosts, local)
					       : *s->options->program);
	start_rank_pipes_close(&p);
	return code;
}
