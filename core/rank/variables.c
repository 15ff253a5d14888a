/* The variables of a rank. */
#include "core/rank/variables.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct list {
	struct setting *at;
	int n;
};

static void variables_add(struct list *list, const char *name, const char *text)
{
	assert(list->n < VARIABLES_MAX);
	list->at[list->n++] = (struct setting){.name = name, .text = text};
}

static void variables_add_number(struct list *list, const char *name, long value)
{
	struct setting *at = &list->at[list->n];

	variables_add(list, name, at->number);
	snprintf(at->number, sizeof at->number, "%ld", value);
}

/* The libraries' own default is all cores of the machine, for each rank. */
static void variables_add_threads(struct list *list, int cores)
{
	static const char *const names[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS",
					    "OPENBLAS_NUM_THREADS"};

	for (size_t i = 0; cores > 0 && i < sizeof names / sizeof *names; i++)
		if (!getenv(names[i]))
			variables_add_number(list, names[i], cores);
}

int variables_of(struct setting settings[VARIABLES_MAX], const struct rank_seat *s)
{
	struct list list = {settings, 0};

	variables_add_number(&list, "RANK", (long)s->node * s->local_size + s->local);
	variables_add_number(&list, "WORLD_SIZE", (long)s->nodes * s->local_size);
	variables_add_number(&list, "LOCAL_RANK", s->local);
	variables_add_number(&list, "LOCAL_WORLD_SIZE", s->local_size);
	variables_add_number(&list, "NODE_RANK", s->node);
	variables_add_number(&list, "GROUP_RANK", s->node);
	variables_add(&list, "MASTER_ADDR", s->host);
	variables_add_number(&list, "MASTER_PORT", s->port);
	variables_add_number(&list, MEETING_CHOSEN, s->is_chosen);
	/* By this the library knows what started the rank. */
	variables_add_number(&list, "TUTTIRUN_JOB", s->starter);
	variables_add_threads(&list, s->cores);
	return list.n;
}
