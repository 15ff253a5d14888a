/* Starts all ranks, looks after them, starts them again and reaps them. */
#include "ranks.h"

#include "agent.h"
#include "start_rank.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns as ranks_start. */
static int ranks_start_first(struct ranks *ranks, const struct start *s, int local)
{
	struct rank *rank = &ranks->rank[local];
	const char *folder = s->options->log_dir;
	int code = folder ? rank_log_open(&rank->log, folder, rank->number, s->agent.is_again) : 0;

	return code == 0 ? start_rank(ranks, s, local, 0) : code;
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
		ranks->rank[i].number = s->options->node_rank * ranks->n + i;
		ranks->rank[i].control_fd = ranks->rank[i].log.fd = -1;
	}
	for (int i = 0; i < ranks->n; i++) {
		int code = ranks_start_first(ranks, s, i);

		if (code != 0) {
			ranks_signal(ranks, SIGKILL);
			ranks_finish(ranks, s->guard);
			return code;
		}
		ranks->alive++;
	}
	return 0;
}

static bool ranks_has_failed(const struct rank *rank)
{
	return rank->has_ended && (rank->ending.signal || rank->ending.code);
}

bool ranks_any_done(const struct ranks *ranks)
{
	for (int i = 0; i < ranks->n; i++)
		if (ranks->rank[i].has_ended && !ranks_has_failed(&ranks->rank[i]))
			return true;
	return false;
}

/* From then on its number may be another's. */
static void ranks_reap(const struct ranks *ranks, struct rank *rank, const struct guard *guard)
{
	guard_forget(guard, (int)(rank - ranks->rank));
	while (waitpid(rank->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	rank->pid = 0;
}

int ranks_restart(struct ranks *ranks, const struct start *s, struct rank *rank, int restart)
{
	int code;

	assert(rank->pid > 0 && rank->has_ended);
	kill(-rank->pid, SIGKILL);
	ranks_reap(ranks, rank, s->guard);
	stream_close(&rank->out);
	stream_close(&rank->err);
	if (rank->control_fd >= 0)
		close(rank->control_fd);
	rank->control_fd = -1;
	rank->ending = (struct rank_ending){0};
	code = start_rank(ranks, s, (int)(rank - ranks->rank), restart);
	if (code == 0) {
		rank->has_ended = false;
		rank->is_new = restart != WITH_ALL;
		rank->waits = rank->has_joined = false;
		ranks->alive++;
	}
	return code;
}

static void ranks_note_if_ended(struct ranks *ranks, struct rank *rank)
{
	siginfo_t info = {0};

	if (rank->has_ended ||
	    waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
	    info.si_pid == 0)
		return;
	rank->has_ended = true;
	ranks->alive--;
	if (info.si_code == CLD_EXITED)
		rank->ending.code = info.si_status;
	else
		rank->ending.signal = info.si_status;
}

struct rank *ranks_of(const struct ranks *ranks, pid_t process)
{
	pid_t group = getpgid(process);

	for (int i = 0; i < ranks->n; i++)
		if (group > 0 && ranks->rank[i].pid == group)
			return &ranks->rank[i];
	return NULL;
}

struct rank *ranks_numbered(const struct ranks *ranks, int number)
{
	int local = number - ranks->rank[0].number;

	return number >= 0 && local >= 0 && local < ranks->n ? &ranks->rank[local] : NULL;
}

/* As a cause of the job's failure, than other, which may be NULL. */
static bool ranks_is_likelier(const struct rank *rank, const struct rank *other, pid_t first)
{
	if (!other || rank->pid == first)
		return true;
	return other->pid != first && rank->ending.signal && !other->ending.signal;
}

struct rank *ranks_observe(struct ranks *ranks, pid_t first)
{
	struct rank *failed = NULL;

	for (int i = 0; i < ranks->n; i++) {
		struct rank *rank = &ranks->rank[i];

		ranks_note_if_ended(ranks, rank);
		if (ranks_has_failed(rank) && ranks_is_likelier(rank, failed, first))
			failed = rank;
	}
	return failed;
}

/* A word that does not arrive is not needed: the agent sees the end of its stdin. */
static void ranks_tell(const struct rank *rank, char word)
{
	if (write(rank->control_fd, &word, 1) < 0)
		return;
}

void ranks_signal(const struct ranks *ranks, int signal)
{
	for (int i = 0; i < ranks->n; i++)
		if (ranks->rank[i].control_fd >= 0 && signal != SIGKILL)
			ranks_tell(&ranks->rank[i], (char)signal);
		else if (ranks->rank[i].pid > 0)
			kill(-ranks->rank[i].pid, signal);
}

void ranks_end(const struct ranks *ranks)
{
	for (int i = 0; i < ranks->n; i++)
		if (ranks->rank[i].control_fd >= 0)
			ranks_tell(&ranks->rank[i], AGENT_END);
		else if (ranks->rank[i].pid > 0)
			kill(-ranks->rank[i].pid, SIGTERM);
	ranks_signal(ranks, SIGCONT); /* a stopped process sees SIGTERM only then */
}

void ranks_finish(struct ranks *ranks, const struct guard *guard)
{
	for (int i = 0; i < ranks->n; i++) {
		struct rank *rank = &ranks->rank[i];

		if (rank->pid <= 0)
			continue;
		ranks_reap(ranks, rank, guard);
		if (rank->out.fd >= 0)
			close(rank->out.fd);
		if (rank->err.fd >= 0)
			close(rank->err.fd);
		if (rank->control_fd >= 0)
			close(rank->control_fd);
	}
	for (int i = 0; i < ranks->n; i++)
		rank_log_close(&ranks->rank[i].log);
	if (ranks->input_fd >= 0)
		close(ranks->input_fd);
	free(ranks->rank);
}
