/* A program that goes on in place calls tutti_comm_grow in the ranks that are left; one that knows
 * no restarts ends them with an error. By what they do the launcher knows which program it runs. */
#include "restart.h"

#include <signal.h>

int restart_waiting(const struct ranks *ranks)
{
	int count = 0;

	for (int i = 0; i < ranks->n; i++)
		count += ranks->rank[i].is_new;
	return count;
}

/* Some rank may still call tutti_comm_grow. */
static bool any_can_grow(const struct ranks *ranks)
{
	for (int i = 0; i < ranks->n; i++)
		if (!ranks->rank[i].has_ended && !ranks->rank[i].is_new && !ranks->rank[i].waits)
			return true;
	return false;
}

/* It was not killed: it gave up. */
static bool gave_up(const struct rank *failed)
{
	return !failed->ending.signal || failed->ending.signal == SIGABRT;
}

/* A single rank does without others. */
static bool may_be_all(const struct ranks *ranks, const struct options *o)
{
	return o->nodes == 1 && (o->restart != RESTART_RANK || ranks->n > 1);
}

bool restart_none_left(const struct ranks *ranks, const struct options *o)
{
	return may_be_all(ranks, o) && !any_can_grow(ranks);
}

bool restart_falls_back(const struct ranks *ranks, const struct options *o)
{
	return o->restart == RESTART_BY_NEED && o->nodes == 1 && restart_waiting(ranks) > 0;
}

enum answer restart_answer(const struct ranks *ranks, const struct rank *failed,
			   const struct options *o, int used)
{
	/* Ranks that have ended well cannot be joined any more. */
	if (o->restart != RESTART_JOB && ranks_any_done(ranks))
		return ANSWER_END;
	if (restart_falls_back(ranks, o) && !failed->is_new &&
	    (gave_up(failed) || used >= o->max_restarts || !any_can_grow(ranks)))
		return ANSWER_ALL_TOO;
	if (used >= o->max_restarts)
		return ANSWER_END;
	if (o->restart == RESTART_JOB || restart_none_left(ranks, o))
		return ANSWER_ALL;
	return ANSWER_ALONE;
}
