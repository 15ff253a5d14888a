/* The lesson comes first: a line for each column, then the table, a line for each rank. The numbers
 * are those that the ranks would get from their environment (environment.c), and with --local-ranks
 * those of the communicator that the processes' threads make. */
#include "explain.h"

#include "binding.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CELL_BYTES 300

struct table {
	const struct options *options;
	const struct bindings *bindings; /* of this node's processes, or NULL              */
	const struct hosts *hosts;       /* or NULL                                        */
	char own_name[256];              /* of this machine                                */
};

/* Of one rank: its node, its process there, and its thread in that. */
struct seat {
	int node, local, thread;
};

static int explain_threads_of(const struct table *t)
{
	return t->options->local_ranks ? t->options->local_ranks : 1;
}

static int explain_number(char *cell, int value)
{
	return snprintf(cell, CELL_BYTES, "%d", value);
}

static int explain_process_of(const struct table *t, const struct seat *s)
{
	return s->node * t->options->ranks + s->local;
}

static int explain_rank_cell(const struct table *t, const struct seat *s, char *cell)
{
	return explain_number(cell, explain_process_of(t, s) * explain_threads_of(t) + s->thread);
}

static int explain_local_rank_cell(const struct table *t, const struct seat *s, char *cell)
{
	return explain_number(cell, s->local * explain_threads_of(t) + s->thread);
}

static int explain_node_cell(const struct table *t, const struct seat *s, char *cell)
{
	(void)t;
	return explain_number(cell, s->node);
}

static int explain_process_cell(const struct table *t, const struct seat *s, char *cell)
{
	return explain_number(cell, explain_process_of(t, s));
}

static int explain_thread_cell(const struct table *t, const struct seat *s, char *cell)
{
	(void)t;
	return explain_number(cell, s->thread);
}

static int explain_world_cell(const struct table *t, const struct seat *s, char *cell)
{
	(void)s;
	return explain_number(cell, options_size(t->options));
}

static int explain_local_world_cell(const struct table *t, const struct seat *s, char *cell)
{
	(void)s;
	return explain_number(cell, t->options->ranks * explain_threads_of(t));
}

/* With --nnodes each machine has a tuttirun of its own, and this one knows its own name only. */
static int explain_host_cell(const struct table *t, const struct seat *s, char *cell)
{
	bool is_here = !t->hosts && s->node == t->options->node_rank;

	return snprintf(cell, CELL_BYTES, "%s",
			t->hosts  ? t->hosts->name[s->node]
			: is_here ? t->own_name
				  : "?");
}

static int explain_cpus_cell(const struct table *t, const struct seat *s, char *cell)
{
	bool is_known = !t->hosts && s->node == t->options->node_rank;

	if (is_known)
		bindings_cpus(t->bindings, s->local, cell, CELL_BYTES);
	else
		snprintf(cell, CELL_BYTES, "?");
	return (int)strlen(cell);
}

/* several: what it means where a process makes several ranks; NULL: the same. */
static const struct column {
	const char *name, *meaning, *several;
	int (*cell)(const struct table *t, const struct seat *s, char *cell);
	bool is_of_several;
} columns[] = {
	{"rank", "which of all ranks it is: RANK, tutti_rank(). Rank 0's node is node 0",
	 "which of all ranks it is: tutti_rank(), process * T + thread", explain_rank_cell, false},
	{"local rank",
	 "which of its node's ranks: LOCAL_RANK, tutti_local_rank(). It chooses the GPU",
	 "which of its node's ranks: tutti_local_rank()", explain_local_rank_cell, false},
	{"node", "which node it is on: NODE_RANK, tutti_node_rank()", NULL, explain_node_cell,
	 false},
	{"process", "which of all processes it is in: RANK, of WORLD_SIZE", NULL,
	 explain_process_cell, true},
	{"thread", "which of its process's: comms[thread] of tutti_init_all()", NULL,
	 explain_thread_cell, true},
	{"world size", "how many ranks there are: WORLD_SIZE, tutti_size()",
	 "how many ranks there are: tutti_size()", explain_world_cell, false},
	{"local world size", "how many on its node: LOCAL_WORLD_SIZE, tutti_local_size()",
	 "how many on its node: tutti_local_size()", explain_local_world_cell, false},
	{"host", "the machine that is the node; ?: its own tuttirun knows it", NULL,
	 explain_host_cell, false},
	{"CPUs", "that its process may use; any: it is bound to none; ?: its node decides", NULL,
	 explain_cpus_cell, false},
};
#define COLUMNS ((int)(sizeof columns / sizeof columns[0]))

static bool explain_is_shown(const struct table *t, const struct column *c)
{
	return !c->is_of_several || t->options->local_ranks;
}

static void explain_print_meanings(const struct table *t)
{
	for (int i = 0; i < COLUMNS; i++) {
		const struct column *c = &columns[i];
		bool is_several = t->options->local_ranks && c->several;

		if (explain_is_shown(t, c))
			printf("  %-16s  %s\n", c->name, is_several ? c->several : c->meaning);
	}
}

static void explain_print_head(const struct table *t, const int *width)
{
	for (int i = 0; i < COLUMNS; i++)
		if (explain_is_shown(t, &columns[i]))
			printf("  %*s", width[i], columns[i].name);
	putchar('\n');
}

static void explain_print_row(const struct table *t, const struct seat *s, const int *width)
{
	char cell[CELL_BYTES];

	for (int i = 0; i < COLUMNS; i++) {
		if (!explain_is_shown(t, &columns[i]))
			continue;
		columns[i].cell(t, s, cell);
		printf("  %*s", width[i], cell);
	}
	putchar('\n');
}

static void explain_widen(const struct table *t, const struct seat *s, int *width)
{
	char cell[CELL_BYTES];

	for (int i = 0; i < COLUMNS; i++) {
		int n = columns[i].cell(t, s, cell);
		width[i] = n > width[i] ? n : width[i];
	}
}

static void explain_print_table(const struct table *t)
{
	const struct options *o = t->options;
	int width[COLUMNS];
	struct seat s;

	for (int i = 0; i < COLUMNS; i++)
		width[i] = (int)strlen(columns[i].name);
	for (s = (struct seat){0}; s.node < o->nodes; s.node++)
		for (s.local = 0; s.local < o->ranks; s.local++)
			for (s.thread = 0; s.thread < explain_threads_of(t); s.thread++)
				explain_widen(t, &s, width);
	explain_print_head(t, width);
	for (s = (struct seat){0}; s.node < o->nodes; s.node++)
		for (s.local = 0; s.local < o->ranks; s.local++)
			for (s.thread = 0; s.thread < explain_threads_of(t); s.thread++)
				explain_print_row(t, &s, width);
}

static void explain_print_count(const struct options *o, int threads)
{
	int size = options_size(o);

	printf("%d rank%s: %d node%s", size, size == 1 ? "" : "s", o->nodes,
	       o->nodes == 1 ? "" : "s");
	printf(" of %d process%s each", o->ranks, o->ranks == 1 ? "" : "es");
	if (o->local_ranks)
		printf(", with T = %d rank%s in each", threads, threads == 1 ? "" : "s");
	printf(". Nothing is started.\n\n");
}

int launch_explain(const struct start *start, const struct hosts *hosts)
{
	struct table t = {.options = start->options, .bindings = start->bindings, .hosts = hosts};

	if (gethostname(t.own_name, sizeof t.own_name - 1) != 0)
		snprintf(t.own_name, sizeof t.own_name, "this machine");
	explain_print_count(t.options, explain_threads_of(&t));
	explain_print_meanings(&t);
	putchar('\n');
	explain_print_table(&t);
	if (fflush(stdout) == 0)
		return 0;
	perror("tuttirun: stdout cannot be written");
	return 3;
}
