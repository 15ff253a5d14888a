/* overlap: a matrix product on every rank's block, whose blocks are gathered first, or come one by
 * one; and products whose sum over the ranks is scattered. What the second way hides of the
 * communication shows in the difference; it is for loaded machines (--load), too. */
#include "load.h"
#include "median.h"
#include "output.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/parallel.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0                                                              \
			    : (fprintf(stderr, "overlap: %s\n", tutti_comm_error(NULL)), exit(3)))

enum { WIDTH = 1024, ROWS_MAX = 65536, COLUMNS_MAX = 1024, ROUNDS_MAX = 1000 };
/* Of both directions: the collective alone, one after the other, each. */
enum { ALONE, AFTER, EACH, WAYS };

static const char usage[] =
	"usage: overlap [--ranks N] [--rows N] [--columns N] [--rounds N] [--scatter] "
	"[--zero-copy]\n"
	"       [--load N]\n"
	"A block of each rank, N rows of 1024 f32, is multiplied by a matrix of so many columns on "
	"all\n"
	"ranks, three ways in turns: all_gather alone; all_gather, then the products; the products "
	"in\n"
	"tutti_all_gather_each.\n"
	"  --ranks N    starts N ranks of itself; without it a launcher has\n"
	"  --rows N     of a block, 1 to 65536 (1024: 4 MiB)\n"
	"  --columns N  of the matrix, 8 to 1024, rounded to eights (64)\n"
	"  --rounds N   counted ones, 1 to 1000 (20); one before them is not\n"
	"  --scatter    products of so many rows of N columns with 1024 columns, for each rank's\n"
	"               block; reduce_scatter alone, after all products, and\n"
	"               tutti_reduce_scatter_each\n"
	"  --zero-copy  blocks in memory of tutti_mem_alloc\n"
	"  --load N     N busy processes beside the ranks of each machine (0)\n"
	"  -h, --help\n"
	"Exit code: 0; 2 for a line that cannot be understood; 3 when a call failed.\n";

struct setting {
	int rows, columns, rounds, load, scatters, is_zero_copy;
	tutti_comm *comm;
	int rank, size;
	size_t count;  /* of a block */
	float *blocks; /* one for each rank, in order */
	float *matrix; /* (columns, WIDTH) */
	float *small;  /* (rows, columns) for each rank: results of a gather, inputs of a scatter */
	float *sum;    /* of a scatter: one block */
};

static double overlap_now_ms(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* y (rows, columns) = x (rows, WIDTH) times the matrix, eight columns at a time, from which x is
 * read once each. */
static void overlap_multiply(const struct setting *at, const float *x, float *y)
{
	for (int row = 0; row < at->rows; row++)
		for (int first = 0; first < at->columns; first += 8) {
			float sums[8][16] = {0};
			for (int i = 0; i < WIDTH; i += 16)
				for (int c = 0; c < 8; c++)
					for (int k = 0; k < 16; k++)
						sums[c][k] +=
							x[(size_t)row * WIDTH + (size_t)(i + k)] *
							at->matrix[(size_t)(first + c) * WIDTH +
								   (size_t)(i + k)];
			for (int c = 0; c < 8; c++) {
				float sum = 0;
				for (int k = 0; k < 16; k++)
					sum += sums[c][k];
				y[(size_t)row * (size_t)at->columns + (size_t)(first + c)] = sum;
			}
		}
}

/* y (rows, WIDTH) = x (rows, columns) times the matrix. */
static void multiply_wide(const struct setting *at, const float *x, float *y)
{
	for (int row = 0; row < at->rows; row++) {
		float *to = y + (size_t)row * WIDTH;
		for (int c = 0; c < at->columns; c++) {
			const float *from = at->matrix + (size_t)c * WIDTH;
			float factor = x[(size_t)row * (size_t)at->columns + (size_t)c];
			for (int i = 0; i < WIDTH; i++)
				to[i] = c ? to[i] + factor * from[i] : factor * from[i];
		}
	}
}

static float *small_of(const struct setting *at, int rank)
{
	return at->small + (size_t)rank * (size_t)at->rows * (size_t)at->columns;
}

static tutti_status take_block(void *arg, int rank, void *data, size_t count)
{
	const struct setting *at = arg;

	(void)count;
	if (at->scatters)
		multiply_wide(at, small_of(at, rank), data);
	else
		overlap_multiply(at, data, small_of(at, rank));
	return TUTTI_OK;
}

static void overlap_communicate(const struct setting *at)
{
	float *own = at->blocks + (size_t)at->rank * at->count;

	if (at->scatters)
		MUST(tutti_reduce_scatter(at->blocks, at->sum, at->count, TUTTI_F32, TUTTI_SUM,
					  at->comm, NULL));
	else
		MUST(tutti_all_gather(own, at->blocks, at->count, TUTTI_F32, at->comm, NULL));
}

static void overlap_compute(struct setting *at)
{
	for (int i = 0; i < at->size; i++) {
		int rank = (at->rank + i) % at->size;
		(void)take_block(at, rank, at->blocks + (size_t)rank * at->count, at->count);
	}
}

static void overlap_run(struct setting *at, int way)
{
	if (way == EACH && at->scatters)
		MUST(tutti_reduce_scatter_each(at->sum, at->count, TUTTI_F32, TUTTI_SUM, take_block,
					       at, at->comm, NULL));
	else if (way == EACH)
		MUST(tutti_all_gather_each(at->blocks + (size_t)at->rank * at->count, at->count,
					   TUTTI_F32, take_block, at, at->comm, NULL));
	else {
		if (way == AFTER && at->scatters)
			overlap_compute(at);
		overlap_communicate(at);
		if (way == AFTER && !at->scatters)
			overlap_compute(at);
	}
}

/* All that is sent is written anew, as by the layer before. */
static void overlap_dirty(const struct setting *at, int round)
{
	float *own = at->blocks + (size_t)at->rank * at->count;

	if (at->scatters)
		for (size_t i = 0; i < at->count * (size_t)at->size; i++)
			at->blocks[i] = (float)(i % 31) + (float)(round % 7);
	else
		for (size_t i = 0; i < at->count; i++)
			own[i] = (float)(i % 31) + (float)(round % 7);
}

/* Milliseconds: of the slowest rank, and of processor time, the ranks' mean. */
struct times {
	double wall[ROUNDS_MAX], cpu[ROUNDS_MAX];
};

static void overlap_measure(struct setting *at, int way, int round, struct times *times)
{
	overlap_dirty(at, round);
	MUST(tutti_barrier(at->comm, NULL));
	double wall = overlap_now_ms(CLOCK_MONOTONIC),
	       cpu = overlap_now_ms(CLOCK_PROCESS_CPUTIME_ID);
	overlap_run(at, way);
	wall = overlap_now_ms(CLOCK_MONOTONIC) - wall;
	cpu = overlap_now_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	MUST(tutti_all_reduce(&wall, &wall, 1, TUTTI_F64, TUTTI_MAX, at->comm, NULL));
	MUST(tutti_all_reduce(&cpu, &cpu, 1, TUTTI_F64, TUTTI_AVG, at->comm, NULL));
	if (round >= 0) {
		times->wall[round] = wall;
		times->cpu[round] = cpu;
	}
}

static struct times times[WAYS];
static double hidden[ROUNDS_MAX];

static void overlap_report(const struct setting *at)
{
	int n = at->rounds;

	for (int i = 0; i < n; i++)
		hidden[i] = (times[AFTER].wall[i] - times[EACH].wall[i]) / times[ALONE].wall[i];
	double middle = median(hidden, n), low = hidden[n / 4], high = hidden[n - 1 - n / 4];
	if (at->rank != 0)
		return;
	printf("# %s%s, %d ranks, blocks of %d x %d f32, %d columns, %d busy processes, %d rounds; "
	       "medians, ms\n",
	       at->scatters ? "reduce_scatter" : "all_gather",
	       at->is_zero_copy ? ", zero copy" : "", at->size, at->rows, WIDTH, at->columns,
	       at->load, n);
	printf("# %10s %10s %10s   hidden: (after - each) / alone\n", "alone", "after", "each");
	printf("  %10.3f %10.3f %10.3f   %.2f (%.2f-%.2f)\n", median(times[ALONE].wall, n),
	       median(times[AFTER].wall, n), median(times[EACH].wall, n), middle, low, high);
	printf("# %10.3f %10.3f %10.3f   of processor time\n", median(times[ALONE].cpu, n),
	       median(times[AFTER].cpu, n), median(times[EACH].cpu, n));
}

static void overlap_measure_all(struct setting *at)
{
	for (int round = -1; round < at->rounds; round++)
		for (int i = 0; i < WAYS; i++) {
			int way = (i + round + WAYS) % WAYS; /* each begins some rounds */
			overlap_measure(at, way, round, &times[way]);
		}
	overlap_report(at);
}

static int overlap_number(const char *text, int least, int most)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*text >= '0' && *text <= '9' && !*end && value >= least && value <= most)
		return (int)value;
	fprintf(stderr, "overlap: '%s' is not a number from %d to %d.\n%s", text, least, most,
		usage);
	exit(2);
}

static void read_option(struct setting *at, int option)
{
	switch (option) {
	case 'h':
		fputs(usage, stdout);
		exit(fflush(stdout) == 0 ? 0 : 3);
	case 's':
		at->scatters = 1;
		break;
	case 'z':
		at->is_zero_copy = 1;
		break;
	case 'r':
		at->rows = overlap_number(optarg, 1, ROWS_MAX);
		break;
	case 'c':
		at->columns = overlap_number(optarg, 8, COLUMNS_MAX) / 8 * 8;
		break;
	case 'n':
		at->rounds = overlap_number(optarg, 1, ROUNDS_MAX);
		break;
	case 'l':
		at->load = overlap_number(optarg, 0, LOAD_MAX);
		break;
	default:
		fputs(usage, stderr);
		exit(2);
	}
}

static struct setting setting_of(int argc, char **argv)
{
	static const struct option names[] = {
		{"rows", required_argument, NULL, 'r'},   {"columns", required_argument, NULL, 'c'},
		{"rounds", required_argument, NULL, 'n'}, {"scatter", no_argument, NULL, 's'},
		{"zero-copy", no_argument, NULL, 'z'},    {"load", required_argument, NULL, 'l'},
		{"help", no_argument, NULL, 'h'},         {0}};
	struct setting at = {.rows = 1024, .columns = 64, .rounds = 20};

	for (int c; (c = getopt_long(argc, argv, "h", names, NULL)) != -1;)
		read_option(&at, c);
	if (optind < argc)
		overlap_number(argv[optind], 1, 0);
	return at;
}

static float *new_floats(size_t count)
{
	float *memory = calloc(count, sizeof(float));

	MUST(memory ? TUTTI_OK : tutti_set_error(TUTTI_ERR_MEMORY, "there is no memory"));
	return memory;
}

static void overlap_make(struct setting *at)
{
	size_t small = (size_t)at->rows * (size_t)at->columns;

	at->rank = tutti_rank(at->comm);
	at->size = tutti_size(at->comm);
	at->count = (size_t)at->rows * WIDTH;
	size_t all = at->count * (size_t)at->size;
	if (at->is_zero_copy)
		MUST(tutti_mem_alloc((void **)&at->blocks, all * sizeof(float), at->comm));
	else
		at->blocks = new_floats(all);
	at->matrix = new_floats((size_t)at->columns * WIDTH);
	at->small = new_floats(small * (size_t)at->size);
	at->sum = new_floats(at->count);
	for (size_t i = 0; i < (size_t)at->columns * WIDTH; i++)
		at->matrix[i] = (float)(i % 13) / 13;
	for (size_t i = 0; i < small * (size_t)at->size; i++)
		at->small[i] = (float)(i % 17) / 17;
}

static int overlap_take_part(int argc, char **argv)
{
	struct setting at = setting_of(argc, argv);
	struct load load = {0};

	MUST(tutti_init(&at.comm, NULL));
	overlap_make(&at);
	if (tutti_local_rank(at.comm) == 0 && !load_start(&load, at.load))
		return 3;
	overlap_measure_all(&at);
	load_stop(&load);
	if (at.is_zero_copy)
		tutti_mem_free(at.blocks);
	else
		free(at.blocks);
	free(at.matrix);
	free(at.small);
	free(at.sum);
	tutti_comm_destroy(at.comm);
	output_flush();
	return output_is_well() ? 0 : 3;
}

int main(int argc, char **argv)
{
	return output_open() ? tutti_main(argc, argv, overlap_take_part) : 3;
}
