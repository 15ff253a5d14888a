/* The variables of a rank, in torchrun's names where it has one. */
#include "environment.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct list {
	struct setting *at;
	int n;
};

static void add(struct list *list, const char *name, const char *text)
{
	assert(list->n < SETTINGS_MAX);
	list->at[list->n++] = (struct setting){.name = name, .text = text};
}

static void add_number(struct list *list, const char *name, long value)
{
	struct setting *at = &list->at[list->n];

	add(list, name, at->number);
	snprintf(at->number, sizeof at->number, "%ld", value);
}

/* The libraries' own default is all cores of the machine, for each rank. */
static void add_threads(struct list *list, int cores)
{
	static const char *const names[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS",
					    "OPENBLAS_NUM_THREADS"};

	for (size_t i = 0; cores > 0 && i < sizeof names / sizeof *names; i++)
		if (!getenv(names[i]))
			add_number(list, names[i], cores);
}

int environment_of(struct setting settings[SETTINGS_MAX], const struct start *s, int local,
		   int restart, int cores)
{
	const struct options *o = s->options;
	struct list list = {settings, 0};

	if (restart > 0)
		add_number(&list, "TUTTI_RESTARTED",
			   restart); /* it joins the ranks that are there */
	if (o->max_restarts > 0 && o->restart != RESTART_JOB)
		add_number(&list, "TUTTI_MAX_RESTARTS", o->max_restarts); /* tutti_recover waits */
	add_number(&list, "RANK", (long)o->node_rank * o->ranks + local);
	add_number(&list, "WORLD_SIZE", (long)o->nodes * o->ranks);
	add_number(&list, "LOCAL_RANK", local);
	add_number(&list, "LOCAL_WORLD_SIZE", o->ranks);
	add_number(&list, "NODE_RANK", o->node_rank);
	add_number(&list, "GROUP_RANK", o->node_rank);
	add(&list, "MASTER_ADDR", s->meeting->host);
	add_number(&list, "MASTER_PORT", s->meeting->port);
	add_number(&list, MEETING_CHOSEN, s->meeting->is_chosen);
	/* By this the library knows which tuttirun started it. */
	add_number(&list, "TUTTIRUN_JOB", s->launcher);
	if (s->words && s->words->fd >= 0)
		add(&list, "TUTTIRUN_SOCKET", s->words->name);
	add_threads(&list, cores);
	if (o->devices[0])
		add(&list, "CUDA_VISIBLE_DEVICES", o->devices);
	if (s->meeting->secret[0])
		add(&list, "TUTTI_SECRET", s->meeting->secret);
	return list.n;
}
