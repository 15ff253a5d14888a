/* overlap: a matrix product on every rank's block, whose blocks are gathered first, or come one by
 * one; and products whose sum over the ranks is scattered. What the second way hides of the
 * communication shows in the difference; it is for loaded machines (--load), too. */
#include "load.h"
#include "measure.h"

#include "core/program/line.h"
#include "core/program/output.h"

#include <tutti/parallel.h>

enum { WIDTH = 1024, ROWS_MAX = 65536, COLUMNS_MAX = 1024 };
/* Of both directions: the collective alone, one after the other, each. */
enum { ALONE, AFTER, EACH, WAYS };

struct setting {
	int ranks, rows, columns, rounds, load, scatters, is_zero_copy;
	tutti_comm *comm;
	int rank, size;
	size_t count;  /* of a block */
	float *blocks; /* one for each rank, in order */
	float *matrix; /* (columns, WIDTH) */
	float *small;  /* (rows, columns) for each rank: results of a gather, inputs of a scatter */
	float *sum;    /* of a scatter: one block */
};

#define AT(member) .at = offsetof(struct setting, member)

static const struct line_option overlap_options[] = {
	{"ranks", 0, "N", AT(ranks), 1, 4096, NULL,
	 "starts N ranks of itself; without it a launcher has"},
	{"rows", 0, "N", AT(rows), 1, ROWS_MAX, NULL, "of a block, 1 to 65536 (1024: 4 MiB)"},
	{"columns", 0, "N", AT(columns), 8, COLUMNS_MAX, NULL,
	 "of the matrix, 8 to 1024, rounded to eights (64)"},
	{"rounds", 0, "N", AT(rounds), 1, MEASURE_ROUNDS, NULL,
	 "counted ones, 1 to 1000 (20); one before them is not"},
	{"scatter", 0, NULL, AT(scatters),
	 .help = "products of so many rows of N columns with 1024 columns, for each\n"
		 "rank's block; reduce_scatter alone, after all products, and\n"
		 "tutti_reduce_scatter_each"},
	{"zero-copy", 0, NULL, AT(is_zero_copy), .help = "blocks in memory of tutti_mem_alloc"},
	{"load", 0, "N", AT(load), 0, LOAD_MAX, NULL,
	 "N busy processes beside the ranks of each machine (0)"},
	{0},
};
static const char overlap_about[] =
	"A block of each rank, N rows of 1024 f32, is multiplied by a matrix of so many columns\n"
	"on all ranks, three ways in turns: all_gather alone; all_gather, then the products; the\n"
	"products in tutti_all_gather_each.\n"
	"Exit code: 0; 2 for a line that cannot be understood; 3 when a call failed.";
static const struct line_table overlap_line = {.options = overlap_options, .about = overlap_about};

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
static void overlap_multiply_wide(const struct setting *at, const float *x, float *y)
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

static float *overlap_small_of(const struct setting *at, int rank)
{
	return at->small + (size_t)rank * (size_t)at->rows * (size_t)at->columns;
}

static tutti_status overlap_take_block(void *arg, int rank, void *data, size_t count)
{
	const struct setting *at = arg;

	(void)count;
	if (at->scatters)
		overlap_multiply_wide(at, overlap_small_of(at, rank), data);
	else
		overlap_multiply(at, data, overlap_small_of(at, rank));
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
		(void)overlap_take_block(at, rank, at->blocks + (size_t)rank * at->count,
					 at->count);
	}
}

static void overlap_run(struct setting *at, int way)
{
	if (way == EACH && at->scatters)
		MUST(tutti_reduce_scatter_each(at->sum, at->count, TUTTI_F32, TUTTI_SUM,
					       overlap_take_block, at, at->comm, NULL));
	else if (way == EACH)
		MUST(tutti_all_gather_each(at->blocks + (size_t)at->rank * at->count, at->count,
					   TUTTI_F32, overlap_take_block, at, at->comm, NULL));
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
static double walls[WAYS][MEASURE_ROUNDS], cpus[WAYS][MEASURE_ROUNDS];

static void overlap_measure(void *arg, int way, int round)
{
	struct setting *at = arg;

	overlap_dirty(at, round);
	MUST(tutti_barrier(at->comm, NULL));
	double wall = measure_seconds(CLOCK_MONOTONIC),
	       cpu = measure_seconds(CLOCK_PROCESS_CPUTIME_ID);
	overlap_run(at, way);
	wall = (measure_seconds(CLOCK_MONOTONIC) - wall) * 1e3;
	cpu = (measure_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e3;
	MUST(tutti_all_reduce(&wall, &wall, 1, TUTTI_F64, TUTTI_MAX, at->comm, NULL));
	MUST(tutti_all_reduce(&cpu, &cpu, 1, TUTTI_F64, TUTTI_AVG, at->comm, NULL));
	if (round < 0)
		return;
	walls[way][round] = wall;
	cpus[way][round] = cpu;
}

static void overlap_report(const struct setting *at)
{
	static double hidden[MEASURE_ROUNDS];
	int n = at->rounds;

	for (int i = 0; i < n; i++)
		hidden[i] = (walls[AFTER][i] - walls[EACH][i]) / walls[ALONE][i];
	double middle = measure_median(hidden, n), low = hidden[n / 4],
	       high = hidden[n - 1 - n / 4];
	if (at->rank != 0)
		return;
	printf("# %s%s, %d ranks, blocks of %d x %d f32, %d columns, %d busy processes, %d rounds; "
	       "medians, ms\n",
	       at->scatters ? "reduce_scatter" : "all_gather",
	       at->is_zero_copy ? ", zero copy" : "", at->size, at->rows, WIDTH, at->columns,
	       at->load, n);
	printf("# %10s %10s %10s   hidden: (after - each) / alone\n", "alone", "after", "each");
	printf("  %10.3f %10.3f %10.3f   %.2f (%.2f-%.2f)\n", measure_median(walls[ALONE], n),
	       measure_median(walls[AFTER], n), measure_median(walls[EACH], n), middle, low, high);
	printf("# %10.3f %10.3f %10.3f   of processor time\n", measure_median(cpus[ALONE], n),
	       measure_median(cpus[AFTER], n), measure_median(cpus[EACH], n));
}

static float *overlap_new_floats(size_t count)
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
		at->blocks = overlap_new_floats(all);
	at->matrix = overlap_new_floats((size_t)at->columns * WIDTH);
	at->small = overlap_new_floats(small * (size_t)at->size);
	at->sum = overlap_new_floats(at->count);
	for (size_t i = 0; i < (size_t)at->columns * WIDTH; i++)
		at->matrix[i] = (float)(i % 13) / 13;
	for (size_t i = 0; i < small * (size_t)at->size; i++)
		at->small[i] = (float)(i % 17) / 17;
}

static int overlap_take_part(int argc, char **argv)
{
	struct setting at = {.rows = 1024, .columns = 64, .rounds = 20};
	struct load load = {0};
	int code = line_parse(&overlap_line, &at, argc, argv);

	if (code >= 0)
		return code;
	at.columns -= at.columns % 8;
	MUST(tutti_init(&at.comm, NULL));
	overlap_make(&at);
	if (tutti_local_rank(at.comm) == 0 && !load_start(&load, at.load))
		return 3;
	measure_turns(at.rounds, WAYS, overlap_measure, &at);
	overlap_report(&at);
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
