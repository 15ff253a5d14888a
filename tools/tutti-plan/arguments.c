/* The command line of tutti-plan: the options. */
#include "arguments.h"

#include "units.h"

#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "tools/output.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How an option's value is read. */
enum kind {
	FLAG,
	RANK,
	NODES,
	COUNT,
	RANGES,
	EFFORT,
	BYTES,
	SECONDS,
	RATE,
	DTYPE,
	OP,
	TIMES,
	TEXT
};

#define AT(member)    offsetof(struct arguments, member)
#define NET(member)   AT(machine.links.link[LINK_NET].member)
#define LOCAL(member) AT(machine.links.link[LINK_LOCAL].member)

static const struct parameter {
	const char *name;
	enum kind kind;
	size_t at, least; /* where the value goes; least: of bytes */
} parameters[] = {
	{"rank", RANK, AT(rank), 0},
	{"ranks", RANGES, 0, 0},
	{"root", RANK, AT(root), 0},
	{"nodes", NODES, AT(nodes), 0},
	{"in-place", FLAG, AT(in_place), 0},
	{"staged", FLAG, AT(options.staged), 0},
	{"scaled", FLAG, AT(options.scaled), 0},
	{"alpha", SECONDS, NET(alpha), 0},
	{"beta", RATE, NET(beta), 0},
	{"overhead", SECONDS, NET(overhead), 0},
	{"node-beta", RATE, AT(machine.node_beta), 0},
	{"local-alpha", SECONDS, LOCAL(alpha), 0},
	{"local-beta", RATE, LOCAL(beta), 0},
	{"local-overhead", SECONDS, LOCAL(overhead), 0},
	{"gamma", RATE, AT(machine.links.gamma), 0},
	{"slice", BYTES, AT(machine.slice_bytes), 64},
	{"scratch", BYTES, AT(machine.scratch_bytes), 65536},
	{"links", TEXT, AT(links), 0},
	{"dtype", DTYPE, AT(dtype), 0},
	{"op", OP, AT(op), 0},
	{"deterministic", FLAG, AT(deterministic), 0},
	{"svg", TEXT, AT(svg), 0},
	{"stages", COUNT, AT(shape.ranks), 0},
	{"micro-batches", COUNT, AT(shape.micro_batches), 0},
	{"chunks", COUNT, AT(shape.chunks), 0},
	{"times", TIMES, AT(times), 0},
	{"effort", EFFORT, AT(effort), 0},
};
#define PARAMETERS ((int)(sizeof parameters / sizeof *parameters))

static bool arguments_parse_int(const char *text, int min, int max, int *value)
{
	char *end;
	long n = strtol(text, &end, 10);
	if (end == text || *end || n < min || n > max)
		return false;
	*value = (int)n;
	return true;
}

static bool parse_number(const char *text, double min, double max, double *value)
{
	char *end;
	double x = strtod(text, &end);
	if (end == text || *end || !(x >= min && x <= max))
		return false;
	*value = x;
	return true;
}

static bool arguments_parse_dtype(const char *text, tutti_dtype *dtype)
{
	for (int d = 0; dtype_bytes((tutti_dtype)d); d++)
		if (strcmp(dtype_name((tutti_dtype)d), text) == 0) {
			*dtype = (tutti_dtype)d;
			return true;
		}
	return false;
}

static bool arguments_parse_op(const char *text, tutti_op *op)
{
	for (int o = TUTTI_SUM; o < OPS_BUILT_IN; o++)
		if (strcmp(op_name((tutti_op)o), text) == 0) {
			*op = (tutti_op)o;
			return true;
		}
	return false;
}

/* "1,1,1" or "1,1,1,0.5". */
static bool parse_times(const char *text, struct action_times *times)
{
	double *const to[] = {&times->forward, &times->inputs, &times->weights, &times->transfer};
	char *end;

	for (int i = 0; i < 4; i++, text = end + 1) {
		*to[i] = strtod(text, &end);
		if (end == text || !(*to[i] >= 0 && *to[i] <= 1e6) || (*end && *end != ','))
			return false;
		if (!*end)
			return i >= 2 && times->forward + times->inputs + times->weights > 0;
	}
	return false;
}

static bool parse_value(struct arguments *a, const struct parameter *p, const char *value)
{
	void *to = (char *)a + p->at;

	switch (p->kind) {
	case FLAG:
		return *(bool *)to = true;
	case RANK:
		return arguments_parse_int(value, 0, RANKS_MAX - 1, to);
	case NODES:
		return arguments_parse_int(value, 1, RANKS_MAX, to);
	case COUNT:
		return arguments_parse_int(value, 1, PIPELINE_MAX, to);
	case TIMES:
		return parse_times(value, to);
	case RANGES:
		return a->range_count == 0 && arguments_ranges(a, value);
	case EFFORT:
		return parse_number(value, 0.001, 10000, to);
	case BYTES:
		return units_bytes(value, to) && *(size_t *)to >= p->least;
	case SECONDS:
		return units_seconds(value, to);
	case RATE:
		return units_rate(value, to);
	case DTYPE:
		return arguments_parse_dtype(value, to);
	case OP:
		return arguments_parse_op(value, to);
	case TEXT:
		*(const char **)to = value;
		return *value != '\0';
	}
	return false;
}

/* The kind's values, for the message about one that is none. */
static const char *values_of(const struct parameter *p, char *text, size_t bytes)
{
	int n = 0;

	switch (p->kind) {
	case RANK:
		snprintf(text, bytes, "a number from 0 to %d", RANKS_MAX - 1);
		return text;
	case NODES:
		snprintf(text, bytes, "a number from 1 to %d", RANKS_MAX);
		return text;
	case COUNT:
		snprintf(text, bytes, "a number from 1 to %d", PIPELINE_MAX);
		return text;
	case TIMES:
		return "three or four numbers such as 1,1,1,0.5";
	case RANGES:
		return "a number of ranks";
	case EFFORT:
		return "a number from 0.001 to 10000";
	case BYTES:
		snprintf(text, bytes, "a size such as 64K or 1M, of %zu bytes at least", p->least);
		return text;
	case SECONDS:
		return "a time such as 500ns or 20us";
	case RATE:
		return "a rate such as 1.2GB/s or 100Gbit/s";
	case DTYPE:
		for (int d = 0; dtype_bytes((tutti_dtype)d) && n < (int)bytes; d++)
			n += snprintf(text + n, bytes - (size_t)n, "%s%s", n ? ", " : "",
				      dtype_name((tutti_dtype)d));
		return text;
	case OP:
		for (int o = 0; o < OPS_BUILT_IN && n < (int)bytes; o++)
			n += snprintf(text + n, bytes - (size_t)n, "%s%s", n ? ", " : "",
				      op_name((tutti_op)o));
		return text;
	case FLAG:
	case TEXT:
		break;
	}
	return "the name of a file";
}

static void fill_longs(struct option longs[PARAMETERS + 2])
{
	for (int i = 0; i < PARAMETERS; i++)
		longs[i] = (struct option){parameters[i].name,
					   parameters[i].kind == FLAG ? no_argument
								      : required_argument,
					   NULL, 256 + i};
	longs[PARAMETERS] = (struct option){"help", no_argument, NULL, 'h'};
	longs[PARAMETERS + 1] = (struct option){NULL, 0, NULL, 0};
}

int arguments_parse(struct arguments *a, int argc, char **argv)
{
	struct option longs[PARAMETERS + 2];
	char text[200];
	int option, code;

	*a = (struct arguments){.collective = COLL_COUNT,
				.rank = -1,
				.root = -1,
				.effort = 20,
				.shape = {.chunks = 1},
				.times = {1, 1, 1, 0},
				.machine = {.links = {{{-1, -1, -1}, {-1, -1, -1}}, -1},
					    .node_beta = -1,
					    .slice_bytes = 262144,
					    .scratch_bytes = 4194304}};
	opterr = 0;
	fill_longs(longs);
	while ((option = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		if (option == 'h') {
			fputs(arguments_help, stdout);
			return 0;
		}
		if (option == '?')
			return usage_error("'%s' is no option, or lacks its value.",
					   argv[optind - 1]);
		const struct parameter *p = &parameters[option - 256];
		if (!parse_value(a, p, optarg))
			return usage_error("'%s' is not a value for --%s, which takes %s.", optarg,
					   p->name, values_of(p, text, sizeof text));
	}
	if ((code = arguments_words(a, argc - optind, argv + optind)) >= 0)
		return code;
	return machine_complete(a);
}
