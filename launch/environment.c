/* The variables of any rank (core/rank/variables.h), and tuttirun's own. */
#include "environment.h"

#include <stdio.h>

static void environment_add(struct setting *at, const char *name, const char *text)
{
	*at = (struct setting){.name = name, .text = text};
}

static void environment_add_number(struct setting *at, const char *name, long value)
{
	environment_add(at, name, at->number);
	snprintf(at->number, sizeof at->number, "%ld", value);
}

int environment_of(struct setting settings[SETTINGS_MAX], const struct start *s, int local,
		   int restart, int cores)
{
	const struct options *o = s->options;
	const struct rank_seat seat = {
		.local = local,
		.local_size = o->ranks,
		.node = o->node_rank,
		.nodes = o->nodes,
		.host = s->meeting->host,
		.port = s->meeting->port,
		.is_chosen = s->meeting->is_chosen,
		.starter = s->launcher,
		/* for the threads of each of its ranks */
		.cores = cores && o->local_ranks ? (cores + o->local_ranks - 1) / o->local_ranks
						 : cores,
	};
	int n = variables_of(settings, &seat);

	if (restart > 0) /* it joins the ranks that are there */
		environment_add_number(&settings[n++], "TUTTI_RESTARTED", restart);
	if (o->max_restarts > 0 && o->restart != RESTART_JOB) /* tutti_recover waits */
		environment_add_number(&settings[n++], "TUTTI_MAX_RESTARTS", o->max_restarts);
	if (o->local_ranks)
		environment_add_number(&settings[n++], "TUTTI_LOCAL_RANKS", o->local_ranks);
	if (s->words && s->words->fd >= 0)
		environment_add(&settings[n++], "TUTTIRUN_SOCKET", s->words->name);
	if (o->devices[0])
		environment_add(&settings[n++], "CUDA_VISIBLE_DEVICES", o->devices);
	if (s->meeting->secret[0])
		environment_add(&settings[n++], "TUTTI_SECRET", s->meeting->secret);
	return n;
}
