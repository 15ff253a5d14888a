/* nccl-tests' options and ours, and which of them make no sense together. */
#include "options.h"

#include "load.h"

#include "core/memory/ops.h"
#include "core/program/line.h"
#include "core/words/number.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX       4096     /* that tutti_spawn starts */
#define PERCENTILES_MAX 10000000 /* calls whose times are kept: 80 MB */
#define DEFAULT_BYTES   ((size_t)32 << 20)
#define COUNT_MAX       1000000000

static bool options_parse_dtype(const char *text, void *to)
{
	int *value = to;
	tutti_dtype dtype;

	*value = ALL;
	if (strcmp(text, "all") == 0)
		return true;
	if (!element_parse(text, &dtype))
		return false;
	*value = (int)dtype;
	return true;
}

static bool options_parse_op(const char *text, void *to)
{
	int *value = to;
	tutti_op op;

	*value = ALL;
	if (strcmp(text, "all") == 0)
		return true;
	if (!operation_parse(text, &op))
		return false;
	*value = (int)op;
	return true;
}

static bool options_parse_root(const char *text, void *to)
{
	*(int *)to = ALL;
	return strcmp(text, "all") == 0 || number_read_int(text, 0, COUNT_MAX, to);
}

#define AT(member) .at = offsetof(struct options, member)

static const struct line_option options_table[] = {
	{"ranks", 0, "N", AT(ranks), 1, RANKS_MAX, NULL,
	 "starts N ranks of itself; without it this is one rank of the job that\n"
	 "tuttirun, torchrun, mpirun or srun has started"},
	{"nthreads", 't', "N", AT(threads), 1, 1024, NULL, "ranks as threads of this process"},
	{"ngpus", 'g', "N", AT(gpus), 1, 1024, NULL,
	 "buffers in memory of GPUs, and N ranks for each -t, as threads. Ranks\n"
	 "take the machine's GPUs in turn, so several may have the same"},
	{"cudagraph", 'G', "N", AT(graphs), 0, COUNT_MAX, NULL,
	 "captures the iterations in a CUDA graph, and launches it N times (0)"},
	{"minbytes", 'b', "SIZE", AT(min_bytes), .kind = LINE_BYTES,
	 .help = "first size of the sweep, K, M and G allowed (32M)"},
	{"maxbytes", 'e', "SIZE", AT(max_bytes), .kind = LINE_BYTES, .help = "last size (32M)"},
	{"stepbytes", 'i', "SIZE", AT(step_bytes), .kind = LINE_BYTES,
	 .help = "from one size to the next: so much more (1M)"},
	{"stepfactor", 'f', "FACTOR", AT(factor), 1, COUNT_MAX, NULL, "or so many times as much"},
	{"iters", 'n', "N", AT(iterations), 1, COUNT_MAX, NULL, "timed iterations (20)"},
	{"warmup_iters", 'w', "N", AT(warmups), 0, COUNT_MAX, NULL, "iterations before them (1)"},
	{"agg_iters", 'm', "N", AT(aggregated), 1, 1024, NULL,
	 "calls in flight at once in an iteration (1)"},
	{"check", 'c', "0|1", AT(check), 0, 1, NULL, "verifies every iteration on every rank (1)"},
	{"datatype", 'd', "TYPE", AT(dtype), .parse = options_parse_dtype,
	 .help = "float double half bfloat16 f8e4m3 f8e5m2, int8 to uint64, all (float)"},
	{"op", 'o', "OP", AT(op), .parse = options_parse_op,
	 .help = "sum prod min max avg, band bor bxor of integers, all (sum)"},
	{"root", 'r', "RANK", AT(root), .parse = options_parse_root, .help = "or all (0)"},
	{"blocking", 'z', "0|1", AT(blocking), 0, 1, NULL,
	 "0: asynchronous calls, waited for (1); with -g in a stream, 1: each is\n"
	 "waited for (0)"},
	{"unalign", 'u', "N", AT(unalign), 0, 65536, NULL,
	 "buffers begin N elements past a cache line (0)"},
	{"average", 'a', "0..3", AT(average), 0, 3, NULL,
	 "time of rank 0, mean, least or most of all ranks (1)"},
	{"dirty", 0, "0|1", AT(dirty), 0, 1, NULL,
	 "writes the buffers before every iteration even with -c 0 (1)"},
	{"zero-copy", 0, NULL, AT(zero_copy), .help = "buffers from tutti_mem_alloc"},
	{"percentiles", 0, NULL, AT(percentiles),
	 .help = "times every call by itself: the median, the 99th percentile, the least\n"
		 "and the most, each call being as long as on its slowest rank; a look at\n"
		 "the clock is in every time, and the header says how long that takes"},
	{"load", 0, "N", AT(load), 0, LOAD_MAX, NULL,
	 "N busy processes beside the ranks of each machine (0)"},
	{"json", 'J', "FILE", AT(json), .kind = LINE_TEXT, .help = "the same as JSON, too"},
	{0},
};

static const struct line_table options_line = {.options = options_table};

/* A sweep that does not grow has one size, and is asked for as one; everything else would not end.
 */
static int options_check_sizes(struct options *o)
{
	bool has_step = o->step_bytes != SIZE_MAX;

	if (o->min_bytes == SIZE_MAX)
		o->min_bytes = o->max_bytes < DEFAULT_BYTES ? o->max_bytes : DEFAULT_BYTES;
	if (o->max_bytes == SIZE_MAX)
		o->max_bytes = o->min_bytes > DEFAULT_BYTES ? o->min_bytes : DEFAULT_BYTES;
	if (o->min_bytes > o->max_bytes)
		return line_wrong("-b %zu is more than -e %zu.", o->min_bytes, o->max_bytes);
	if (has_step && o->factor)
		return line_wrong("-i and -f exclude each other.");
	if (!has_step)
		o->step_bytes = 1 << 20;
	if (o->min_bytes < o->max_bytes && o->step_bytes == 0)
		return line_wrong("-i 0 never reaches -e.");
	if (o->min_bytes < o->max_bytes && o->factor == 1)
		return line_wrong("-f 1 never reaches -e.");
	o->step_factor = (size_t)o->factor;
	return -1;
}

/* Options that exclude -g, or need it. */
static int options_check_gpus(struct options *o, const struct collective *c)
{
	if (o->graphs && !o->gpus)
		return line_wrong("-G is for memory of GPUs: it needs -g.");
	if (o->blocking < 0)
		o->blocking = !o->gpus;
	if (!o->gpus)
		return -1;
	if (!collective_has_data(c))
		return line_wrong("a barrier has no buffers: no -g.");
	if (o->graphs && o->blocking)
		return line_wrong("-z 1 waits for each call, which a graph cannot: no -G.");
	if (o->graphs && o->percentiles)
		return line_wrong("--percentiles times single calls, and -G whole graphs.");
	return -1;
}

static int options_check(struct options *o, const struct collective *c)
{
	int code = options_check_gpus(o, c);

	if (code >= 0)
		return code;
	if (o->gpus)
		o->threads *= o->gpus;
	if (o->threads > 1024)
		return line_wrong("-t times -g is %d; 1024 ranks in a process are the most.",
				  o->threads);
	if (o->ranks && o->threads > 1)
		return line_wrong("--ranks starts processes, -t and -g threads: take one of them.");
	if ((o->ranks || o->threads > 1) && getenv("WORLD_SIZE"))
		return line_wrong(
			"--ranks, -t and -g are for a run without launcher, and WORLD_SIZE "
			"is set.");
	if (o->percentiles && o->aggregated > 1)
		return line_wrong("--percentiles times single calls: no -m.");
	if (o->percentiles && o->iterations > PERCENTILES_MAX)
		return line_wrong("--percentiles keeps the time of every call: at most -n %d.",
				  PERCENTILES_MAX);
	if (o->op != ALL && o->dtype != ALL && c->is_reduced &&
	    !op_fits((tutti_op)o->op, (tutti_dtype)o->dtype))
		return line_wrong("-o %s is for integers, not for %s.", op_name((tutti_op)o->op),
				  element_name((tutti_dtype)o->dtype));
	return options_check_sizes(o);
}

int options_parse(struct options *o, int argc, char **argv, const struct collective *c)
{
	int code;

	*o = (struct options){
		.min_bytes = SIZE_MAX,
		.max_bytes = SIZE_MAX,
		.step_bytes = SIZE_MAX,
		.iterations = 20,
		.warmups = 1,
		.aggregated = 1,
		.check = 1,
		.dirty = 1,
		.op = TUTTI_SUM,
		.blocking = -1,
		.threads = 1,
		.average = 1,
	};
	code = line_parse(&options_line, o, argc, argv);
	return code < 0 ? options_check(o, c) : code;
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
