#include "table.h"

#include <inttypes.h>
#include <stdio.h>

void table_begin(const struct bench *b)
{
	const struct options *o = b->options;

	printf("# %s_perf (%s), %d ranks, %d nodes\n", b->collective->name, tutti_version(),
	       b->ranks, tutti_num_nodes(b->comm));
	printf("# minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d agg iters: %d "
	       "validation: %d dirty: %d zero copy: %d\n",
	       o->min_bytes, o->max_bytes, o->step_factor ? o->step_factor : o->step_bytes,
	       o->step_factor ? "factor" : "bytes", o->warmups, o->iterations, o->aggregated,
	       o->check > 0, o->check || o->dirty, o->zero_copy);
	if (b->ranks == 1)
		printf("# One rank talks to nobody: use --ranks N, -t N or a launcher.\n");
	printf("#\n# %52s%32s\n", "out-of-place", "in-place");
	printf("# %10s %13s %9s %7s %7s %8s %7s %7s %6s %8s %7s %7s %6s\n", "size", "count", "type",
	       "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
	       "#wrong");
	printf("# %10s %13s %9s %7s %7s %8s %7s %7s %6s %8s %7s %7s %6s\n", "(B)", "(elements)", "",
	       "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
	fflush(stdout);
}

static size_t bytes_of(const struct sample *s)
{
	size_t elements = s->shape.send > s->shape.recv ? s->shape.send : s->shape.recv;

	return elements * element_bytes(s->dtype);
}

static void print_sample(struct table *t, const struct bench *b, const struct sample *s)
{
	double algorithm = s->seconds > 0 ? (double)bytes_of(s) / s->seconds * 1e-9 : 0;
	double bus = algorithm * b->collective->bus_factor(b->ranks);

	printf(" %8.2f %7.2f %7.2f", s->seconds * 1e6, algorithm, bus);
	if (b->options->check)
		printf(" %6" PRIu64, s->wrong);
	else
		printf(" %6s", "N/A");
	t->bus_sum += bus;
	t->rows++;
	t->failed += s->wrong != 0;
}

void table_row(struct table *t, const struct bench *b, const struct sample samples[2])
{
	const struct sample *s = &samples[0];

	printf("%12zu %13zu %9s %7s %7d", bytes_of(s), s->shape.count, element_name(s->dtype),
	       b->collective->is_reduced ? operation_name(s->op) : "none",
	       b->collective->has_root ? s->root : -1);
	print_sample(t, b, &samples[0]);
	print_sample(t, b, &samples[1]);
	putchar('\n');
	fflush(stdout);
}

void table_end(const struct table *t)
{
	printf("# Out of bounds values : %d %s\n", t->failed, t->failed ? "FAILED" : "OK");
	printf("# Avg bus bandwidth    : %g\n#\n", t->rows ? t->bus_sum / t->rows : 0.0);
	fflush(stdout);
}
