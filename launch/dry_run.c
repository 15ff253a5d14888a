/* The variables are those that the ranks would get; what all of them get is printed once. */
#include "dry_run.h"

#include "environment.h"
#include "quote.h"

#include <stdio.h>
#include <string.h>

static void dry_run_print_words(char **words)
{
	for (; *words; words++)
		printf(" %s", *words);
	putchar('\n');
}

static void dry_run_print_command(char **words)
{
	fputs("command:", stdout);
	for (; *words; words++) {
		putchar(' ');
		quote_write(stdout, *words);
	}
	putchar('\n');
}

/* tuttirun's own environment has these, and so have the ranks. */
static void dry_run_print_inherited(const struct options *o)
{
	char mesh[AXES_TEXT_BYTES];

	if (o->trace_dir) {
		fputs(" TUTTI_TRACE_DIR=", stdout);
		quote_write(stdout, o->trace_dir);
	}
	if (o->mesh) {
		axes_write(mesh, &o->axes);
		printf(" TUTTI_MESH=%s", mesh);
	}
}

/* Of one rank, not of all. */
static bool dry_run_is_own(const char *name)
{
	return strcmp(name, "RANK") == 0 || strcmp(name, "LOCAL_RANK") == 0 ||
	       strcmp(name, "NODE_RANK") == 0 || strcmp(name, "GROUP_RANK") == 0 ||
	       strstr(name, "_THREADS");
}

/* own: those of this rank alone; else those of all. */
static void dry_run_print_settings(const struct start *s, int local, bool own)
{
	struct setting settings[SETTINGS_MAX];
	int cores = s->bindings ? bindings_cores(s->bindings, local, s->options) : 0;
	int n = environment_of(settings, s, local, 0, cores);

	for (int i = 0; i < n; i++) {
		const char *name = settings[i].name;

		if (dry_run_is_own(name) == own && strncmp(name, "TUTTIRUN_", 9) != 0)
			printf(" %s=%s", name,
			       strcmp(name, "TUTTI_SECRET") == 0 ? "(random)" : settings[i].text);
	}
	if (!own)
		dry_run_print_inherited(s->options);
	putchar('\n');
}

static void dry_run_print_node(const struct start *s, const char *where, char **command)
{
	printf("node %d%s%s:", s->options->node_rank, *where ? ", " : "", where);
	if (command)
		dry_run_print_words(command);
	else
		putchar('\n');
	for (int i = 0; i < s->options->ranks; i++) {
		printf("  rank %d:", s->options->node_rank * s->options->ranks + i);
		dry_run_print_settings(s, i, true);
	}
}

int dry_run(const struct start *s, struct hosts *hosts)
{
	struct options o = *s->options;
	struct start at = *s;

	at.options = &o;
	if (options_restart_hosts(&o))
		o.max_restarts = 0; /* of a machine by itself */
	printf("%d rank%s, %d on each of %d node%s\n", o.nodes * o.ranks,
	       o.nodes * o.ranks > 1 ? "s" : "", o.ranks, o.nodes, o.nodes > 1 ? "s" : "");
	dry_run_print_command(o.program);
	printf("all ranks:");
	dry_run_print_settings(&at, 0, false);
	if (!hosts)
		dry_run_print_node(&at, "", NULL);
	for (int i = 0; hosts && i < hosts->n; i++) {
		o.node_rank = i;
		dry_run_print_node(&at, hosts->name[i], hosts_command(hosts, i));
	}
	if (fflush(stdout) == 0)
		return 0;
	perror("tuttirun: stdout cannot be written");
	return 3;
}
