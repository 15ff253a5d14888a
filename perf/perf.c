/* The sweep over types, operations, roots and sizes. */
#include "bench.h"
#include "gpu_rank.h"
#include "library.h"
#include "load.h"
#include "options.h"
#include "results.h"
#include "start.h"

#include "core/memory/ops.h"
#include "core/memory_left.h"
#include "core/program/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct job {
	struct bench bench;
	struct results results;
	struct load load;  /* of the first rank of a machine */
	bool has_joined;   /* the library's ranks */
	bool is_refused;   /* it cannot begin, and a message has said why */
	bool is_unwritten; /* the table could not be written; rank 0 has said why */
};

static struct request perf_request_of(const struct options *o, const struct collective *c)
{
	return (struct request){
		.collective = c,
		.is_async = !o->gpus && (o->aggregated > 1 || o->blocking == 0),
		.is_on_gpu = o->gpus > 0,
		.is_zero_copy = o->zero_copy,
	};
}

/* Why the library cannot be asked for that measurement; NULL: it can. */
static const char *perf_refusal(const struct bench *b, const struct sample *s)
{
	struct request request = perf_request_of(b->options, b->collective);

	request.dtype = s->dtype;
	request.op = s->op;
	request.root = s->root;
	request.in_place = s->in_place;
	return library_refuses(&request);
}

/* Collective: what rank 0 has printed is written, or all ranks end. */
static tutti_status perf_show(struct job *j)
{
	int32_t is_shown = j->bench.rank != 0 || output_is_well();

	TRY(tutti_all_reduce(&is_shown, &is_shown, 1, TUTTI_I32, TUTTI_MIN, j->bench.comm, NULL));
	j->is_unwritten = !is_shown;
	return is_shown ? TUTTI_OK : TUTTI_ERR_SYSTEM;
}

/* Elements of the message, which a barrier has none of. */
static tutti_status perf_measure_size(struct job *j, struct sample sample, size_t elements)
{
	struct bench *b = &j->bench;
	const struct collective *c = b->collective;
	struct sample both[2];

	sample.shape =
		collective_shape(c, elements, (struct place){b->rank, b->ranks, sample.root});
	for (int i = 0; i < 2; i++) {
		both[i] = sample;
		both[i].in_place = i == 1;
		both[i].is_left_out = i == 1 && (c->is_never_in_place || perf_refusal(b, &both[i]));
		if (both[i].is_left_out)
			continue;
		TRY(bench_measure(b, &both[i]));
		j->results.failed += b->rank != 0 && both[i].wrong != 0;
	}
	if (b->rank == 0)
		results_row(&j->results, b, both);
	return perf_show(j);
}

static tutti_status perf_sweep_sizes(struct job *j, struct sample sample)
{
	const struct options *o = j->bench.options;
	size_t element = element_bytes(sample.dtype);

	for (size_t bytes = o->min_bytes; bytes != SIZE_MAX;
	     bytes = options_next_size(o, bytes, element))
		TRY(perf_measure_size(j, sample, bytes / element));
	return TUTTI_OK;
}

/* Why that half of the table is empty, where the library is the reason. */
static void perf_explain_in_place(const struct bench *b, struct sample sample)
{
	const char *why;

	sample.in_place = true;
	why = perf_refusal(b, &sample);
	if (why && b->rank == 0 && !b->collective->is_never_in_place)
		results_left_out("in place", why);
}

static tutti_status perf_sweep_roots(struct job *j, struct sample sample)
{
	struct bench *b = &j->bench;
	int first = b->options->root, last = first;

	if (b->options->root == ALL) {
		first = 0;
		last = b->ranks - 1;
	}
	if (!b->collective->has_root)
		first = last = 0;
	TRY(bench_values(b, &sample));
	for (sample.root = first; sample.root <= last; sample.root++) {
		perf_explain_in_place(b, sample);
		TRY(perf_sweep_sizes(j, sample));
	}
	return TUTTI_OK;
}

/* One type and operation; of those that -d all and -o all ask for, what the library lacks is left
 * out. */
static tutti_status perf_sweep_one(struct job *j, struct sample sample)
{
	const struct collective *c = j->bench.collective;
	const char *why = perf_refusal(&j->bench, &sample);
	char subject[64];

	if (!why)
		return perf_sweep_roots(j, sample);
	snprintf(subject, sizeof subject, "%s %s", element_name(sample.dtype),
		 c->is_reduced ? op_name(sample.op) : "is left out");
	if (j->bench.rank == 0)
		results_left_out(subject, why);
	return TUTTI_OK;
}

/* Types outside, then operations, as nccl-tests has it. A collective that reduces nothing has one
 * operation. */
static tutti_status perf_sweep(struct job *j)
{
	const struct options *o = j->bench.options;
	bool is_reduced = j->bench.collective->is_reduced;

	if (!collective_has_data(j->bench.collective))
		return perf_measure_size(j, (struct sample){0}, 0);

	for (int dtype = 0; dtype < DTYPES; dtype++) {
		for (int op = 0; op < (is_reduced ? OPS : 1); op++) {
			struct sample s = {.dtype = (tutti_dtype)dtype, .op = (tutti_op)op};
			bool is_asked = is_reduced ? options_include(o, s.dtype, s.op) &&
							     op_fits(s.op, s.dtype)
						   : o->dtype == ALL || o->dtype == dtype;

			if (is_asked)
				TRY(perf_sweep_one(j, s));
		}
	}
	return TUTTI_OK;
}

struct plan {
	const struct options *options;
	const struct collective *collective;
};

/* Says which wish of the command line cannot be met; NULL: all can. */
static const char *perf_impossible(const struct plan *plan, int ranks)
{
	const struct options *o = plan->options;
	const struct collective *c = plan->collective;
	struct request request = perf_request_of(o, c);
	static _Thread_local char text[100];

	if (c->has_root && o->root >= ranks) {
		snprintf(text, sizeof text, "-r %d, but there are %d ranks", o->root, ranks);
		return text;
	}
	request.dtype = o->dtype == ALL ? TUTTI_I32 : (tutti_dtype)o->dtype;
	request.op = o->op == ALL ? TUTTI_SUM : (tutti_op)o->op;
	return library_refuses(&request);
}

/* Whether this machine has the memory for its ranks: what malloc grants the kernel may take back by
 * killing. The first rank of a machine explains. */
static bool perf_has_room(const struct plan *plan, tutti_comm *comm)
{
	int ranks = tutti_local_size(comm);
	double needs = bench_needs(plan->options, plan->collective, tutti_size(comm));
	double left = (double)memory_left("");
	char one[BENCH_TEXT], all[BENCH_TEXT], there[BENCH_TEXT];

	if (needs * ranks <= left)
		return true;
	if (tutti_local_rank(comm) == 0)
		fprintf(stderr,
			"%s: a rank needs %s of memory, the %d on this machine %s in all, and %s "
			"are left there.\n",
			program_invocation_short_name, bench_text(needs, one), ranks,
			bench_text(needs * ranks, all), bench_text(left, there));
	return false;
}

/* Whether there is a GPU, if one is asked for. */
static bool perf_has_gpu(const struct options *o, tutti_comm *comm)
{
	const char *why;

	if (!o->gpus || gpu_rank_count(&why) > 0)
		return true;
	if (tutti_local_rank(comm) == 0)
		fprintf(stderr, "%s: %s.\n", program_invocation_short_name, why);
	return false;
}

/* Collective, and before anything is taken: whether there is memory on all machines, and the file
 * for rank 0. */
static tutti_status perf_can_begin(struct job *j, const struct plan *plan, tutti_comm *comm)
{
	const struct options *o = plan->options;
	int32_t can = perf_has_gpu(o, comm) && perf_has_room(plan, comm);

	if (can && tutti_local_rank(comm) == 0)
		can = load_start(&j->load, o->load);
	if (can && tutti_rank(comm) == 0)
		can = results_open(&j->results, o->json);
	TRY(tutti_all_reduce(&can, &can, 1, TUTTI_I32, TUTTI_MIN, comm, NULL));
	j->is_refused = !can;
	return TUTTI_OK;
}

static tutti_status perf_measure(struct job *j, const struct plan *plan, tutti_comm *comm)
{
	TRY(perf_can_begin(j, plan, comm));
	if (j->is_refused)
		return TUTTI_OK;
	j->has_joined = true;
	TRY(library_join(comm));
	TRY(bench_init(&j->bench, plan->options, plan->collective, comm));
	if (j->bench.rank == 0)
		results_begin(&j->results, &j->bench);
	TRY(perf_show(j));
	TRY(perf_sweep(j));
	if (j->bench.rank == 0)
		results_end(&j->results);
	return perf_show(j);
}

/* One rank's whole part. Returns its exit code. */
static int perf_run(tutti_comm *comm, const void *arg)
{
	const struct plan *plan = arg;
	struct job job = {0};
	const char *why = perf_impossible(plan, tutti_size(comm));
	tutti_status status;
	bool is_written;

	if (why) {
		if (tutti_rank(comm) == 0)
			fprintf(stderr, "%s: %s.\n", program_invocation_short_name, why);
		tutti_barrier(comm, NULL); /* so that no launcher ends rank 0 before that */
		return 2;
	}
	status = perf_measure(&job, plan, comm);
	is_written = results_close(&job.results, plan->options->json,
				   status == TUTTI_OK && !job.is_refused);
	/* No rank's exit code ends the job before all know how it went. */
	if (status == TUTTI_OK)
		status = tutti_barrier(comm, NULL);
	else if (job.is_unwritten)
		tutti_barrier(comm, NULL); /* a rank that leaves it early has no more to say */
	if (status != TUTTI_OK && !job.is_unwritten)
		fprintf(stderr, "%s: rank %d: %s%s%s\n", program_invocation_short_name,
			tutti_rank(comm), tutti_status_string(status),
			*tutti_comm_error(NULL) ? ": " : ".", tutti_comm_error(NULL));
	load_stop(&job.load);
	bench_finish(&job.bench);
	if (job.has_joined)
		library_leave();
	if (status != TUTTI_OK || !is_written)
		return 3;
	return job.is_refused ? 2 : job.results.failed ? 1 : 0;
}

/* A GPU is current before the communicators are made: so their kernels may meet. A failure comes
 * again when the ranks open theirs. */
static struct gpu_rank *perf_open_first_gpu(const struct options *o)
{
	const char *why, *local = getenv("LOCAL_RANK");
	struct gpu_rank *gpu = NULL;

	if (!library_has_kernels || !o->gpus || gpu_rank_count(&why) == 0 ||
	    gpu_rank_open(&gpu, local && o->threads == 1 ? atoi(local) : 0, NULL) != TUTTI_OK)
		return NULL;
	return gpu;
}

/* In a rank's process, which may have several as threads. */
static int perf_take_part(int rank, void *arg)
{
	const struct plan *plan = arg;
	const struct options *o = plan->options;
	struct gpu_rank *first = perf_open_first_gpu(o);
	/* Whose memory --zero-copy asks for. */
	const tutti_config config = {.device = first ? first->ordinal + 1 : 0};
	int n = o->threads, code = 3;
	tutti_comm **comms = calloc((size_t)n, sizeof(tutti_comm *));
	tutti_status status = !comms  ? TUTTI_ERR_MEMORY
			      : n > 1 ? tutti_init_all(comms, n, &config)
				      : tutti_init(comms, &config);

	(void)rank;
	if (status != TUTTI_OK)
		fprintf(stderr, "%s: tutti_init failed: %s\n", program_invocation_short_name,
			tutti_comm_error(NULL));
	else
		code = start_threads(comms, n, perf_run, plan);
	for (int i = 0; status == TUTTI_OK && i < n; i++)
		tutti_comm_destroy(comms[i]);
	free(comms);
	gpu_rank_close(first);
	output_flush();
	return output_is_well() ? code : 3;
}

/* In processes that it starts. Returns the exit code. */
static int perf_start_ranks(struct plan *plan)
{
	tutti_status status = tutti_spawn(perf_take_part, plan, plan->options->ranks);

	/* A rank that ends with a code of its own has said why, but to a reader who has left. */
	if (status != TUTTI_OK && (status != TUTTI_ERR_PEER || tutti_spawn_exit_code() > 3))
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, tutti_comm_error(NULL));
	return tutti_spawn_exit_code();
}

/* The exit code: 0, 1 wrong values, 2 a bad command line, 3 a call or the output failed; 77: the
 * library is not here. */
int main(int argc, char **argv)
{
	struct options options;
	struct plan plan = {&options, collective_named(perf_collective)};
	const char *why;
	int code;

	if (!output_open())
		return 3;
	code = options_parse(&options, argc, argv, plan.collective);
	if (code >= 0)
		return code;
	why = library_refuses_ranks(options.ranks > 0, options.threads > 1, &code);
	if (why) {
		fprintf(stderr, "%s: %s.\n", program_invocation_short_name, why);
		return code;
	}
	return options.ranks ? perf_start_ranks(&plan) : perf_take_part(0, &plan);
}
