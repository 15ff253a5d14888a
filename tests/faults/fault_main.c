/* fault_main [--seed S] [--runs N] [--kind K] [--point P] [--way W] [--reconnect R] [--table FILE]
 *            [--trace PROGRAM] [--verbose] [--list N]
 *
 * Random jobs to which random things happen: N of them, from seed S on (by itself a new one, which
 * is printed). --list N: only says what they would be. What is asked for by name is not left to the
 * seed. Ends with 1 when a run was not as it should be, 77 when this machine could do none. */
#include "tests/faults/hosts.h"
#include "tests/faults/table.h"

#include "core/clock.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct options {
	uint64_t seed;
	long runs, list;
	struct wish wish;
	const char *table;
	struct job_options job;
};

static void usage(const char *why)
{
	fprintf(stderr,
		"%s: fault_main [--seed S] [--runs N] [--kind K] [--point P] [--way W] "
		"[--reconnect R] [--table FILE] [--trace PROGRAM] [--verbose] [--list N]\n",
		why);
	exit(2);
}

static int name_of(const char *const *names, int count, const char *name)
{
	int found = name_find(names, count, name);

	if (found < 0)
		usage(name);
	return found;
}

static struct options parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{"seed", 1, NULL, 's'},      {"runs", 1, NULL, 'n'},  {"kind", 1, NULL, 'k'},
		{"point", 1, NULL, 'p'},     {"way", 1, NULL, 'w'},   {"list", 1, NULL, 'l'},
		{"reconnect", 1, NULL, 'r'}, {"table", 1, NULL, 't'}, {"trace", 1, NULL, 'c'},
		{"verbose", 0, NULL, 'v'},   {NULL, 0, NULL, 0},
	};
	struct options o = {
		.seed = clock_now_ns() % 1000000000, .runs = 1, .wish = {-1, -1, -1, -1}};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			o.seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			o.runs = atol(optarg);
			break;
		case 'l':
			o.list = atol(optarg);
			break;
		case 'k':
			o.wish.kind = name_of(kind_names, KINDS, optarg);
			break;
		case 'p':
			o.wish.point = name_of(point_names, POINTS, optarg);
			break;
		case 'w':
			o.wish.way = name_of(way_names, WAYS, optarg);
			break;
		case 'r':
			o.wish.reconnect = atoi(optarg);
			break;
		case 't':
			o.table = optarg;
			break;
		case 'c':
			o.job.tutti_trace = optarg;
			break;
		case 'v':
			o.job.is_verbose = true;
			break;
		default:
			usage("an option");
		}
	}
	if (optind != argc || !scenario_is_possible(&o.wish))
		usage("that cannot be");
	return o;
}

static void list(const struct options *o)
{
	char text[SCENARIO_TEXT];
	struct scenario s;

	for (long i = 0; i < o->list; i++) {
		scenario_draw(&s, o->seed + (uint64_t)i, &o->wish);
		printf("%llu: %s\n", (unsigned long long)s.seed, scenario_words(&s, text));
	}
}

/* How to have this run again. */
static void show_command(const struct options *o, uint64_t seed)
{
	printf("again: fault_main --seed %llu", (unsigned long long)seed);
	if (o->wish.kind >= 0)
		printf(" --kind %s", kind_names[o->wish.kind]);
	if (o->wish.point >= 0)
		printf(" --point %s", point_names[o->wish.point]);
	if (o->wish.way >= 0)
		printf(" --way %s", way_names[o->wish.way]);
	if (o->wish.reconnect >= 0)
		printf(" --reconnect %d", o->wish.reconnect);
	printf("\n");
}

static void run_one(const struct options *o, uint64_t seed, struct table *table)
{
	static const char *const outcomes[] = {"well", "FAILED", "skipped"};
	char text[SCENARIO_TEXT];
	struct scenario s;
	struct result r;

	scenario_draw(&s, seed, &o->wish);
	printf("%llu: %s\n", (unsigned long long)seed, scenario_words(&s, text));
	fflush(stdout);
	job_run(&s, &o->job, &r);
	printf("%llu: %s%s%s, %.1f s\n", (unsigned long long)seed, outcomes[r.outcome],
	       r.outcome == JOB_SKIPPED ? ": "
	       : r.has_happened         ? ""
					: ", too late",
	       r.outcome == JOB_SKIPPED ? r.why : "", r.lasted_s);
	if (r.outcome == JOB_FAILED)
		show_command(o, seed);
	fflush(stdout);
	table_add(table, &s, &r);
}

static void write_summary(const struct cell *sum, const struct options *o, FILE *file)
{
	fprintf(file, "%d runs from seed %llu, %d failed, %d skipped; in %d it came too late\n",
		sum->runs, (unsigned long long)o->seed, sum->failed, sum->skipped, sum->late);
}

/* After each run, so that what is ended halfway leaves what it has. */
static bool write_table(const struct table *table, const struct options *o, FILE *file)
{
	struct cell sum = table_sum(table);

	rewind(file);
	write_summary(&sum, o, file);
	fprintf(file, "\n");
	table_write(table, file);
	return fflush(file) == 0 && ftruncate(fileno(file), ftell(file)) == 0;
}

int main(int argc, char **argv)
{
	struct options o = parse(argc, argv);
	static struct table table;
	FILE *file = NULL;

#if defined(__SANITIZE_THREAD__)
	printf("ranks are processes, which the thread sanitizer sees nothing of\n");
	return 77;
#endif
	if (o.list) {
		list(&o);
		return 0;
	}
	/* Now, since /tmp is another one later. */
	if (o.table && !(file = fopen(o.table, "we"))) {
		perror(o.table);
		return 1;
	}
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* The GIDs of RDMA ports are addresses of this machine's network. */
	o.job.is_private = hosts_leave_world(o.wish.way == WAY_VERBS);
	bool is_written = true;
	for (long i = 0; i < o.runs; i++) {
		run_one(&o, o.seed + (uint64_t)i, &table);
		is_written = !file || write_table(&table, &o, file);
	}
	struct cell sum = table_sum(&table);
	write_summary(&sum, &o, stdout);
	table_free(&table);
	if (file)
		fclose(file);
	if (!is_written)
		perror(o.table);
	return sum.failed || !is_written ? 1 : sum.runs == 0 ? 77 : 0;
}
