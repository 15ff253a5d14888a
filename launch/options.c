/* tuttirun's options: their values, --help, which go together, and how they are read. */
#include "launch/options.h"

#include "core/words/device_list.h"
#include "core/words/nearest.h"
#include "core/words/netaddr.h"
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts into values ---- */

int value_int(const char *text, int min, int max, int *value)
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

static int value_seconds(const char *text, double *value)
{
	char *end;
	double s = strtod(text, &end);

	if (end == text || *end || !isfinite(s) || s <= 0 || s > 1e8)
		return 0;
	*value = s;
	return 1;
}

/* The number of a name in a list that ends with NULL, or -1. */
static int option_values_choice(const char *text, const char *const *names)
{
	for (int i = 0; names[i]; i++)
		if (strcmp(text, names[i]) == 0)
			return i;
	return -1;
}

static int value_restart(const char *text, enum restart *value)
{
	static const char *const names[] = {"rank", "job", NULL};
	int i = option_values_choice(text, names);

	*value = (enum restart)(RESTART_RANK + i);
	return i >= 0;
}

static int value_bind_to(const char *text, enum bind_to *value)
{
	static const char *const names[] = {"core", "numa", "none", NULL};
	int i = option_values_choice(text, names);

	*value = (enum bind_to)(BIND_CORE + i);
	return i >= 0;
}

static int value_master(const char *text, char *host, size_t bytes, int *port)
{
	return !netaddr_read(text, host, bytes, port);
}

static int value_host(const char *text, char *host, size_t bytes)
{
	return !netaddr_read_host(text, host, bytes);
}

/* As core/words/netaddr.h reads them. */
static int value_port(const char *text, int *port)
{
	return netaddr_read_port(text, port);
}

/* A number of ranks; 0 for auto, gpu and cpu, with *automatic the word. */
static int value_ranks(const char *text, int *ranks, const char **automatic)
{
	static const char *const names[] = {"auto", "gpu", "cpu", NULL};
	int i = option_values_choice(text, names);

	*automatic = i >= 0 ? names[i] : NULL;
	*ranks = 0;
	return i >= 0 || value_int(text, 1, RANKS_MAX, ranks);
}

/* Whether a word has digits only: it belongs to the option before it. */
static int value_is_number(const char *word)
{
	return *word && word[strspn(word, "0123456789")] == '\0';
}

/* Adds a device, or several with commas between them, to the list. */
static int value_devices(const char *text, char *list, size_t bytes)
{
	return device_list_add(list, bytes, text);
}

/* ---- the text of --help ---- */

static const char help_usage[] =
	"usage: tuttirun -n RANKS [options] [--] PROGRAM [ARGUMENTS]\n"
	"       tuttirun -n RANKS --hosts A,B [options] [--] PROGRAM [ARGUMENTS]\n"
	"       tuttirun -n RANKS --nnodes N --node-rank K --master HOST:PORT [options] [--] "
	"PROGRAM\n"
	"tuttirun --help explains the options.\n";

/* clang-format off */
static const char help_text[] =
	"\n"
	"Runs PROGRAM as the ranks of one job and passes their output on, line by line.\n"
	"\n"
	"  -n, --ranks N       ranks on this machine; every machine of a job has as many. auto:\n"
	"                      one for each of its GPUs, or else of its CPUs; gpu, cpu: of those\n"
	"      --nproc-per-node N, -np N\n"
	"                      the same\n"
	"  -g, --gpus, --devices 0,1\n"
	"                      the GPUs that the ranks may use: sets CUDA_VISIBLE_DEVICES. A rank\n"
	"                      takes the one with the number LOCAL_RANK of them, in turn. -n is as\n"
	"                      many by itself. -g 0 1 is the same as -g 0,1\n"
	"      --hosts A,B     runs -n ranks on each of these machines, by ssh, which must ask\n"
	"                      for no password; this one is started without\n"
	"      --hostfile F    a file with a machine a line; 'slots=N' behind it is -n\n"
	"      --agent         what that starts there; for itself only\n"
	"      --ssh COMMAND   what runs a command on a machine (ssh -o BatchMode=yes\n"
	"                      -o ConnectTimeout=60 -o ServerAliveInterval=15)\n"
	"      --nnodes N      machines in the job (1); run tuttirun once on each of them\n"
	"      --node-rank K   which of them this is, from 0\n"
	"      --master H:P    where rank 0 serves: a name or address of machine 0, and a port\n"
	"      --master-addr H, -p, --port, --master-port P\n"
	"                      the same in two. The default port is 29500 with several\n"
	"                      machines; with one it is a free port, also if P is taken\n"
	"      --timeout S     ends the job after S seconds, with exit code 124, and says which call\n"
	"                      of Tutti each rank is in\n"
	"      --trace-dir D   sets TUTTI_TRACE_DIR: the folder of traces of failures, and of all\n"
	"                      ranks when S seconds are over\n"
	"      --log-dir D     writes what rank R prints to D/rank_R.log as well, on its machine\n"
	"      --max-restarts R\n"
	"                      starts failed ranks of this machine again, R times in all (0);\n"
	"                      with --hosts all ranks of all machines\n"
	"      --restart rank|job\n"
	"                      with --max-restarts: the failed rank alone, which the others take in\n"
	"                      by tutti_comm_grow; or all ranks of this machine. Default: that rank,\n"
	"                      and all where no rank calls tutti_comm_grow within 5 s; with\n"
	"                      --hosts the ranks of all machines\n"
	"      --bind-to core  each rank to its part of the cores; where there are more ranks than\n"
	"                      cores, or another tuttirun has bound ranks to them, to none (default)\n"
	"      --bind-to numa  each rank to the cores of one NUMA node\n"
	"      --bind-to none\n"
	"      --report-bindings\n"
	"                      says on stderr to which cores each rank is bound, or why to none\n"
	"      --mesh dp=2,tp=4\n"
	"                      prints the ranks as a grid with these axes, and sets TUTTI_MESH, the\n"
	"                      axes of a tutti_mesh_create that is passed none; a size of 0 is what\n"
	"                      the others leave\n"
	"      --local-ranks T each process makes T ranks of the job, each with a thread, by\n"
	"                      tutti_init_all and config.local_ranks: sets TUTTI_LOCAL_RANKS, and\n"
	"                      --mesh and --explain count the ranks of all processes\n"
	"  -p, --prefix        begins every line with the rank it came from; -p 29500 is the port\n"
	"      --progress      a line below the output, on a terminal: how many ranks run and have\n"
	"                      joined, and for how long; with --hosts how many hosts run\n"
	"      --dry-run       prints what would be started, with the environment, and starts nothing\n"
	"      --explain       prints a table of the ranks that would be started, with what each of\n"
	"                      their numbers means, and starts nothing; it needs no PROGRAM\n"
	"  -h, --help, --version\n"
	"\n"
	"Names of options may have _ for -, and be short where no other begins so.\n"
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
	"one restart with those before. With --restart rank only where no rank is left. With\n"
	"--hosts --restart job, the default there, means all ranks of all machines. Jobs with\n"
	"--nnodes need the same --restart on each machine; their default is rank.\n"
	"SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on; a second SIGINT kills.\n"
	"Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR,\n"
	"MASTER_PORT and TUTTI_SECRET in their environment; also OMP_NUM_THREADS, MKL_NUM_THREADS\n"
	"and OPENBLAS_NUM_THREADS, the number of cores of a rank, where they are not set. With one\n"
	"machine, and with --hosts, the secret is fresh for every job, unless TUTTI_SECRET or\n"
	"TUTTI_SECRET_FILE is set; with --nnodes set one of them, the same on all.\n"
	"--hosts runs this tuttirun on each machine, from the same path and in the same folder. It\n"
	"sends them the secret and TUTTI_, OMP_, MKL_, OPENBLAS_, CUDA_, NCCL_, UCX_ and PYTHON\n"
	"variables, PATH and LD_LIBRARY_PATH over ssh's stdin, and what a file that is stdin has,\n"
	"for rank 0. Where it or the connection ends, so do the ranks there.\n";
/* clang-format on */

int help_wrong(const char *format, ...)
{
	va_list args;

	fputs("tuttirun: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n%s", help_usage);
	return 2;
}

/* ---- which options go together ---- */

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

bool options_start_hosts(const struct options *o)
{
	return !o->is_agent && (o->hosts || o->hostfile);
}

/* Ranks that take each other in by tutti_comm_grow are each machine's own. */
bool options_restart_hosts(const struct options *o)
{
	return options_start_hosts(o) && o->max_restarts > 0 && o->restart != RESTART_RANK;
}

static int check_hosts(const struct options *o)
{
	if (o->hosts && o->hostfile)
		return help_wrong("--hosts and --hostfile are both given; leave one away.");
	if (o->ssh && !options_start_hosts(o) && !o->is_agent)
		return help_wrong("--ssh needs --hosts or --hostfile.");
	return -1;
}

static int options_check_nodes(const struct options *o)
{
	if (o->nodes == 1 && o->node_rank > 0)
		return help_wrong("--node-rank %d needs --nnodes.", o->node_rank);
	if (o->node_rank >= o->nodes)
		return help_wrong("--node-rank %d is not below --nnodes %d.", o->node_rank,
				  o->nodes);
	if (o->nodes > 1 && !o->master_host)
		return help_wrong("--nnodes %d needs --master HOST:PORT of node 0.", o->nodes);
	if (o->nodes > 1 && !options_start_hosts(o) && !o->explain && !may_join())
		return help_wrong("several nodes need the same secret: set TUTTI_SECRET or "
				  "TUTTI_SECRET_FILE on each of them.");
	return -1;
}

/* Where -n is no number. Each machine has as many GPUs as this one, as far as this one knows. */
static int options_check_count_ranks(struct options *o)
{
	int gpus = o->devices[0] ? device_list_count(o->devices) : 0;

	if (o->ranks > 0)
		return -1;
	if (o->automatic && gpus == 0)
		gpus = automatic_gpus();
	if (o->automatic && strcmp(o->automatic, "gpu") == 0 && gpus == 0)
		return help_wrong("-n gpu: there is no GPU here; name a number of ranks.");
	o->ranks = gpus;
	if (o->automatic && (gpus == 0 || strcmp(o->automatic, "cpu") == 0))
		o->ranks = automatic_cpus();
	if (o->ranks > RANKS_MAX)
		o->ranks = RANKS_MAX;
	/* A file of hosts may say it; that is read later. */
	if (o->ranks == 0 && !(options_start_hosts(o) && o->hostfile && o->nodes == 1))
		return help_wrong("-n is missing: how many ranks shall run?");
	return -1;
}

int options_size(const struct options *o)
{
	return o->nodes * o->ranks * (o->local_ranks ? o->local_ranks : 1);
}

static int options_check_size(const struct options *o)
{
	int64_t processes = (int64_t)o->nodes * o->ranks;

	if (processes <= WORLD_MAX &&
	    processes * (o->local_ranks ? o->local_ranks : 1) <= WORLD_MAX)
		return -1;
	return help_wrong("-n %d, --nnodes %d and --local-ranks %d are too many: a job has %d "
			  "ranks at most.",
			  o->ranks, o->nodes, o->local_ranks ? o->local_ranks : 1, WORLD_MAX);
}

static int check_mesh(struct options *o)
{
	char why[AXES_WHY_BYTES];

	if (!o->mesh || (options_start_hosts(o) && o->nodes == 1) ||
	    (axes_read(&o->axes, o->mesh, why) && axes_fit(&o->axes, options_size(o), why)))
		return -1;
	return help_wrong("--mesh: %s.", why);
}

int options_check(struct options *o)
{
	int code = options_check_count_ranks(o);

	if (code < 0 && !*o->program && !o->explain)
		code = help_wrong("the program is missing.");
	if (code < 0)
		code = check_hosts(o);
	if (code < 0)
		code = options_check_nodes(o);
	if (code < 0)
		code = options_check_size(o);
	return code < 0 ? check_mesh(o) : code;
}

enum {
	NNODES = 256,
	NODE_RANK,
	MASTER,
	MASTER_ADDR,
	MASTER_PORT,
	HOSTS,
	HOSTFILE,
	SSH,
	AGENT,
	TIMEOUT,
	TRACE_DIR,
	LOG_DIR,
	MAX_RESTARTS,
	RESTART,
	BIND_TO,
	REPORT,
	MESH,
	PREFIX,
	PROGRESS,
	DRY_RUN,
	LOCAL_RANKS,
	EXPLAIN
};

static const struct option longs[] = {
	{"ranks", 1, NULL, 'n'},
	{"nproc-per-node", 1, NULL, 'n'},
	{"gpus", 1, NULL, 'g'},
	{"devices", 1, NULL, 'g'},
	{"hosts", 1, NULL, HOSTS},
	{"hostfile", 1, NULL, HOSTFILE},
	{"ssh", 1, NULL, SSH},
	{"agent", 0, NULL, AGENT},
	{"nnodes", 1, NULL, NNODES},
	{"node-rank", 1, NULL, NODE_RANK},
	{"master", 1, NULL, MASTER},
	{"master-addr", 1, NULL, MASTER_ADDR},
	{"master-port", 1, NULL, MASTER_PORT},
	{"port", 1, NULL, MASTER_PORT},
	{"timeout", 1, NULL, TIMEOUT},
	{"trace-dir", 1, NULL, TRACE_DIR},
	{"log-dir", 1, NULL, LOG_DIR},
	{"max-restarts", 1, NULL, MAX_RESTARTS},
	{"restart", 1, NULL, RESTART},
	{"bind-to", 1, NULL, BIND_TO},
	{"report-bindings", 0, NULL, REPORT},
	{"mesh", 1, NULL, MESH},
	{"prefix", 0, NULL, PREFIX},
	{"progress", 0, NULL, PROGRESS},
	{"dry-run", 0, NULL, DRY_RUN},
	{"local-ranks", 1, NULL, LOCAL_RANKS},
	{"explain", 0, NULL, EXPLAIN},
	{"help", 0, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* ---- options, one after the other ---- */

/* Options that were given, where their values do not tell. */
struct given {
	int port, master, node, nodes, restarts;
};

static int options_take_place(struct options *o, struct given *given, int option, char *value)
{
	switch (option) {
	case NNODES:
		return given->nodes = value_int(value, 1, 65536, &o->nodes);
	case NODE_RANK:
		return given->node = value_int(value, 0, 65535, &o->node_rank);
	case MASTER:
		o->master_host = o->master_text;
		return given->master = value_master(value, o->master_text, sizeof o->master_text,
						    &o->master_port);
	case MASTER_ADDR:
		o->master_host = o->master_text;
		return value_host(value, o->master_text, sizeof o->master_text);
	case MASTER_PORT:
		return given->port = value_port(value, &o->master_port);
	case HOSTS:
		o->hosts = value;
		return *value != '\0';
	case HOSTFILE:
		o->hostfile = value;
		return *value != '\0';
	default:
		o->ssh = value;
		return value[strspn(value, " ")] != '\0';
	}
}

static int take_switch(struct options *o, int option)
{
	switch (option) {
	case AGENT:
		return o->is_agent = true;
	case REPORT:
		return o->report_bindings = 1;
	case PROGRESS:
		return o->progress = 1;
	case DRY_RUN:
		return o->dry_run = 1;
	case EXPLAIN:
		return o->dry_run = o->explain = 1;
	default:
		return o->prefix = 1;
	}
}

/* False: the value of an option is none. */
static int options_take(struct options *o, struct given *given, int option, char *value)
{
	switch (option) {
	case 'n':
		return value_ranks(value, &o->ranks, &o->automatic);
	case 'g':
		return value_devices(value, o->devices, sizeof o->devices);
	case TIMEOUT:
		return value_seconds(value, &o->timeout_s);
	case TRACE_DIR:
		o->trace_dir = value;
		return *value != '\0';
	case LOG_DIR:
		o->log_dir = value;
		return *value != '\0';
	case MAX_RESTARTS:
		return given->restarts = value_int(value, 0, 1000000, &o->max_restarts);
	case RESTART:
		return value_restart(value, &o->restart);
	case BIND_TO:
		return value_bind_to(value, &o->bind_to);
	case LOCAL_RANKS:
		return value_int(value, 1, 4096, &o->local_ranks);
	case MESH:
		o->mesh = value;
		return *value != '\0';
	default:
		return value ? options_take_place(o, given, option, value) : take_switch(o, option);
	}
}

static int check_given(struct options *o, const struct given *given)
{
	if (given->master && given->port && !o->is_agent)
		return help_wrong("--master names the port already; the port is one too many.");
	if (options_start_hosts(o) && (given->nodes || given->node))
		return help_wrong("--hosts starts every machine: leave --nnodes and --node-rank "
				  "away.");
	if (o->nodes > 1 && !given->node)
		return help_wrong("--nnodes %d needs --node-rank.", o->nodes);
	if (o->restart != RESTART_BY_NEED && !given->restarts)
		return help_wrong("--restart needs --max-restarts, the number of times.");
	return options_check(o);
}

static const char *options_wanted(int option)
{
	switch (option) {
	case 'n':
		return "a number from 1 to 4096, auto, gpu or cpu";
	case 'g':
		return "GPUs, each of them once, such as 0,1";
	case LOCAL_RANKS:
		return "a number from 1 to 4096";
	case NNODES:
		return "a number of machines";
	case NODE_RANK:
		return "the number of this machine, from 0";
	case MASTER:
		return "HOST:PORT; an IPv6 address has brackets, as in [fd98::1]:29500, and a "
		       "link-local one a scope, as in [fe80::1%eth0]:29500";
	case MASTER_ADDR:
		return "a host, without a port; a link-local IPv6 address has a scope, as in "
		       "fe80::1%eth0";
	case MASTER_PORT:
		return "a port from 1 to 65535";
	case TIMEOUT:
		return "seconds, more than 0";
	case MAX_RESTARTS:
		return "how many there may be";
	case RESTART:
		return "rank or job";
	case BIND_TO:
		return "core, numa or none";
	default:
		return "one that is not empty";
	}
}

/* torchrun's spelling, _ in the name of an option; and mpirun's -np. */
static void options_respell(char **at)
{
	static char np[] = "--np";
	char *word = *at;

	if (word && strcmp(word, "-np") == 0)
		*at = np;
	if (!word || strncmp(word, "--", 2) != 0)
		return;
	for (; *word && *word != '='; word++)
		if (*word == '_')
			*word = '-';
}

/* A number behind an option that has taken none: "-g 0 1", and "-p 29500". */
static char *options_next_number(int argc, char **argv)
{
	if (optind < argc && value_is_number(argv[optind]))
		return argv[optind++];
	return NULL;
}

/* The word "-p29500". To getopt it would be several options. */
static bool is_port(const char *word)
{
	return word && strncmp(word, "-p", 2) == 0 && value_is_number(word + 2);
}

static int next_option(int argc, char **argv, int at, int *which)
{
	if (!is_port(argv[at]))
		return getopt_long(argc, argv, "+:n:g:ph", longs, which);
	optarg = argv[at] + 2;
	optind = at + 1;
	return MASTER_PORT;
}

/* The options whose names begin so, as ", --hosts, --hostfile". */
static void options_list_names(char *list, size_t bytes, const char *begin, size_t length)
{
	size_t used = 0;

	*list = '\0';
	for (const struct option *o = longs; o->name && used < bytes; o++)
		if (strncmp(o->name, begin, length) == 0)
			used += (size_t)snprintf(list + used, bytes - used, "%s--%s",
						 used ? ", " : "", o->name);
}

/* Says why getopt_long knows no such option. word: the one it is in. */
static int say_unknown(const char *word)
{
	int length = (int)strcspn(word, "=");
	char names[400];

	if (strncmp(word, "--", 2) != 0)
		return help_wrong("unknown option -%c.", optopt);
	if (optopt)
		return help_wrong("%.*s takes no value.", length, word);
	options_list_names(names, sizeof names, word + 2, (size_t)length - 2);
	if (*names)
		return help_wrong("%.*s is short for several options: %s.", length, word, names);
	struct nearest nearest = nearest_to(word + 2, (size_t)length - 2);
	for (const struct option *o = longs; o->name; o++)
		nearest_try(&nearest, o->name);
	if (nearest.name)
		return help_wrong("unknown option %.*s: did you mean --%s?", length, word,
				  nearest.name);
	return help_wrong("unknown option %.*s.", length, word);
}

/* Returns -1, or the exit code. */
static int take_next(struct options *o, struct given *given, int argc, char **argv)
{
	int at = optind ? optind : 1, which = -1, c;

	options_respell(&argv[at]);
	c = next_option(argc, argv, at, &which);
	if (c == -1)
		return 1;
	if (c == 'h') {
		printf("%s%s", help_usage, help_text);
		return 0;
	}
	if (c == ':')
		return help_wrong("%s needs a value.", argv[optind - 1]);
	if (c == '?')
		return say_unknown(argv[at]);
	if (c == 'p') {
		optarg = options_next_number(argc, argv);
		c = optarg ? MASTER_PORT : PREFIX;
	}
	do {
		if (!options_take(o, given, c, optarg))
			return help_wrong("'%s' is not a value for --%s: give %s.", optarg,
					  which >= 0 ? longs[which].name
					  : c == 'n' ? "ranks"
					  : c == 'g' ? "gpus"
						     : "port",
					  options_wanted(c));
	} while (c == 'g' && (optarg = options_next_number(argc, argv)));
	return -1;
}

int options_parse(struct options *o, int argc, char **argv)
{
	struct given given = {0};
	int code;

	*o = (struct options){.nodes = 1, .given = argv + 1};
	opterr = 0;
	while ((code = take_next(o, &given, argc, argv)) == -1)
		o->given_words = optind - 1;
	if (code != 1)
		return code;
	o->program = argv + optind;
	return check_given(o, &given);
}
