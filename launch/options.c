/* tuttirun's options: their values, --help, which go together, and how they are read. */
#include "launch/options.h"

#include "core/words/device_list.h"
#include "core/words/netaddr.h"
#include "core/words/number.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which options go together ---- */

int options_have_secret(void)
{
	return getenv("TUTTI_SECRET") || getenv("TUTTI_SECRET_FILE");
}

/* Or the user's word that the job does without. */
static int options_may_join(void)
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

static int options_check_hosts(const struct options *o)
{
	if (o->hosts && o->hostfile)
		return line_wrong("--hosts and --hostfile are both given; leave one away.");
	if (o->ssh && !options_start_hosts(o) && !o->is_agent)
		return line_wrong("--ssh needs --hosts or --hostfile.");
	return -1;
}

static int options_check_nodes(const struct options *o)
{
	if (o->nodes == 1 && o->node_rank > 0)
		return line_wrong("--node-rank %d needs --nnodes.", o->node_rank);
	if (o->node_rank >= o->nodes)
		return line_wrong("--node-rank %d is not below --nnodes %d.", o->node_rank,
				  o->nodes);
	if (o->nodes > 1 && !o->master_host)
		return line_wrong("--nnodes %d needs --master HOST:PORT of node 0.", o->nodes);
	if (o->nodes > 1 && !options_start_hosts(o) && !o->explain && !options_may_join())
		return line_wrong("several nodes need the same secret: set TUTTI_SECRET or "
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
		return line_wrong("-n gpu: there is no GPU here; name a number of ranks.");
	o->ranks = gpus;
	if (o->automatic && (gpus == 0 || strcmp(o->automatic, "cpu") == 0))
		o->ranks = automatic_cpus();
	if (o->ranks > RANKS_MAX)
		o->ranks = RANKS_MAX;
	/* A file of hosts may say it; that is read later. */
	if (o->ranks == 0 && !(options_start_hosts(o) && o->hostfile && o->nodes == 1))
		return line_wrong("-n is missing: how many ranks shall run?");
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
	return line_wrong("-n %d, --nnodes %d and --local-ranks %d are too many: a job has %d "
			  "ranks at most.",
			  o->ranks, o->nodes, o->local_ranks ? o->local_ranks : 1, WORLD_MAX);
}

static int options_check_mesh(struct options *o)
{
	char why[AXES_WHY_BYTES];

	if (!o->mesh || (options_start_hosts(o) && o->nodes == 1) ||
	    (axes_read(&o->axes, o->mesh, why) && axes_fit(&o->axes, options_size(o), why)))
		return -1;
	return line_wrong("--mesh: %s.", why);
}

int options_check(struct options *o)
{
	int code = options_check_count_ranks(o);

	if (code < 0 && !*o->program && !o->explain)
		code = line_wrong("the program is missing.");
	if (code < 0)
		code = options_check_hosts(o);
	if (code < 0)
		code = options_check_nodes(o);
	if (code < 0)
		code = options_check_size(o);
	return code < 0 ? options_check_mesh(o) : code;
}

/* ---- the options ---- */

/* A number of ranks; 0 for auto, gpu and cpu, with the word in automatic. */
static bool options_read_ranks(const char *text, void *to)
{
	static const char *const names[] = {"auto", "gpu", "cpu", NULL};
	struct options *o = to;
	int i = line_find(names, text);

	o->automatic = i < 0 ? NULL : names[i];
	o->ranks = 0;
	return o->automatic || number_read_int(text, 1, RANKS_MAX, &o->ranks);
}

static bool options_read_devices(const char *text, void *to)
{
	return device_list_add(to, DEVICES_BYTES, text);
}

static bool options_read_master(const char *text, void *to)
{
	struct options *o = to;

	o->master_host = o->master_text;
	o->has_master = true;
	return !netaddr_read(text, o->master_text, sizeof o->master_text, &o->master_port);
}

static bool options_read_master_host(const char *text, void *to)
{
	struct options *o = to;

	o->master_host = o->master_text;
	return !netaddr_read_host(text, o->master_text, sizeof o->master_text);
}

static bool options_read_port(const char *text, void *to)
{
	struct options *o = to;

	o->has_port = true;
	return netaddr_read_port(text, &o->master_port);
}

static const char *const option_restarts[] = {"rank", "job", NULL};
static const char *const option_bindings[] = {"core", "numa", "none", NULL};

#define AT(member) .at = offsetof(struct options, member)

#define RANKS_WANTED   "a number from 1 to 4096, auto, gpu or cpu"
#define DEVICES_WANTED "GPUs, each of them once, such as 0,1"
#define PORT_WANTED    "a port from 1 to 65535"

static const struct line_option options_table[] = {
	{"ranks", 'n', "N", .parse = options_read_ranks, .wanted = RANKS_WANTED,
	 .help = "ranks on this machine; every machine of a job has as many. auto: one for\n"
		 "each of its GPUs, or else of its CPUs; gpu, cpu: of those"},
	{"nproc-per-node", 0, "N", .parse = options_read_ranks, .wanted = RANKS_WANTED,
	 .help = "the same, as is -np N"},
	{"gpus", 'g', "0,1", AT(devices), .parse = options_read_devices, .wanted = DEVICES_WANTED,
	 .takes_numbers = true,
	 .help = "the GPUs that the ranks may use: sets CUDA_VISIBLE_DEVICES. A rank takes\n"
		 "the one with the number LOCAL_RANK of them, in turn. -n is as many by\n"
		 "itself. -g 0 1 is the same as -g 0,1"},
	{"devices", 0, "0,1", AT(devices), .parse = options_read_devices, .wanted = DEVICES_WANTED,
	 .takes_numbers = true, .help = "the same"},
	{"hosts", 0, "A,B", AT(hosts), .kind = LINE_TEXT,
	 .help = "runs -n ranks on each of these machines, by ssh, which must ask for no\n"
		 "password; this one is started without"},
	{"hostfile", 0, "F", AT(hostfile), .kind = LINE_TEXT,
	 .help = "a file with a machine a line; 'slots=N' behind it is -n"},
	{"agent", 0, NULL, AT(is_agent), .kind = LINE_BOOL,
	 .help = "what that starts there; for itself only"},
	{"ssh", 0, "COMMAND", AT(ssh), .kind = LINE_TEXT,
	 .help = "what runs a command on a machine (ssh -o BatchMode=yes\n"
		 "-o ConnectTimeout=60 -o ServerAliveInterval=15)"},
	{"nnodes", 0, "N", AT(nodes), 1, 65536, NULL,
	 "machines in the job (1); run tuttirun once on each of them"},
	{"node-rank", 0, "K", AT(node_rank), 0, 65535, NULL, "which of them this is, from 0"},
	{"master", 0, "H:P", .parse = options_read_master,
	 .help = "where rank 0 serves: a name or address of machine 0, and a port",
	 .wanted = "HOST:PORT; an IPv6 address has brackets, as in [fd98::1]:29500, and a "
		   "link-local one a scope, as in [fe80::1%eth0]:29500"},
	{"master-addr", 0, "H", .parse = options_read_master_host,
	 .help = "the same in two: its name or address",
	 .wanted = "a host, without a port; a link-local IPv6 address has a scope, as in "
		   "fe80::1%eth0"},
	{"master-port", 0, "P", .parse = options_read_port, .wanted = PORT_WANTED,
	 .help = "and the port (29500 with several machines; with one machine a free port,\n"
		 "also if P is taken)"},
	{"port", 0, "P", .parse = options_read_port, .wanted = PORT_WANTED,
	 .help = "the same as --master-port, as is -p P"},
	{"timeout", 0, "S", AT(timeout_s), 1e-9, 1e8, .kind = LINE_REAL,
	 .help = "ends the job after S seconds, with exit code 124, and says which call of\n"
		 "Tutti each rank is in",
	 .wanted = "seconds, more than 0"},
	{"trace-dir", 0, "D", AT(trace_dir), .kind = LINE_TEXT,
	 .help = "sets TUTTI_TRACE_DIR: the folder of traces of failures, and of all ranks\n"
		 "when S seconds are over"},
	{"log-dir", 0, "D", AT(log_dir), .kind = LINE_TEXT,
	 .help = "writes what rank R prints to D/rank_R.log as well, on its machine"},
	{"max-restarts", 0, "R", AT(max_restarts), 0, 1000000, NULL,
	 "starts failed ranks of this machine again, R times in all (0); with\n"
	 "--hosts all ranks of all machines"},
	{"restart", 0, "rank|job", AT(restart), RESTART_RANK, .kind = LINE_CHOICE,
	 .choices = option_restarts,
	 .help = "with --max-restarts: the failed rank alone, which the others take in by\n"
		 "tutti_comm_grow; or all ranks of this machine. Default: that rank, and all\n"
		 "where no rank calls tutti_comm_grow within 5 s; with --hosts the ranks of\n"
		 "all machines"},
	{"bind-to", 0, "core|numa|none", AT(bind_to), BIND_CORE, .kind = LINE_CHOICE,
	 .choices = option_bindings,
	 .help = "core: each rank to its part of the cores; where there are more ranks than\n"
		 "cores, or another tuttirun has bound ranks to them, to none (default).\n"
		 "numa: each rank to the cores of one NUMA node"},
	{"report-bindings", 0, NULL, AT(report_bindings),
	 .help = "says on stderr to which cores each rank is bound, or why to none"},
	{"mesh", 0, "dp=2,tp=4", AT(mesh), .kind = LINE_TEXT,
	 .help = "prints the ranks as a grid with these axes, and sets TUTTI_MESH, the axes\n"
		 "of a tutti_mesh_create that is passed none; a size of 0 is what the others\n"
		 "leave"},
	{"local-ranks", 0, "T", AT(local_ranks), 1, 4096, NULL,
	 "each process makes T ranks of the job, each with a thread, by\n"
	 "tutti_init_all and config.local_ranks: sets TUTTI_LOCAL_RANKS, and --mesh\n"
	 "and --explain count the ranks of all processes"},
	{"prefix", 'p', NULL, AT(prefix),
	 .help = "begins every line with the rank it came from; -p 29500 is the port"},
	{"progress", 0, NULL, AT(progress),
	 .help = "a line below the output, on a terminal: how many ranks run and have\n"
		 "joined, and for how long; with --hosts how many hosts run"},
	{"dry-run", 0, NULL, AT(dry_run),
	 .help = "prints what would be started, with the environment, and starts nothing"},
	{"explain", 0, NULL, AT(explain),
	 .help = "prints a table of the ranks that would be started, with what each of\n"
		 "their numbers means, and starts nothing; it needs no PROGRAM"},
	{0},
};

static bool options_is_number(const char *word)
{
	return word && *word && word[strspn(word, "0123456789")] == '\0';
}

/* torchrun's spelling, _ in the name of an option; mpirun's -np; -p29500 and -p 29500, the port. */
static void options_respell(void *values, char **at)
{
	static char np[] = "--np", port[] = "--port", port_of[32];
	struct options *o = values;
	char *word = *at;

	o->given_words = (int)(at - o->given);
	if (!word)
		return;
	if (strcmp(word, "-np") == 0)
		*at = np;
	else if (strcmp(word, "-p") == 0 && options_is_number(at[1]))
		*at = port;
	else if (strncmp(word, "-p", 2) == 0 && options_is_number(word + 2)) {
		snprintf(port_of, sizeof port_of, "--port=%s", word + 2);
		*at = port_of;
	}
	for (size_t i = 0; strncmp(word, "--", 2) == 0 && word[i] && word[i] != '='; i++)
		if (word[i] == '_')
			word[i] = '-';
}

static const struct line_table options_line = {
	.options = options_table,
	.operands = "",
	.is_launcher = true,
	.respell = options_respell,
	.usage = "usage: tuttirun -n RANKS [options] [--] PROGRAM [ARGUMENTS]\n"
		 "       tuttirun -n RANKS --hosts A,B [options] [--] PROGRAM [ARGUMENTS]\n"
		 "       tuttirun -n RANKS --nnodes N --node-rank K --master HOST:PORT [options] "
		 "[--] PROGRAM",
	.about = "Runs PROGRAM as the ranks of one job and passes their output on, line by line.",
	.after = "Names of options may have _ for -, and be short where no other begins so.\n"
		 "The first rank that fails ends the job: the others have 0.5 s to say why they "
		 "fail, too,\n"
		 "then get SIGTERM and, 2 s later, SIGKILL; tuttirun exits with that rank's code, "
		 "or with\n"
		 "128 + the signal that killed it; with 3 when all ended well, but what they wrote "
		 "could\n"
		 "not be passed on to stdout.\n"
		 "With --max-restarts a failed rank is started again instead, with TUTTI_RESTARTED "
		 "in its\n"
		 "environment: it joins the others when they call tutti_comm_grow. Once a rank has "
		 "ended\n"
		 "well, or R are used up, the next failure ends the job. With --restart job all "
		 "ranks are\n"
		 "ended as above and started again, without TUTTI_RESTARTED. By default that is "
		 "done where\n"
		 "a rank that was started again waits 5 s for the others to call tutti_comm_grow, "
		 "or one\n"
		 "of them exits with an error first; and where none of them, or no restart, is "
		 "left: as\n"
		 "one restart with those before. With --restart rank only where no rank is left. "
		 "With\n"
		 "--hosts --restart job, the default there, means all ranks of all machines. Jobs "
		 "with\n"
		 "--nnodes need the same --restart on each machine; their default is rank.\n"
		 "SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on; a second SIGINT "
		 "kills.\n"
		 "Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, "
		 "MASTER_ADDR,\n"
		 "MASTER_PORT and TUTTI_SECRET in their environment; also OMP_NUM_THREADS, "
		 "MKL_NUM_THREADS\n"
		 "and OPENBLAS_NUM_THREADS, the number of cores of a rank, where they are not set. "
		 "With one\n"
		 "machine, and with --hosts, the secret is fresh for every job, unless "
		 "TUTTI_SECRET or\n"
		 "TUTTI_SECRET_FILE is set; with --nnodes set one of them, the same on all.\n"
		 "--hosts runs this tuttirun on each machine, from the same path and in the same "
		 "folder. It\n"
		 "sends them the secret and TUTTI_, OMP_, MKL_, OPENBLAS_, CUDA_, NCCL_, UCX_ and "
		 "PYTHON\n"
		 "variables, PATH and LD_LIBRARY_PATH over ssh's stdin, and what a file that is "
		 "stdin has,\n"
		 "for rank 0. Where it or the connection ends, so do the ranks there.",
};

/* Checks what was given, and fills in what was not. */
static int options_check_given(struct options *o)
{
	bool has_nodes = o->nodes > 0, has_node_rank = o->node_rank >= 0;
	bool has_restarts = o->max_restarts >= 0;

	o->nodes = has_nodes ? o->nodes : 1;
	o->node_rank = has_node_rank ? o->node_rank : 0;
	o->max_restarts = has_restarts ? o->max_restarts : 0;
	o->dry_run |= o->explain;
	if (o->has_master && o->has_port && !o->is_agent)
		return line_wrong("--master names the port already; the port is one too many.");
	if (options_start_hosts(o) && (has_nodes || has_node_rank))
		return line_wrong("--hosts starts every machine: leave --nnodes and --node-rank "
				  "away.");
	if (o->nodes > 1 && !has_node_rank)
		return line_wrong("--nnodes %d needs --node-rank.", o->nodes);
	if (o->restart != RESTART_BY_NEED && !has_restarts)
		return line_wrong("--restart needs --max-restarts, the number of times.");
	return options_check(o);
}

int options_parse(struct options *o, int argc, char **argv)
{
	int code;

	*o = (struct options){.node_rank = -1, .max_restarts = -1, .given = argv + 1};
	code = line_parse(&options_line, o, argc, argv);
	o->program = argv + optind;
	return code < 0 ? options_check_given(o) : code;
}
