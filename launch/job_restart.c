/* Failed ranks are started again, alone or with all others, and stderr says so. restart.c chooses.
 */
#include "job.h"

#include "now.h"
#include "restart.h"

#include <stdio.h>

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
static void begin_restart(struct job *j, unsigned after_ms)
{
	j->is_restarting = true;
	j->term_at = now_ms() + after_ms;
	j->kill_at = j->term_at + FAILED_GRACE_MS + job_agents_grace(j);
}

static const char *all_again(const struct job *j, char text[120])
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
static void count_as_one(struct job *j)
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
		count_as_one(j);
	snprintf(rest, sizeof rest, "; %s%s",
		 answer == ANSWER_ALL ? "" : "no rank has called tutti_comm_grow before: ",
		 all_again(j, again));
	job_report(j, failed, rest);
	begin_restart(j, LAST_WORDS_MS);
}

/* Ranks that a connection which broke has left on a host do not meet the new ones, and the job has
 * the rest of its time. */
static int renew_hosts(struct job *j)
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
	int code = j->start->hosts ? renew_hosts(j) : 0;

	j->is_restarting = false;
	j->term_at = j->kill_at = j->leave_at = NEVER;
	for (int i = 0; code == 0 && i < j->ranks->n; i++)
		code = ranks_restart(j->ranks, j->start, &j->ranks->rank[i], WITH_ALL);
	if (code != 0)
		job_end(j, code, 0);
}

static void say_waiting(const struct job *j, const char *rest)
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
		count_as_one(j);
		say_waiting(j, all_again(j, again));
		begin_restart(j, 0);
	} else if (!j->has_advised) {
		say_waiting(j,
			    "a program that ends on an error needs --restart job, on each machine");
		j->has_advised = true;
	}
}

/* Without our stdout it would fail again, and the time of all hosts is over at once. */
static bool is_final(const struct job *j, const struct rank *failed)
{
	bool is_late =
		j->start->hosts && j->options->timeout_s > 0 && failed->ending.code == TIMEOUT_CODE;

	return is_late || job_is_cut_off(j, failed);
}

struct rank *job_restart_failed(struct job *j, pid_t first)
{
	struct rank *failed;

	while ((failed = ranks_observe(j->ranks, first)) && !j->is_ending && !j->is_restarting &&
	       j->options->max_restarts > 0 && !is_final(j, failed)) {
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
