/* Reads nccl-tests' options and ours, and refuses what makes no sense. */
#include "options.h"

#include "load.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((size_t)1 << 46)

#define RANKS_MAX       4096     /* that tutti_spawn starts */
#define PERCENTILES_MAX 10000000 /* calls whose times are kept: 80 MB */

enum { DIRTY = 256, ZERO_COPY, RANKS, PERCENTILES, LOAD };

static const char usage_line[] =
	"usage: %s [--ranks N] [-b MIN] [-e MAX] [-i STEP | -f FACTOR]\n"
	"       [-n ITERATIONS] [-w WARMUPS] [-m CALLS] [-c 0|1] [-d TYPE] [-o OP] [-r ROOT]\n"
	"       [-z 0|1] [-t N] [-g N] [-G N] [-u ELEMENTS] [-a 0|1|2|3] [--dirty 0|1] "
	"[--zero-copy]\n"
	"       [--percentiles] [--load N] [-J FILE]\n";

static const char help[] =
	"\n"
	"  --ranks N             starts N ranks of itself; without it this is one rank of the job "
	"that\n"
	"                        tuttirun, torchrun, mpirun or srun has started\n"
	"  -t, --nthreads N      ranks as threads of this process\n"
	"  -g, --ngpus N         buffers in memory of GPUs, and N ranks for each -t, as threads. "
	"Ranks\n"
	"                        take the machine's GPUs in turn, so several may have the same\n"
	"  -G, --cudagraph N     captures the iterations in a CUDA graph, and launches it N times "
	"(0)\n"
	"  -b, --minbytes SIZE   first size of the sweep, K, M and G allowed (32M)\n"
	"  -e, --maxbytes SIZE   last size (32M)\n"
	"  -i, --stepbytes SIZE  from one size to the next: so much more (1M)\n"
	"  -f, --stepfactor F    or so many times as much\n"
	"  -n, --iters N         timed iterations (20)\n"
	"  -w, --warmup_iters N  iterations before them (1)\n"
	"  -m, --agg_iters N     calls in flight at once in an iteration (1)\n"
	"  -c, --check 0|1       verifies every iteration on every rank (1)\n"
	"  -d, --datatype TYPE   float double half bfloat16 f8e4m3 f8e5m2, int8 to uint64, all "
	"(float)\n"
	"  -o, --op OP           sum prod min max avg, band bor bxor of integers, all (sum)\n"
	"  -r, --root RANK       or all (0)\n"
	"  -z, --blocking 0|1    0: asynchronous calls, waited for (1); with -g in a stream, 1: "
	"each is\n"
	"                        waited for (0)\n"
	"  -u, --unalign N       buffers begin N elements past a cache line (0)\n"
	"  -a, --average 0..3    time of rank 0, mean, least or most of all ranks (1)\n"
	"      --dirty 0|1       writes the buffers before every iteration even with -c 0 (1)\n"
	"      --zero-copy       buffers from tutti_mem_alloc\n"
	"      --percentiles     times every call by itself: the median, the 99th percentile, the "
	"least and\n"
	"                        the most, each call being as long as on its slowest rank; a look "
	"at the\n"
	"                        clock is in every time, and the header says how long that takes\n"
	"      --load N          N busy processes beside the ranks of each machine (0)\n"
	"  -J, --json FILE       the same as JSON, too\n"
	"  -h, --help, --version\n";

__attribute__((format(printf, 1, 2))) static int options_wrong(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	fprintf(stderr, usage_line, program_invocation_short_name);
	return 2;
}

static int wrong_value(int option, const char *value)
{
	if (option < DIRTY)
		return options_wrong("'%s' is not a value for -%c.", value, option);
	return options_wrong("'%s' is not a value for --%s.", value,
			     option == RANKS  ? "ranks"
			     : option == LOAD ? "load"
					      : "dirty");
}

/* Digits and nothing else: no sign, no blank. */
static bool parse_within(const char *text, int min, int max, int *value)
{
	size_t digits = strspn(text, "0123456789");
	long n;

	errno = 0;
	n = strtol(text, NULL, 10);
	if (errno || digits == 0 || text[digits] || n < min || n > max)
		return false;
	*value = (int)n;
	return true;
}

static bool options_parse_int(const char *text, int min, int *value)
{
	return parse_within(text, min, 1000000000, value);
}

/* 4096, 4K, 0.5M, 1G. */
static bool options_parse_bytes(const char *text, size_t *bytes)
{
	static const char units[] = "KkMmGg";
	size_t digits = strspn(text, "0123456789.");
	const char *unit = text[digits] ? strchr(units, text[digits]) : NULL;
	char *end;
	double value = strtod(text, &end);

	if (digits == 0 || end != text + digits || text[digits + (unit != NULL)])
		return false;
	if (unit)
		value = ldexp(value, 10 * (int)((unit - units) / 2 + 1));
	if (!(value <= (double)BYTES_MAX))
		return false;
	*bytes = (size_t)value;
	return true;
}

static bool options_parse_dtype(const char *text, int *value)
{
	tutti_dtype dtype;

	*value = ALL;
	if (strcmp(text, "all") == 0)
		return true;
	if (!element_parse(text, &dtype))
		return false;
	*value = (int)dtype;
	return true;
}

static bool options_parse_op(const char *text, int *value)
{
	tutti_op op;

	*value = ALL;
	if (strcmp(text, "all") == 0)
		return true;
	if (!operation_parse(text, &op))
		return false;
	*value = (int)op;
	return true;
}

static bool parse_root(const char *text, int *value)
{
	*value = ALL;
	return strcmp(text, "all") == 0 || options_parse_int(text, 0, value);
}

struct given {
	bool min, max, step, factor, blocking;
	int step_factor;
};

static bool parse_one(struct options *o, struct given *given, int option, const char *text)
{
	switch (option) {
	case 'b':
		return given->min = options_parse_bytes(text, &o->min_bytes);
	case 'e':
		return given->max = options_parse_bytes(text, &o->max_bytes);
	case 'i':
		return given->step = options_parse_bytes(text, &o->step_bytes);
	case 'f':
		return given->factor = options_parse_int(text, 1, &given->step_factor);
	case 'n':
		return options_parse_int(text, 1, &o->iterations);
	case 'w':
		return options_parse_int(text, 0, &o->warmups);
	case 'm':
		return parse_within(text, 1, 1024, &o->aggregated);
	case 'c':
		return parse_within(text, 0, 1, &o->check);
	case 'd':
		return options_parse_dtype(text, &o->dtype);
	case 'o':
		return options_parse_op(text, &o->op);
	case 'r':
		return parse_root(text, &o->root);
	case 'z':
		return given->blocking = parse_within(text, 0, 1, &o->blocking);
	case 't':
		return parse_within(text, 1, 1024, &o->threads);
	case 'g':
		return parse_within(text, 1, 1024, &o->gpus);
	case 'G':
		return options_parse_int(text, 0, &o->graphs);
	case 'u':
		return parse_within(text, 0, 65536, &o->unalign);
	case 'a':
		return parse_within(text, 0, 3, &o->average);
	case 'J':
		o->json = text;
		return *text != '\0';
	case LOAD:
		return parse_within(text, 0, LOAD_MAX, &o->load);
	case DIRTY:
		return parse_within(text, 0, 1, &o->dirty);
	default:
		return parse_within(text, 1, RANKS_MAX, &o->ranks);
	}
}

/* A sweep that does not grow has one size, and is asked for as one; everything else would not end.
 */
static int options_check_sizes(struct options *o, const struct given *given)
{
	if (!given->max && o->max_bytes < o->min_bytes)
		o->max_bytes = o->min_bytes;
	if (!given->min && o->min_bytes > o->max_bytes)
		o->min_bytes = o->max_bytes;
	if (o->min_bytes > o->max_bytes)
		return options_wrong("-b %zu is more than -e %zu.", o->min_bytes, o->max_bytes);
	if (given->step && given->factor)
		return options_wrong("-i and -f exclude each other.");
	if (o->min_bytes < o->max_bytes && given->step && o->step_bytes == 0)
		return options_wrong("-i 0 never reaches -e.");
	if (o->min_bytes < o->max_bytes && given->factor && given->step_factor < 2)
		return options_wrong("-f %d never reaches -e.", given->step_factor);
	o->step_factor = given->factor ? (size_t)given->step_factor : 0;
	return -1;
}

/* Options that exclude -g, or need it. */
static int check_gpus(struct options *o, const struct given *given, const struct collective *c)
{
	if (o->graphs && !o->gpus)
		return options_wrong("-G is for memory of GPUs: it needs -g.");
	if (!o->gpus)
		return -1;
	if (!collective_has_data(c))
		return options_wrong("a barrier has no buffers: no -g.");
	if (!given->blocking)
		o->blocking = 0;
	if (o->graphs && o->blocking)
		return options_wrong("-z 1 waits for each call, which a graph cannot: no -G.");
	if (o->graphs && o->percentiles)
		return options_wrong("--percentiles times single calls, and -G whole graphs.");
	return -1;
}

static int perf_options_check(struct options *o, const struct given *given,
			      const struct collective *c)
{
	int code = check_gpus(o, given, c);

	if (code >= 0)
		return code;
	if (o->gpus)
		o->threads *= o->gpus;
	if (o->threads > 1024)
		return options_wrong("-t times -g is %d; 1024 ranks in a process are the most.",
				     o->threads);
	if (o->ranks && o->threads > 1)
		return options_wrong(
			"--ranks starts processes, -t and -g threads: take one of them.");
	if ((o->ranks || o->threads > 1) && getenv("WORLD_SIZE"))
		return options_wrong(
			"--ranks, -t and -g are for a run without launcher, and WORLD_SIZE "
			"is set.");
	if (o->percentiles && o->aggregated > 1)
		return options_wrong("--percentiles times single calls: no -m.");
	if (o->percentiles && o->iterations > PERCENTILES_MAX)
		return options_wrong("--percentiles keeps the time of every call: at most -n %d.",
				     PERCENTILES_MAX);
	if (o->op != ALL && o->dtype != ALL && c->is_reduced &&
	    !operation_fits((tutti_op)o->op, (tutti_dtype)o->dtype))
		return options_wrong("-o %s is for integers, not for %s.",
				     operation_name((tutti_op)o->op),
				     element_name((tutti_dtype)o->dtype));
	return options_check_sizes(o, given);
}

int options_parse(struct options *o, int argc, char **argv, const struct collective *c)
{
	static const struct option longs[] = {
		{"minbytes", 1, NULL, 'b'},
		{"maxbytes", 1, NULL, 'e'},
		{"stepbytes", 1, NULL, 'i'},
		{"stepfactor", 1, NULL, 'f'},
		{"iters", 1, NULL, 'n'},
		{"warmup_iters", 1, NULL, 'w'},
		{"agg_iters", 1, NULL, 'm'},
		{"check", 1, NULL, 'c'},
		{"datatype", 1, NULL, 'd'},
		{"op", 1, NULL, 'o'},
		{"root", 1, NULL, 'r'},
		{"blocking", 1, NULL, 'z'},
		{"nthreads", 1, NULL, 't'},
		{"ngpus", 1, NULL, 'g'},
		{"cudagraph", 1, NULL, 'G'},
		{"unalign", 1, NULL, 'u'},
		{"average", 1, NULL, 'a'},
		{"dirty", 1, NULL, DIRTY},
		{"zero-copy", 0, NULL, ZERO_COPY},
		{"ranks", 1, NULL, RANKS},
		{"help", 0, NULL, 'h'},
		{"json", 1, NULL, 'J'},
		{"percentiles", 0, NULL, PERCENTILES},
		{"load", 1, NULL, LOAD},
		{NULL, 0, NULL, 0},
	};
	struct given given = {0};
	int option;

	*o = (struct options){
		.min_bytes = 32 << 20,
		.max_bytes = 32 << 20,
		.step_bytes = 1 << 20,
		.iterations = 20,
		.warmups = 1,
		.aggregated = 1,
		.check = 1,
		.dirty = 1,
		.op = TUTTI_SUM,
		.blocking = 1,
		.threads = 1,
		.average = 1,
	};
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":b:e:i:f:n:w:m:c:d:o:r:z:t:g:G:u:a:J:h", longs,
				     NULL)) != -1) {
		if (option == 'h') {
			printf(usage_line, program_invocation_short_name);
			fputs(help, stdout);
			return 0;
		}
		if (option == ':')
			return options_wrong("%s needs a value.", argv[optind - 1]);
		if (option == '?' && optopt > 0 && optopt < 128)
			return options_wrong("unknown option -%c.", optopt);
		if (option == '?')
			return options_wrong("unknown option %s.", argv[optind - 1]);
		if (option == ZERO_COPY)
			o->zero_copy = 1;
		else if (option == PERCENTILES)
			o->percentiles = 1;
		else if (!parse_one(o, &given, option, optarg))
			return wrong_value(option, optarg);
	}
	if (optind < argc)
		return options_wrong("'%s' belongs to no option.", argv[optind]);
	return perf_options_check(o, &given, c);
}

size_t options_next_size(const struct options *o, size_t bytes, size_t element)
{
	size_t next;

	if (o->step_factor == 0)
		next = bytes + o->step_bytes;
	else if (bytes == 0)
		next = element; /* from nothing the first step is one element */
	else
		next = bytes * o->step_factor;
	return next <= bytes || next > o->max_bytes ? SIZE_MAX : next;
}

bool options_include(const struct options *o, tutti_dtype dtype, tutti_op op)
{
	return (o->dtype == ALL || o->dtype == (int)dtype) && (o->op == ALL || o->op == (int)op);
}
