/* tuttirun's options, one after the other; options_check.c says what goes together. */
#include "options.h"

#include "help.h"
#include "option_values.h"

#include "core/words/nearest.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

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
