/* A handler writes each signal into a pipe, which the loop of await.c polls with the ranks. The
 * program may have threads, and a signal for the process comes to any of them: blocking it in this
 * thread would not keep it from ending the process. */
#include "collectives/spawn/outside.h"

#include "core/status.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

static const int numbers[OUTSIDE_CHANGED] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};

/* The writing end; -1: no tutti_spawn runs here. Signals are the process's: there is one at a time.
 */
static atomic_int to = -1;

struct note {
	unsigned char number, has_all;
};

static void note_signal(int number, siginfo_t *info, void *context)
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

static bool is_default(const struct sigaction *action)
{
	return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == SIG_DFL;
}

/* The kernel then forgets children that have ended, with their exit codes. */
static bool forgets_children(const struct sigaction *action)
{
	return (!(action->sa_flags & SA_SIGINFO) && action->sa_handler == SIG_IGN) ||
	       (action->sa_flags & SA_NOCLDWAIT);
}

static void outside_change(struct outside *o, int i)
{
	struct sigaction ours = {.sa_sigaction = note_signal, .sa_flags = SA_SIGINFO | SA_RESTART};

	sigaction(numbers[i], NULL, &o->old[i]);
	if (numbers[i] == SIGCHLD) {
		if (!forgets_children(&o->old[i]))
			return;
		ours = o->old[i];
		ours.sa_flags &= ~SA_NOCLDWAIT;
		if (ours.sa_handler == SIG_IGN)
			ours.sa_handler = SIG_DFL;
	} else if (!is_default(&o->old[i])) {
		return;
	}
	sigaction(numbers[i], &ours, NULL);
}

static void outside_restore(const struct outside *o)
{
	for (int i = 0; i < OUTSIDE_CHANGED; i++)
		sigaction(numbers[i], &o->old[i], NULL);
}

tutti_status outside_take(struct outside *o)
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
		outside_change(o, i);
	return TUTTI_OK;
}

int outside_next(struct outside *o, bool *has_all)
{
	struct note note;

	if (read(o->fd, &note, sizeof note) != (ssize_t)sizeof note)
		return 0;
	*has_all = note.has_all;
	o->last = note.number;
	return note.number;
}

static void close_pipe(struct outside *o)
{
	close(atomic_exchange(&to, -1));
	close(o->fd);
}

void outside_give_back(struct outside *o)
{
	bool has_all;

	outside_restore(o);
	while (outside_next(o, &has_all))
		continue;
	close_pipe(o);
}

void outside_hold(sigset_t *mask)
{
	sigset_t ours;

	sigemptyset(&ours);
	for (int i = 0; i < OUTSIDE_CHANGED; i++)
		sigaddset(&ours, numbers[i]);
	pthread_sigmask(SIG_BLOCK, &ours, mask);
}

void outside_release(const sigset_t *mask)
{
	pthread_sigmask(SIG_SETMASK, mask, NULL);
}

void outside_leave(struct outside *o, const sigset_t *mask)
{
	outside_restore(o);
	close_pipe(o);
	outside_release(mask);
}
