/* tutti_spawn, as tutti.h declares it: ranks of this program without a launcher. tuttirun does more
 * for its ranks (docs/launching.md); how they are told who they are, and how long they have to end,
 * is the same, core/rank. */
#include "collectives/spawn/spawn.h"

#include "collectives/spawn/cores.h"
#include "core/callback.h"
#include "core/clock.h"
#include "core/forks.h"
#include "core/log.h"
#include "core/rank/ending.h"
#include "core/rank/fresh.h"
#include "core/rank/variables.h"
#include "core/status.h"
#include "core/wait.h"
#include "core/words/netaddr.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#define OUTSIDE_SIGNALS 3
#define OUTSIDE_CHANGED (OUTSIDE_SIGNALS + 1) /* and SIGCHLD */

/* Signals from outside that would end this process: while it has ranks they end those first. */
struct outside {
	int fd;   /* becomes readable when one has come                          */
	int last; /* the last that has come, or 0                                */
	struct sigaction old[OUTSIDE_CHANGED];
};

struct spawned {
	pid_t pid;
	int fd;       /* its pidfd; -1 once it has ended                             */
	bool is_lost; /* it has ended, and another wait of the program took its code */
	struct rank_ending ending;
};

/* A job of tutti_spawn, until its last process has ended. */
struct spawn {
	int (*fn)(int rank, void *arg);
	void *arg;
	int n, started, alive;
	struct spawned *rank;
	struct pollfd *poll; /* room for each rank, and for the signals from outside        */
	pid_t parent;
	const char *host;       /* where the ranks meet, and ...                                */
	struct fresh_port port; /* ... where there, until the job is over                      */
	char secret[FRESH_SECRET_BYTES]; /* "": the environment has the user's                */
	struct outside outside;
	struct cores *cores; /* NULL: no rank is bound                                      */
	const struct spawned *failed; /* the first                                            */
	int asked;      /* the signal from outside that had come by then, or 0         */
	bool has_run;   /* all were started                                            */
	int exit_code;  /* as tuttirun's; 0 as long as none has failed                 */
	bool is_ending; /* a failure, or a signal from outside, ends the job           */
	int interrupts; /* SIGINT came so often                                        */
	uint64_t term_at, kill_at;
};

/* A handler writes each signal into a pipe, which the loop of spawn_await polls with the ranks. The
 * program may have threads, and a signal for the process comes to any of them: blocking it in this
 * thread would not keep it from ending the process. */

static const int numbers[OUTSIDE_CHANGED] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};

/* The writing end; -1: no tutti_spawn runs here. Signals are the process's: there is one at a time.
 */
static atomic_int to = -1;

struct note {
	unsigned char number, has_all;
};

static void spawn_note_signal(int number, siginfo_t *info, void *context)
{
	/* The kernel itself sends what is typed at a terminal, to the whole process group. */
	struct note note = {(unsigned char)number, info->si_code == SI_KERNEL};
	int fd = atomic_load(&to), error = errno;

	(void)context;
	/* A full pipe has hundreds of them. */
	if (fd >= 0 && write(fd, &note, sizeof note) < 0)
		errno = error;
	errno = error;
}

static bool spawn_is_default(const struct sigaction *action)
{
	return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == SIG_DFL;
}

/* The kernel then forgets children that have ended, with their exit codes. */
static bool spawn_forgets_children(const struct sigaction *action)
{
	return (!(action->sa_flags & SA_SIGINFO) && action->sa_handler == SIG_IGN) ||
	       (action->sa_flags & SA_NOCLDWAIT);
}

static void spawn_outside_change(struct outside *o, int i)
{
	struct sigaction ours = {.sa_sigaction = spawn_note_signal,
				 .sa_flags = SA_SIGINFO | SA_RESTART};

	sigaction(numbers[i], NULL, &o->old[i]);
	if (numbers[i] == SIGCHLD) {
		if (!spawn_forgets_children(&o->old[i]))
			return;
		ours = o->old[i];
		ours.sa_flags &= ~SA_NOCLDWAIT;
		if (ours.sa_handler == SIG_IGN)
			ours.sa_handler = SIG_DFL;
	} else if (!spawn_is_default(&o->old[i])) {
		return;
	}
	sigaction(numbers[i], &ours, NULL);
}

static void spawn_outside_restore(const struct outside *o)
{
	for (int i = 0; i < OUTSIDE_CHANGED; i++)
		sigaction(numbers[i], &o->old[i], NULL);
}

/* From here on SIGINT, SIGTERM and SIGHUP are noted, those that the program neither handles nor
 * ignores; and children can be waited for, though the program may have ignored their ends. SYSTEM.
 * INVALID: another thread is between this and give_back. */
static tutti_status spawn_outside_take(struct outside *o)
{
	int ends[2], none = -1;

	*o = (struct outside){.fd = -1};
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return fail_errno("tutti_spawn: no pipe for signals");
	if (!atomic_compare_exchange_strong(&to, &none, ends[1])) {
		close(ends[0]);
		close(ends[1]);
		return fail(TUTTI_ERR_INVALID,
			    "tutti_spawn: another thread of this process is in tutti_spawn");
	}
	o->fd = ends[0];
	for (int i = 0; i < OUTSIDE_CHANGED; i++)
		spawn_outside_change(o, i);
	return TUTTI_OK;
}

/* The next that has come, or 0. has_all: the terminal has sent it to the ranks, too. */
static int spawn_outside_next(struct outside *o, bool *has_all)
{
	struct note note;

	if (read(o->fd, &note, sizeof note) != (ssize_t)sizeof note)
		return 0;
	*has_all = note.has_all;
	o->last = note.number;
	return note.number;
}

static void spawn_close_pipe(struct outside *o)
{
	close(atomic_exchange(&to, -1));
	close(o->fd);
}

/* All is as it was. One that came in the last moment is noted in outside->last. */
static void spawn_outside_give_back(struct outside *o)
{
	bool has_all;

	spawn_outside_restore(o);
	while (spawn_outside_next(o, &has_all))
		continue;
	spawn_close_pipe(o);
}

static void spawn_outside_hold(sigset_t *mask)
{
	sigset_t ours;

	sigemptyset(&ours);
	for (int i = 0; i < OUTSIDE_CHANGED; i++)
		sigaddset(&ours, numbers[i]);
	pthread_sigmask(SIG_BLOCK, &ours, mask);
}

/* Around fork: between the two none is handled here, nor does a handler of the program's take the
 * child; in the child leave instead of release, and all is as before take. */
static void spawn_outside_release(const sigset_t *mask)
{
	pthread_sigmask(SIG_SETMASK, mask, NULL);
}

static void spawn_outside_leave(struct outside *o, const sigset_t *mask)
{
	spawn_outside_restore(o);
	spawn_close_pipe(o);
	spawn_outside_release(mask);
}

/* One poll loop over the ranks' pidfds, signals from outside and deadlines, until all ranks have
 * ended. Only these children are waited for; the program may have others. */

/* By the descriptor: where another wait of the program has taken the child, its number may be
 * another process's. */
static void spawn_kill(const struct spawn *s, int signal)
{
	for (int i = 0; i < s->started; i++)
		if (s->rank[i].fd >= 0)
			syscall(SYS_pidfd_send_signal, s->rank[i].fd, signal, NULL, 0);
}

static void spawn_reap(struct spawn *s, struct spawned *rank)
{
	siginfo_t info = {0};
	int rc;

	do
		rc = waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG);
	while (rc != 0 && errno == EINTR);
	if (rc == 0 && info.si_pid == 0)
		return;
	rank->is_lost = rc != 0;
	if (info.si_code == CLD_EXITED)
		rank->ending.code = info.si_status;
	else
		rank->ending.signal = info.si_status;
	close(rank->fd);
	rank->fd = -1;
	s->alive--;
}

static bool spawn_has_failed(const struct spawned *rank)
{
	return rank->is_lost || rank->ending.code || rank->ending.signal;
}

/* Of those that have ended since the last look one that was killed: more likely the cause than an
 * exit, which may be a survivor's complaint. */
static struct spawned *spawn_look(struct spawn *s)
{
	struct spawned *failed = NULL;

	for (int i = 0; i < s->started; i++) {
		struct spawned *rank = &s->rank[i];

		if (rank->fd < 0 || !s->poll[i].revents)
			continue;
		spawn_reap(s, rank);
		if (rank->fd < 0 && spawn_has_failed(rank) &&
		    (!failed || (rank->ending.signal && !failed->ending.signal)))
			failed = rank;
	}
	return failed;
}

static void spawn_end_for(struct spawn *s, const struct spawned *failed)
{
	s->failed = failed;
	s->asked = s->outside.last;
	s->exit_code = failed->is_lost ? 1 : ending_code(&failed->ending);
	if (!s->is_ending) {
		s->is_ending = true;
		s->term_at = deadline_after_ms(LAST_WORDS_MS);
		s->kill_at = deadline_after_ms(LAST_WORDS_MS + FAILED_GRACE_MS);
	}
}

/* is_early: it may have come before all ranks were there to get it. */
static void spawn_hear(struct spawn *s, bool is_early)
{
	bool has_all;
	int signal;

	while ((signal = spawn_outside_next(&s->outside, &has_all)) != 0) {
		if (signal == SIGINT && ++s->interrupts >= 2) {
			spawn_kill(s, SIGKILL);
			continue;
		}
		if (!has_all || is_early)
			spawn_kill(s, signal);
		if (!s->is_ending)
			s->kill_at = deadline_after_ms(ASKED_GRACE_MS);
		s->is_ending = true;
	}
}

static void spawn_handle_deadlines(struct spawn *s)
{
	uint64_t now = clock_now_ns();

	if (now >= s->term_at) {
		s->term_at = DEADLINE_NONE;
		spawn_kill(s, SIGTERM);
		spawn_kill(s, SIGCONT); /* a stopped process sees SIGTERM only then */
	}
	if (now >= s->kill_at) {
		s->kill_at = DEADLINE_NONE;
		spawn_kill(s, SIGKILL);
	}
}

static int spawn_until_deadline(const struct spawn *s)
{
	uint64_t at = s->term_at < s->kill_at ? s->term_at : s->kill_at;

	return at == DEADLINE_NONE ? -1 : deadline_poll_ms(at, INT_MAX);
}

static void spawn_turn(struct spawn *s)
{
	for (int i = 0; i < s->started; i++) /* poll takes no notice of those with fd -1 */
		s->poll[i] = (struct pollfd){.fd = s->rank[i].fd, .events = POLLIN};
	s->poll[s->started] = (struct pollfd){.fd = s->outside.fd, .events = POLLIN};
	if (poll(s->poll, (nfds_t)s->started + 1, spawn_until_deadline(s)) < 0)
		for (int i = 0; i <= s->started; i++)
			s->poll[i].revents = 0; /* interrupted: look again */
}

/* Waits until all that were started have ended, and ends them after a failure. */
static void spawn_await(struct spawn *s)
{
	spawn_hear(s, true);
	while (s->alive > 0) {
		const struct spawned *failed;

		spawn_turn(s);
		if (s->poll[s->started].revents)
			spawn_hear(s, false);
		failed = spawn_look(s);
		if (failed && !s->failed)
			spawn_end_for(s, failed);
		spawn_handle_deadlines(s);
	}
}

static tutti_status spawn_explain_failure(const struct spawn *s, int asked)
{
	const struct spawned *rank = s->failed;
	const char *rest = s->n > 1 ? "; the job was ended" : "";
	char name[40], words[ENDING_BYTES];

	snprintf(name, sizeof name, "rank %d (pid %d)", (int)(rank - s->rank), (int)rank->pid);
	ending_words(words, name, &rank->ending);
	if (rank->is_lost)
		return fail(TUTTI_ERR_SYSTEM,
			    "%s has ended, but another wait of this program took its exit code%s: "
			    "wait for children by their numbers, not for any",
			    name, rest);
	if (asked)
		return fail(TUTTI_ERR_ABORTED, "signal %d (%s) was passed to the ranks: %s%s",
			    asked, strsignal(asked), words, rest);
	return fail(TUTTI_ERR_PEER, "%s%s", words, rest);
}

static tutti_status spawn_explain(const struct spawn *s)
{
	int last = s->outside.last;

	/* A rank may have got it, and ended, before this process got it. */
	if (s->failed)
		return spawn_explain_failure(s, s->failed->ending.signal == last ? last : s->asked);
	if (last)
		return fail(TUTTI_ERR_ABORTED,
			    "signal %d (%s) was passed to the ranks, all of which have returned 0",
			    last, strsignal(last));
	return TUTTI_OK;
}

/* One rank becomes a process. It runs fn in a copy of this program, from where the caller is. */

/* Variables of a launcher that has started the parent would send the rank to another job. */
static void spawn_set_environment(const struct spawn *s, int rank)
{
	static const char *const others[] = {"TUTTI_RESTARTED", "TUTTI_MAX_RESTARTS",
					     "TUTTIRUN_SOCKET"};
	int cores = s->cores ? wait_cores() : wait_cores() / s->n;
	struct setting settings[VARIABLES_MAX];
	const struct rank_seat seat = {
		.local = rank,
		.local_size = s->n,
		.nodes = 1,
		.host = s->host,
		.port = s->port.number,
		.starter = s->parent,
		.cores = cores < 1 ? 1 : cores,
	};
	int n = variables_of(settings, &seat);

	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		unsetenv(others[i]);
	for (int i = 0; i < n; i++)
		setenv(settings[i].name, settings[i].text, 1);
	if (s->secret[0])
		setenv("TUTTI_SECRET", s->secret, 1);
}

/* Rank 0 has the parent's. The others must not read what rank 0 shall, nor what the parent has read
 * ahead. */
static void spawn_set_input(int rank)
{
	int fd = rank == 0 ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	dup2(fd, STDIN_FILENO);
	close(fd);
	__fpurge(stdin);
	clearerr(stdin);
}

/* The exit code. The parent's exit handlers are the parent's; only output is not to be lost. */
static int spawn_code_of(int returned, int rank)
{
	int code = returned & 0xff;

	if (code == 0 && returned != 0)
		code = 1; /* of a larger number the kernel keeps the last 8 bits */
	const char *lost = spawn_output_lost();
	if (!lost || code != 0)
		return code;
	log_notice("the output of rank %d could not be written: %s", rank, lost);
	return OUTPUT_LOST;
}

/* The program may have flushed it itself, and looked at nothing. */
const char *spawn_output_lost(void)
{
	if (fflush(NULL) != 0)
		return strerror(errno);
	return ferror(stdout) ? "an earlier write failed" : NULL;
}

__attribute__((noreturn)) static void fork_rank_become(struct spawn *s, int rank,
						       const sigset_t *mask)
{
	int (*fn)(int, void *) = s->fn;
	void *arg = s->arg;

	follow_parent(s->parent);
	for (int i = 0; i < rank; i++)
		if (s->rank[i].fd >= 0)
			close(s->rank[i].fd);
	fresh_port_free(&s->port);
	cores_bind(s->cores, rank);
	wait_count_cores();
	spawn_set_environment(s, rank);
	cores_free(s->cores);
	spawn_set_input(rank);
	clearerr(stdout); /* what the parent could not write is the parent's */
	spawn_outside_leave(&s->outside, mask);
	free(s->rank);
	free(s->poll);
	int code;
	callback_call("the function", "tutti_spawn", rank, code = fn(rank, arg));
	_exit(spawn_code_of(code, rank));
}

/* Without a pidfd its end could not be seen among those of the program's other children. */
static tutti_status spawn_watch(struct spawn *s, struct spawned *rank)
{
	rank->fd = (int)syscall(SYS_pidfd_open, rank->pid, 0);
	s->started++;
	s->alive += rank->fd >= 0;
	if (rank->fd >= 0)
		return TUTTI_OK;
	fail_errno("tutti_spawn: rank %d of %d (pid %d) cannot be watched", s->started - 1, s->n,
		   (int)rank->pid);
	if (errno == ESRCH) /* another thread has waited for it already */
		return TUTTI_ERR_SYSTEM;
	kill(rank->pid, SIGKILL);
	while (waitpid(rank->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return TUTTI_ERR_SYSTEM;
}

/* Forks the next rank. SYSTEM: there is none. */
static tutti_status spawn_fork(struct spawn *s)
{
	struct spawned *rank = &s->rank[s->started];
	tutti_status status;
	sigset_t mask;

	rank->fd = -1;
	spawn_outside_hold(&mask);
	rank->pid = fork();
	if (rank->pid == 0)
		fork_rank_become(s, s->started, &mask);
	if (rank->pid < 0)
		status = fail_errno("tutti_spawn: rank %d of %d cannot be started", s->started,
				    s->n);
	else
		status = spawn_watch(s, rank);
	spawn_outside_release(&mask);
	return status;
}

static _Thread_local int last_code;

static tutti_status spawn_check(int (*fn)(int rank, void *arg), int nprocs)
{
	last_error_clear();
	TRY(forks_check("tutti_spawn"));
	if (!fn)
		return fail(TUTTI_ERR_INVALID, "tutti_spawn: fn is NULL");
	if (nprocs < 1 || nprocs > RANKS_MAX)
		return fail(TUTTI_ERR_INVALID, "tutti_spawn: nprocs is %d: it is from 1 to %d",
			    nprocs, RANKS_MAX);
	if (forks_communicators() > 0)
		return fail(TUTTI_ERR_INVALID,
			    "tutti_spawn: this process has %d communicator%s, which forked ranks "
			    "cannot share: call it before tutti_init, or destroy them first",
			    forks_communicators(), forks_communicators() == 1 ? "" : "s");
	return TUTTI_OK;
}

/* Where the program has closed descriptors of these, a pipe or a connection would get the number,
 * and what is printed would go there. They stay unusable: stdin is open to write, the others to
 * read. Returns a bit for each. */
static unsigned spawn_fill_standard(void)
{
	unsigned filled = 0;

	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		int got = open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
		if (got == fd)
			filled |= 1u << fd;
		else if (got >= 0) /* another thread has taken it */
			close(got);
	}
	return filled;
}

static void spawn_empty_standard(unsigned filled)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (filled & 1u << fd)
			close(fd);
}

static tutti_status spawn_prepare(struct spawn *s)
{
	s->rank = calloc((size_t)s->n, sizeof *s->rank);
	s->poll = calloc((size_t)s->n + 1, sizeof *s->poll);
	if (!s->rank || !s->poll)
		return fail(TUTTI_ERR_MEMORY, "tutti_spawn: no memory for %d ranks", s->n);
	s->host = netaddr_loopback();
	if (fresh_port_keep(&s->port, 0) != 0)
		return fail_errno("tutti_spawn: cannot bind a TCP port that the system chooses");
	s->cores = cores_deal(s->n);
	if (!getenv("TUTTI_SECRET") && !getenv("TUTTI_SECRET_FILE") && fresh_secret(s->secret) != 0)
		return fail_errno("tutti_spawn: no random bits for the job's secret");
	return TUTTI_OK;
}

/* After a failure to start one those that run are killed, and the failure is the result. */
static tutti_status spawn_start_all(struct spawn *s)
{
	tutti_status status = TUTTI_OK;

	fflush(NULL); /* what is in memory would be written by each rank */
	while (s->started < s->n && status == TUTTI_OK)
		status = spawn_fork(s);
	if (status == TUTTI_OK)
		return TUTTI_OK;

	char message[ERROR_BYTES];
	snprintf(message, sizeof message, "%s", last_error());
	spawn_kill(s, SIGKILL);
	spawn_await(s);
	return fail(status, "%s", message);
}

static tutti_status spawn_run(struct spawn *s)
{
	tutti_status status;

	TRY(spawn_outside_take(&s->outside));
	status = spawn_start_all(s);
	s->has_run = status == TUTTI_OK;
	if (s->has_run)
		spawn_await(s);
	spawn_outside_give_back(&s->outside);
	return s->has_run ? spawn_explain(s) : status;
}

tutti_status tutti_spawn(int (*fn)(int rank, void *arg), void *arg, int nprocs)
{
	struct spawn s = {
		.fn = fn,
		.arg = arg,
		.n = nprocs,
		.parent = getpid(),
		.port = FRESH_PORT_NONE,
		.term_at = DEADLINE_NONE,
		.kill_at = DEADLINE_NONE,
	};
	tutti_status status;

	last_code = 1;
	TRY(spawn_check(fn, nprocs));
	unsigned filled = spawn_fill_standard();
	status = spawn_prepare(&s);
	if (status == TUTTI_OK)
		status = spawn_run(&s);
	last_code = s.has_run ? s.exit_code : 1;
	cores_free(s.cores);
	fresh_port_free(&s.port);
	free(s.poll);
	free(s.rank);
	spawn_empty_standard(filled);
	return status;
}

int tutti_spawn_exit_code(void)
{
	return last_code;
}
