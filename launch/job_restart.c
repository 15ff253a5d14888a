/* Failed ranks are started again, alone or with all others, and stderr says so; and ranks that
 * end are waited for. */
#include "job.h"
#include "now.h"
#include "ranks.h"

#include <signal.h>
#include <stdio.h>

enum answer {
	ANSWER_END,     /* the job                                                         */
	ANSWER_ALONE,   /* that rank is started again                                      */
	ANSWER_ALL,     /* all are                                                         */
	ANSWER_ALL_TOO, /* all are, as one restart with those that no rank has taken in    */
};

/* ---- ranks that end ---- */

/* Ranks that a signal from outside was passed to: how long they have, and who has not ended yet. */

#define AGENTS_GRACE_MS 3000 /* longer than that for the agents of --hosts      */
#define UNENDED_S       2    /* after that it is said who has not ended yet ... */
#define NAMED_MOST      4    /* ... and so many are named                       */

unsigned job_agents_grace(const struct job *j)
{
	return j->start->hosts ? AGENTS_GRACE_MS : 0;
}

/* Of an agent, the tuttirun that has started it says it. */
void job_await_end(struct job *j, int signal)
{
	uint64_t now = now_ms();

	j->kill_at = now + ASKED_GRACE_MS + job_agents_grace(j);
	if (!j->options->is_agent)
		j->tell_at = now + UNENDED_S * 1000;
	j->end_signal = signal;
}

/* As ", rank 0 (pid 12), rank 3 (pid 15)". */
static void job_restart_list_alive(const struct ranks *ranks, char *list, size_t bytes)
{
	int named = 0;
	size_t used = 0;

	*list = '\0';
	for (int i = 0; i < ranks->n && used < bytes; i++) {
		const struct rank *rank = &ranks->rank[i];
		if (rank->pid == 0 || rank->has_ended)
			continue;
		if (named++ == NAMED_MOST) {
			snprintf(list + used, bytes - used, ", ...");
			return;
		}
		used += (size_t)snprintf(list + used, bytes - used, ", %s", rank->name);
	}
}

void job_say_unended(struct job *j)
{
	const char *name = j->end_signal == SIGINT    ? "SIGINT"
			   : j->end_signal == SIGTERM ? "SIGTERM"
						      : "SIGHUP";
	char line[600], list[300];

	if (j->ranks->alive == 0)
		return;
	job_restart_list_alive(j->ranks, list, sizeof list);
	snprintf(line, sizeof line,
		 "tuttirun: %d s after %s %d of %d %s have not ended%s; they are killed in %d s, "
		 "or by %s (Ctrl-C)\n",
		 UNENDED_S, name, j->ranks->alive, j->ranks->n, j->start->hosts ? "hosts" : "ranks",
		 list, ASKED_GRACE_MS / 1000 - UNENDED_S,
		 j->interrupts > 0 ? "another SIGINT" : "SIGINT twice");
	sink_say(&j->ranks->err, line);
}

/* ---- the choice when a rank has failed ---- */

/* A program that goes on in place calls tutti_comm_grow in the ranks that are left; one that knows
 * no restarts ends them with an error. By what they do the launcher knows which program it runs. */

/* Ranks that were started again, since when no rank has called tutti_comm_grow. */
static int restart_waiting(const struct ranks *ranks)
{
	int count = 0;

	for (int i = 0; i < ranks->n; i++)
		count += ranks->rank[i].is_new;
	return count;
}

/* Some rank may still call tutti_comm_grow. */
static bool job_restart_any_can_grow(const struct ranks *ranks)
{
	for (int i = 0; i < ranks->n; i++)
		if (!ranks->rank[i].has_ended && !ranks->rank[i].is_new && !ranks->rank[i].waits)
			return true;
	return false;
}

/* It was not killed: it gave up. */
static bool job_restart_gave_up(const struct rank *failed)
{
	return !failed->ending.signal || failed->ending.signal == SIGABRT;
}

/* A single rank does without others. */
static bool job_restart_may_be_all(const struct ranks *ranks, const struct options *o)
{
	return o->nodes == 1 && (o->restart != RESTART_RANK || ranks->n > 1);
}

/* Whether all are started again because no rank can take the others in. */
static bool restart_none_left(const struct ranks *ranks, const struct options *o)
{
	return job_restart_may_be_all(ranks, o) && !job_restart_any_can_grow(ranks);
}

/* Whether all are started again when no rank calls tutti_comm_grow. */
static bool restart_falls_back(const struct ranks *ranks, const struct options *o)
{
	return o->restart == RESTART_BY_NEED && o->nodes == 1 && restart_waiting(ranks) > 0;
}

/* used: restarts that there have been. */
static enum answer restart_answer(const struct ranks *ranks, const struct rank *failed,
				  const struct options *o, int used)
{
	/* Ranks that have ended well cannot be joined any more. */
	if (o->restart != RESTART_JOB && ranks_any_done(ranks))
		return ANSWER_END;
	if (restart_falls_back(ranks, o) && !failed->is_new &&
	    (job_restart_gave_up(failed) || used >= o->max_restarts ||
	     !job_restart_any_can_grow(ranks)))
		return ANSWER_ALL_TOO;
	if (used >= o->max_restarts)
		return ANSWER_END;
	if (o->restart == RESTART_JOB || restart_none_left(ranks, o))
		return ANSWER_ALL;
	return ANSWER_ALONE;
}

#define SOON_MS 100 /* where no time is left */

static void restart_one(struct job *j, struct rank *rank)
{
	char rest[80];

	snprintf(rest, sizeof rest, "; it is started again (restart %d of %d)", ++j->restarts,
		 j->options->max_restarts);
	job_report(j, rank, rest);
	int code = ranks_restart(j->ranks, j->start, rank, j->restarts);
	if (code != 0)
		job_end(j, code, 0);
}

/* All ranks are ended as at the end of a job; job_restart_all comes when none is left. */
static void job_restart_begin_restart(struct job *j, unsigned after_ms)
{
	j->is_restarting = true;
	j->term_at = now_ms() + after_ms;
	j->kill_at = j->term_at + FAILED_GRACE_MS + job_agents_grace(j);
}

static const char *job_restart_all_again(const struct job *j, char text[120])
{
	char who[60] = "it is";

	if (j->start->hosts)
		snprintf(who, sizeof who, "the ranks of all hosts are");
	else if (j->ranks->n > 1)
		snprintf(who, sizeof who, "all %d ranks%s are", j->ranks->n,
			 j->options->nodes > 1 ? " of this machine" : "");
	snprintf(text, 120, "%s started again (restart %d of %d)", who, j->restarts,
		 j->options->max_restarts);
	return text;
}

/* All ranks, and those that wait to be taken in: one restart. */
static void job_restart_count_as_one(struct job *j)
{
	int waiting = restart_waiting(j->ranks);

	j->restarts -= waiting > 1 ? waiting - 1 : 0;
}

static void restart_with_all(struct job *j, struct rank *failed, enum answer answer)
{
	char again[120], rest[200];

	if (answer == ANSWER_ALL)
		j->restarts++;
	else
		job_restart_count_as_one(j);
	snprintf(rest, sizeof rest, "; %s%s",
		 answer == ANSWER_ALL ? "" : "no rank has called tutti_comm_grow before: ",
		 job_restart_all_again(j, again));
	job_report(j, failed, rest);
	job_restart_begin_restart(j, LAST_WORDS_MS);
}

/* Ranks that a connection which broke has left on a host do not meet the new ones, and the job has
 * the rest of its time. */
static int job_restart_renew_hosts(struct job *j)
{
	struct hosts *hosts = j->start->hosts;
	uint64_t now = now_ms(), end = j->timeout_at - HOSTS_SLACK_S * 1000;

	hosts->are_again = true;
	if (hosts->left_s > 0)
		hosts->left_s = end > now + SOON_MS ? (double)(end - now) / 1000 : SOON_MS / 1000.0;
	return meeting_renew(j->start->meeting);
}

void job_restart_all(struct job *j)
{
	int code = j->start->hosts ? job_restart_renew_hosts(j) : 0;

	j->is_restarting = false;
	j->term_at = j->kill_at = j->leave_at = NEVER;
	for (int i = 0; code == 0 && i < j->ranks->n; i++)
		code = ranks_restart(j->ranks, j->start, &j->ranks->rank[i], WITH_ALL);
	if (code != 0)
		job_end(j, code, 0);
}

static void job_restart_say_waiting(const struct job *j, const char *rest)
{
	char line[300];

	snprintf(line, sizeof line,
		 "tuttirun: a rank that was started again waits, and no rank has called "
		 "tutti_comm_grow for 5 s: %s\n",
		 rest);
	sink_say(&j->ranks->err, line);
}

void job_hear_waiting(struct job *j, struct rank *rank)
{
	char again[120];

	if (rank)
		rank->waits = true;
	if (j->is_ending || j->is_restarting || restart_waiting(j->ranks) == 0)
		return;
	if (restart_falls_back(j->ranks, j->options) || restart_none_left(j->ranks, j->options)) {
		job_restart_count_as_one(j);
		job_restart_say_waiting(j, job_restart_all_again(j, again));
		job_restart_begin_restart(j, 0);
	} else if (!j->has_advised) {
		job_restart_say_waiting(
			j, "a program that ends on an error needs --restart job, on each machine");
		j->has_advised = true;
	}
}

/* Without our stdout it would fail again, and the time of all hosts is over at once. */
static bool job_restart_is_final(const struct job *j, const struct rank *failed)
{
	bool is_late =
		j->start->hosts && j->options->timeout_s > 0 && failed->ending.code == TIMEOUT_CODE;

	return is_late || job_is_cut_off(j, failed);
}

struct rank *job_restart_failed(struct job *j, pid_t first)
{
	struct rank *failed;

	while ((failed = ranks_observe(j->ranks, first)) && !j->is_ending && !j->is_restarting &&
	       j->options->max_restarts > 0 && !job_restart_is_final(j, failed)) {
		enum answer answer = restart_answer(j->ranks, failed, j->options, j->restarts);

		if (answer == ANSWER_END)
			break;
		if (answer == ANSWER_ALONE)
			restart_one(j, failed);
		else
			restart_with_all(j, failed, answer);
	}
	return j->is_restarting ? NULL : failed;
}
