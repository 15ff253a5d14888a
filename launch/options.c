/* tuttirun's options, and what goes together. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage_line[] =
	"usage: tuttirun -n RANKS [--nnodes N --node-rank K --master HOST:PORT] [--master-port P]\n"
	"                [--timeout S] [--max-restarts R] [--restart rank|job]\n"
	"                [--bind-to core|numa|none] [--mesh AXIS=SIZE,...] [-p] [--] PROGRAM\n"
	"                [ARGUMENTS]\n";

static const char help[] =
	"\n"
	"Runs PROGRAM as the ranks of one job and passes their output on, line by line.\n"
	"\n"
	"  -n, --ranks N       ranks on this machine; every machine of a job has as many\n"
	"      --nnodes N      machines in the job (1); run tuttirun once on each of them\n"
	"      --node-rank K   which of them this is, from 0\n"
	"      --master H:P    where rank 0 serves: a name or address of machine 0, and a port\n"
	"      --master-port P the port (29500); where it is taken, the next free one, with one "
	"machine\n"
	"      --timeout S     ends the job after S seconds, with exit code 124, and says which "
	"call\n"
	"                      of Tutti each rank is in\n"
	"      --trace-dir D   sets TUTTI_TRACE_DIR: the folder of traces of failures, and of all\n"
	"                      ranks when S seconds are over\n"
	"      --max-restarts R\n"
	"                      starts failed ranks of this machine again, R times in all (0)\n"
	"      --restart rank|job\n"
	"                      with --max-restarts: the failed rank alone, which the others take "
	"in\n"
	"                      by tutti_comm_grow; or all ranks of this machine. Default: that "
	"rank,\n"
	"                      and all where no rank calls tutti_comm_grow within 5 s\n"
	"      --bind-to core  each rank to its part of the cores; where there are more ranks "
	"than\n"
	"                      cores, or another tuttirun has bound ranks to them, to none "
	"(default)\n"
	"      --bind-to numa  each rank to the cores of one NUMA node\n"
	"      --bind-to none\n"
	"      --report-bindings\n"
	"                      says on stderr to which cores each rank is bound, or why to none\n"
	"      --mesh dp=2,tp=4\n"
	"                      prints the ranks as a grid with these axes, and sets TUTTI_MESH, "
	"the\n"
	"                      axes of a tutti_mesh_create that is passed none; a size of 0 is "
	"what\n"
	"                      the others leave\n"
	"  -p, --prefix        begins every line with the rank it came from\n"
	"  -h, --help, --version\n"
	"\n"
	"The first rank that fails ends the job: the others have 0.5 s to say why they fail, too,\n"
	"then get SIGTERM and, 2 s later, SIGKILL; tuttirun exits with that rank's code, or with\n"
	"128 + the signal that killed it; with 3 when all ended well, but what they wrote could\n"
	"not be passed on to stdout.\n"
	"With --max-restarts a failed rank is started again instead, with TUTTI_RESTARTED in its\n"
	"environment: it joins the others when they call tutti_comm_grow. Once a rank has ended\n"
	"well, or R are used up, the next failure ends the job. With --restart job all ranks are\n"
	"ended as above and started again, without TUTTI_RESTARTED. By default that is done where\n"
	"a rank that was started again waits 5 s for the others to call tutti_comm_grow, or one\n"
	"of them exits with an error first; and where none of them, or no restart, is left: as\n"
	"one restart with those before. With --restart rank only where no rank is left. Jobs of\n"
	"several machines need the same --restart on each; their default is rank.\n"
	"SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on; a second SIGINT kills.\n"
	"Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR,\n"
	"MASTER_PORT and TUTTI_SECRET in their environment; also OMP_NUM_THREADS, MKL_NUM_THREADS\n"
	"and OPENBLAS_NUM_THREADS, the number of cores of a rank, where they are not set. On one\n"
	"machine the secret is fresh for every job, unless TUTTI_SECRET or TUTTI_SECRET_FILE is\n"
	"set; for several, set one of them, the same on all.\n";

__attribute__((format(printf, 1, 2))) static int wrong(const char *format, ...)
{
	va_list args;

	fputs("tuttirun: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n%s", usage_line);
	return 2;
}

static int parse_int(const char *text, int min, int max, int *value)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < min || n > max)
		return 0;
	*value = (int)n;
	return 1;
}

static int parse_seconds(const char *text, double *value)
{
	char *end;
	double s = strtod(text, &end);

	if (end == text || *end || !isfinite(s) || s <= 0 || s > 1e8)
		return 0;
	*value = s;
	return 1;
}

/* The number of a name in a list that ends with NULL, or -1. */
static int choice(const char *text, const char *const *names)
{
	for (int i = 0; names[i]; i++)
		if (strcmp(text, names[i]) == 0)
			return i;
	return -1;
}

static int parse_restart(const char *text, enum restart *value)
{
	static const char *const names[] = {"rank", "job", NULL};
	int i = choice(text, names);

	*value = (enum restart)(RESTART_RANK + i);
	return i >= 0;
}

static int parse_bind_to(const char *text, enum bind_to *value)
{
	static const char *const names[] = {"core", "numa", "none", NULL};
	int i = choice(text, names);

	*value = (enum bind_to)(BIND_CORE + i);
	return i >= 0;
}

/* "host:port" or "[v6 address]:port". Cuts text in place. */
static int parse_master(char *text, const char **host, int *port)
{
	char *colon = strrchr(text, ':');

	if (!colon || colon == text || !parse_int(colon + 1, 1, 65535, port))
		return 0;
	*colon = '\0';
	if (text[0] == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		text++;
	}
	*host = text;
	return *text != '\0';
}

int options_have_secret(void)
{
	return getenv("TUTTI_SECRET") || getenv("TUTTI_SECRET_FILE");
}

/* Or the user's word that the job does without. */
static int may_join(void)
{
	const char *insecure = getenv("TUTTI_INSECURE");

	return options_have_secret() || (insecure && strcmp(insecure, "1") == 0);
}

static int check_mesh(struct options *o)
{
	char why[AXES_WHY_BYTES];

	if (!o->mesh ||
	    (axes_read(&o->axes, o->mesh, why) && axes_fit(&o->axes, o->ranks * o->nodes, why)))
		return -1;
	return wrong("--mesh: %s.", why);
}

/* Checks of options that need each other. */
static int check(struct options *o, int own_port, int node_given)
{
	if (o->ranks == 0)
		return wrong("-n is missing: how many ranks shall run?");
	if (!*o->program)
		return wrong("the program is missing.");
	if (o->nodes == 1 && o->node_rank > 0)
		return wrong("--node-rank %d needs --nnodes.", o->node_rank);
	if (o->node_rank >= o->nodes)
		return wrong("--node-rank %d is not below --nnodes %d.", o->node_rank, o->nodes);
	if (o->nodes > 1 && !node_given)
		return wrong("--nnodes %d needs --node-rank.", o->nodes);
	if (o->nodes > 1 && !o->master_host)
		return wrong("--nnodes %d needs --master HOST:PORT of node 0.", o->nodes);
	if (o->master_host && own_port)
		return wrong("--master names the port already; --master-port is one too many.");
	if (o->nodes > 1 && !may_join())
		return wrong("several nodes need the same secret: set TUTTI_SECRET or "
			     "TUTTI_SECRET_FILE on each of them.");
	return check_mesh(o);
}

enum {
	NNODES = 256,
	NODE_RANK,
	MASTER,
	MASTER_PORT,
	TIMEOUT,
	TRACE_DIR,
	MAX_RESTARTS,
	RESTART,
	BIND_TO,
	REPORT,
	MESH
};

/* Options that were given, where their values do not tell. */
struct given {
	int port, node;
};

/* False: the value of an option is none. */
static int take(struct options *o, struct given *given, int option, char *value)
{
	switch (option) {
	case 'n':
		return parse_int(value, 1, RANKS_MAX, &o->ranks);
	case NNODES:
		return parse_int(value, 1, 65536, &o->nodes);
	case NODE_RANK:
		return given->node = parse_int(value, 0, 65535, &o->node_rank);
	case MASTER:
		return parse_master(value, &o->master_host, &o->master_port);
	case MASTER_PORT:
		return given->port = parse_int(value, 1, 65535, &o->master_port);
	case TIMEOUT:
		return parse_seconds(value, &o->timeout_s);
	case TRACE_DIR:
		o->trace_dir = value;
		return *value != '\0';
	case MAX_RESTARTS:
		return parse_int(value, 0, 1000000, &o->max_restarts);
	case RESTART:
		return parse_restart(value, &o->restart);
	case BIND_TO:
		return parse_bind_to(value, &o->bind_to);
	case MESH:
		o->mesh = value;
		return *value != '\0';
	case REPORT:
		return o->report_bindings = 1;
	default:
		return o->prefix = 1;
	}
}

int options_parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{"ranks", 1, NULL, 'n'},
		{"nnodes", 1, NULL, NNODES},
		{"node-rank", 1, NULL, NODE_RANK},
		{"master", 1, NULL, MASTER},
		{"master-port", 1, NULL, MASTER_PORT},
		{"timeout", 1, NULL, TIMEOUT},
		{"trace-dir", 1, NULL, TRACE_DIR},
		{"max-restarts", 1, NULL, MAX_RESTARTS},
		{"restart", 1, NULL, RESTART},
		{"bind-to", 1, NULL, BIND_TO},
		{"report-bindings", 0, NULL, REPORT},
		{"mesh", 1, NULL, MESH},
		{"prefix", 0, NULL, 'p'},
		{"help", 0, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct given given = {0};
	int which = -1, c;

	*o = (struct options){.nodes = 1};
	opterr = 0;
	while ((c = getopt_long(argc, argv, "+:n:ph", longs, &which)) != -1) {
		if (c == 'h') {
			printf("%s%s", usage_line, help);
			return 0;
		}
		if (c == ':')
			return wrong("%s needs a value.", argv[optind - 1]);
		if (c == '?')
			return wrong("unknown option %s.", argv[optind - 1]);
		if (!take(o, &given, c, optarg))
			return wrong("'%s' is not a value for --%s.", optarg,
				     c == 'n' ? "ranks" : longs[which].name);
	}
	o->program = argv + optind;
	return check(o, given.port, given.node);
}
