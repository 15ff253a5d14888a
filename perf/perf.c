/* The driver of all benchmark programs: the sweep over types, operations, roots and sizes. */
#include "collective.h"

#include "bench.h"
#include "options.h"
#include "start.h"
#include "table.h"

#include <stdio.h>
#include <stdlib.h>

struct job {
	struct bench bench;
	struct table table;
};

static tutti_status measure_size(struct job *j, struct sample sample, size_t bytes)
{
	struct bench *b = &j->bench;
	struct sample both[2];

	sample.shape = b->collective->shape(bytes / element_bytes(sample.dtype), b->rank, b->ranks);
	for (int i = 0; i < 2; i++) {
		both[i] = sample;
		both[i].in_place = i == 1;
		TRY(bench_measure(b, &both[i]));
		j->table.failed += b->rank != 0 && both[i].wrong != 0;
	}
	if (b->rank == 0)
		table_row(&j->table, b, both);
	return TUTTI_OK;
}

static tutti_status sweep_sizes(struct job *j, struct sample sample)
{
	const struct options *o = j->bench.options;
	size_t element = element_bytes(sample.dtype);

	for (size_t bytes = o->min_bytes; bytes != SIZE_MAX;
	     bytes = options_next_size(o, bytes, element))
		TRY(measure_size(j, sample, bytes));
	return TUTTI_OK;
}

static tutti_status sweep_roots(struct job *j, struct sample sample)
{
	struct bench *b = &j->bench;
	int first = b->options->root, last = first;

	if (b->options->root == ALL) {
		first = 0;
		last = b->ranks - 1;
	}
	if (!b->collective->has_root)
		first = last = 0;
	values_finish(&b->values);
	if (!values_init(&b->values, b->ranks, sample.dtype, sample.op, b->collective->is_reduced))
		return TUTTI_ERR_MEMORY;
	for (sample.root = first; sample.root <= last; sample.root++)
		TRY(sweep_sizes(j, sample));
	return TUTTI_OK;
}

/* Types outside, then operations, as nccl-tests has it. What reduces nothing has one operation. */
static tutti_status sweep(struct job *j)
{
	const struct options *o = j->bench.options;
	bool is_reduced = j->bench.collective->is_reduced;

	for (int dtype = 0; dtype < DTYPES; dtype++) {
		for (int op = 0; op < (is_reduced ? OPS : 1); op++) {
			struct sample s = {.dtype = (tutti_dtype)dtype, .op = (tutti_op)op};
			bool is_asked = is_reduced ? options_include(o, s.dtype, s.op) &&
							     operation_fits(s.op, s.dtype)
						   : o->dtype == ALL || o->dtype == dtype;

			if (is_asked)
				TRY(sweep_roots(j, s));
		}
	}
	return TUTTI_OK;
}

struct plan {
	const struct options *options;
	const struct collective *collective;
};

/* One rank's whole part. Returns its exit code. */
static int run(tutti_comm *comm, const void *arg)
{
	const struct plan *plan = arg;
	struct job job = {0};
	tutti_status status;

	if (plan->collective->has_root && plan->options->root >= tutti_size(comm)) {
		if (tutti_rank(comm) == 0)
			fprintf(stderr, "%s_perf: -r %d, but there are %d ranks.\n",
				plan->collective->name, plan->options->root, tutti_size(comm));
		return 2;
	}
	status = bench_init(&job.bench, plan->options, plan->collective, comm);
	if (status == TUTTI_OK && job.bench.rank == 0)
		table_begin(&job.bench);
	if (status == TUTTI_OK)
		status = sweep(&job);
	if (status != TUTTI_OK)
		fprintf(stderr, "%s_perf: rank %d: %s: %s\n", plan->collective->name,
			job.bench.rank, tutti_status_string(status), tutti_comm_error(NULL));
	else if (job.bench.rank == 0)
		table_end(&job.table);
	bench_finish(&job.bench);
	return status != TUTTI_OK ? 3 : job.table.failed ? 1 : 0;
}

int perf_main(int argc, char **argv, const struct collective *collective)
{
	struct options options;
	struct plan plan = {&options, collective};
	tutti_comm *comm;
	int code = options_parse(&options, argc, argv, collective);

	if (code >= 0)
		return code;
	if (options.ranks)
		return start_processes(options.ranks, argc, argv);
	if (options.threads > 1)
		return start_threads(options.threads, run, &plan);
	if (tutti_init(&comm, NULL) != TUTTI_OK) {
		fprintf(stderr, "%s_perf: tutti_init failed: %s\n", collective->name,
			tutti_comm_error(NULL));
		return 3;
	}
	code = run(comm, &plan);
	tutti_comm_destroy(comm);
	return code;
}
