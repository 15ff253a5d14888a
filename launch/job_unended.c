/* Ranks that a signal from outside was passed to: how long they have, and who has not ended yet. */
#include "job.h"
#include "now.h"

#include <signal.h>
#include <stdio.h>

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
static void list_alive(const struct ranks *ranks, char *list, size_t bytes)
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
	list_alive(j->ranks, list, sizeof list);
	snprintf(line, sizeof line,
		 "tuttirun: %d s after %s %d of %d %s have not ended%s; they are killed in %d s, "
		 "or by %s (Ctrl-C)\n",
		 UNENDED_S, name, j->ranks->alive, j->ranks->n, j->start->hosts ? "hosts" : "ranks",
		 list, ASKED_GRACE_MS / 1000 - UNENDED_S,
		 j->interrupts > 0 ? "another SIGINT" : "SIGINT twice");
	sink_say(&j->ranks->err, line);
}
