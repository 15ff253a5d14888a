/* One poll loop over the ranks' pidfds, signals from outside and deadlines, until all ranks have
 * ended. Only these children are waited for; the program may have others. */
#include "collectives/spawn/spawn.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* By the descriptor: where another wait of the program has taken the child, its number may be
 * another process's. */
void spawn_kill(const struct spawn *s, int signal)
{
	for (int i = 0; i < s->started; i++)
		if (s->rank[i].fd >= 0)
			syscall(SYS_pidfd_send_signal, s->rank[i].fd, signal, NULL, 0);
}

static void await_reap(struct spawn *s, struct spawned *rank)
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

static bool await_has_failed(const struct spawned *rank)
{
	return rank->is_lost || rank->ending.code || rank->ending.signal;
}

/* Of those that have ended since the last look one that was killed: more likely the cause than an
 * exit, which may be a survivor's complaint. */
static struct spawned *await_look(struct spawn *s)
{
	struct spawned *failed = NULL;

	for (int i = 0; i < s->started; i++) {
		struct spawned *rank = &s->rank[i];

		if (rank->fd < 0 || !s->poll[i].revents)
			continue;
		await_reap(s, rank);
		if (rank->fd < 0 && await_has_failed(rank) &&
		    (!failed || (rank->ending.signal && !failed->ending.signal)))
			failed = rank;
	}
	return failed;
}

static void await_end_for(struct spawn *s, const struct spawned *failed)
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
static void await_hear(struct spawn *s, bool is_early)
{
	bool has_all;
	int signal;

	while ((signal = outside_next(&s->outside, &has_all)) != 0) {
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

static void await_handle_deadlines(struct spawn *s)
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

static int await_until_deadline(const struct spawn *s)
{
	uint64_t at = s->term_at < s->kill_at ? s->term_at : s->kill_at;

	return at == DEADLINE_NONE ? -1 : deadline_poll_ms(at, INT_MAX);
}

static void await_turn(struct spawn *s)
{
	for (int i = 0; i < s->started; i++) /* poll takes no notice of those with fd -1 */
		s->poll[i] = (struct pollfd){.fd = s->rank[i].fd, .events = POLLIN};
	s->poll[s->started] = (struct pollfd){.fd = s->outside.fd, .events = POLLIN};
	if (poll(s->poll, (nfds_t)s->started + 1, await_until_deadline(s)) < 0)
		for (int i = 0; i <= s->started; i++)
			s->poll[i].revents = 0; /* interrupted: look again */
}

void spawn_await(struct spawn *s)
{
	await_hear(s, true);
	while (s->alive > 0) {
		const struct spawned *failed;

		await_turn(s);
		if (s->poll[s->started].revents)
			await_hear(s, false);
		failed = await_look(s);
		if (failed && !s->failed)
			await_end_for(s, failed);
		await_handle_deadlines(s);
	}
}

static tutti_status explain_failure(const struct spawn *s, int asked)
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

tutti_status spawn_explain(const struct spawn *s)
{
	int last = s->outside.last;

	/* A rank may have got it, and ended, before this process got it. */
	if (s->failed)
		return explain_failure(s, s->failed->ending.signal == last ? last : s->asked);
	if (last)
		return fail(TUTTI_ERR_ABORTED,
			    "signal %d (%s) was passed to the ranks, all of which have returned 0",
			    last, strsignal(last));
	return TUTTI_OK;
}
