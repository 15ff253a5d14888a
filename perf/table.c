/* Writes nccl-tests' table. */
#include "table.h"

#include "library.h"
#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static void print_header(bool has_percentiles)
{
	static const char titles[2][90] = {
		" %10s %13s %9s %7s %7s %8s %7s %7s %6s %8s %7s %7s %6s",
		" %8s %8s %8s %8s %8s %8s %8s %8s",
	};

	printf("#\n# %52s%32s", "out-of-place", "in-place");
	if (has_percentiles)
		printf("%36s%36s", "out-of-place, a call", "in-place, a call");
	printf("\n#");
	printf(titles[0], "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
	       "#wrong", "time", "algbw", "busbw", "#wrong");
	if (has_percentiles)
		printf(titles[1], "p50", "p99", "min", "max", "p50", "p99", "min", "max");
	printf("\n#");
	printf(titles[0], "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
	       "(GB/s)", "(GB/s)", "");
	if (has_percentiles)
		printf(titles[1], "(us)", "(us)", "(us)", "(us)", "(us)", "(us)", "(us)", "(us)");
	putchar('\n');
}

void table_begin(const struct bench *b)
{
	const struct options *o = b->options;

	printf("# %s (%s), %d ranks, %d nodes\n", program_invocation_short_name, library_name(),
	       b->ranks, tutti_num_nodes(b->comm));
	printf("# minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d agg iters: %d "
	       "validation: %d dirty: %d zero copy: %d\n",
	       o->min_bytes, o->max_bytes, o->step_factor ? o->step_factor : o->step_bytes,
	       o->step_factor ? "factor" : "bytes", o->warmups, o->iterations, o->aggregated,
	       o->check > 0, o->check || o->dirty, o->zero_copy);
	if (bench_is_stamped(b) && !b->gpu)
		printf("# Every call is timed by itself: one look at the clock, %.0f ns, is in "
		       "each.\n",
		       stamps_clock_ns());
	if (o->check && !bench_is_checked(b))
		printf("# Not verified: that takes one clock, and there are several nodes.\n");
	if (o->load)
		printf("# Beside the ranks of each machine: %d busy process%s.\n", o->load,
		       o->load == 1 ? "" : "es");
	if (b->gpu)
		printf("# Buffers on GPUs: %s, %d rank%s each; times by events%s.\n",
		       gpu_rank_name(b->gpu), bench_ranks_per_gpu(b),
		       bench_ranks_per_gpu(b) == 1 ? "" : "s",
		       o->graphs ? ", of a CUDA graph" : "");
	if (b->ranks == 1)
		printf("# One rank talks to nobody: use --ranks N, -t N or a launcher.\n");
	print_header(o->percentiles);
	output_flush();
}

void table_left_out(const char *subject, const char *why)
{
	printf("# %s: %s.\n", subject, why);
	output_flush();
}

static void print_sample(struct table *t, const struct bench *b, const struct sample *s)
{
	double bus = sample_busbw(s, b);

	if (s->is_left_out) {
		printf(" %8s %7s %7s %6s", "N/A", "N/A", "N/A", "N/A");
		return;
	}
	printf(" %8.2f %7.2f %7.2f", s->seconds * 1e6, sample_algbw(s), bus);
	if (bench_is_checked(b))
		printf(" %6" PRIu64, s->wrong);
	else
		printf(" %6s", "N/A");
	t->bus_sum += bus;
	t->rows++;
	t->failed += s->wrong != 0;
}

static void print_percentiles(const struct sample *s)
{
	const struct percentiles *p = &s->percentiles;

	if (s->is_left_out)
		printf(" %8s %8s %8s %8s", "N/A", "N/A", "N/A", "N/A");
	else
		printf(" %8.2f %8.2f %8.2f %8.2f", p->p50, p->p99, p->min, p->max);
}

void table_row(struct table *t, const struct bench *b, const struct sample samples[2])
{
	const struct sample *s = &samples[0];
	const struct collective *c = b->collective;

	printf("%12zu %13zu %9s %7s %7d", sample_bytes(s), s->shape.count,
	       collective_has_data(c) ? element_name(s->dtype) : "none",
	       c->is_reduced ? operation_name(s->op) : "none", c->has_root ? s->root : -1);
	print_sample(t, b, &samples[0]);
	print_sample(t, b, &samples[1]);
	for (int i = 0; b->options->percentiles && i < 2; i++)
		print_percentiles(&samples[i]);
	putchar('\n');
	output_flush();
}

void table_end(const struct table *t)
{
	printf("# Out of bounds values : %d %s\n", t->failed, t->failed ? "FAILED" : "OK");
	printf("# Avg bus bandwidth    : %g\n#\n", t->rows ? t->bus_sum / t->rows : 0.0);
	output_flush();
}
