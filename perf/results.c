/* Writes nccl-tests' table, and the same as JSON. */
#include "results.h"

#include "library.h"

#include "core/program/output.h"

#include "core/memory/ops.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const char *results_dtype(const struct collective *c, const struct sample *s)
{
	return collective_has_data(c) ? element_name(s->dtype) : "none";
}

static const char *results_op(const struct collective *c, const struct sample *s)
{
	return c->is_reduced ? op_name(s->op) : "none";
}

/* nccl-tests' figures: bytes, and GB/s. */
static size_t results_bytes(const struct sample *s)
{
	return s->shape.whole * element_bytes(s->dtype);
}

static double results_algbw(const struct sample *s)
{
	return s->seconds > 0 ? (double)results_bytes(s) / s->seconds * 1e-9 : 0;
}

static double results_busbw(const struct sample *s, const struct bench *b)
{
	return results_algbw(s) * collective_bus_factor(b->collective, b->ranks);
}

/* The most that this machine has. With a GPU. */
static int results_ranks_per_gpu(const struct bench *b)
{
	const char *why;
	int gpus = gpu_rank_count(&why);

	return (tutti_local_size(b->comm) + gpus - 1) / gpus;
}

/* ---- the table ---- */

static void results_print_header(bool has_percentiles)
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

static void results_print_head(const struct bench *b)
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
		printf("# Buffers on GPUs: %s, %d rank%s each; times by events%s.\n", b->gpu->name,
		       results_ranks_per_gpu(b), results_ranks_per_gpu(b) == 1 ? "" : "s",
		       o->graphs ? ", of a CUDA graph" : "");
	if (b->ranks == 1)
		printf("# One rank talks to nobody: use --ranks N, -t N or a launcher.\n");
	results_print_header(o->percentiles);
	output_flush();
}

static void results_print_sample(struct results *t, const struct bench *b, const struct sample *s)
{
	double bus = results_busbw(s, b);

	if (s->is_left_out) {
		printf(" %8s %7s %7s %6s", "N/A", "N/A", "N/A", "N/A");
		return;
	}
	printf(" %8.2f %7.2f %7.2f", s->seconds * 1e6, results_algbw(s), bus);
	if (bench_is_checked(b))
		printf(" %6" PRIu64, s->wrong);
	else
		printf(" %6s", "N/A");
	t->bus_sum += bus;
	t->rows++;
	t->failed += s->wrong != 0;
}

static void results_print_percentiles(const struct sample *s)
{
	const struct percentiles *p = &s->percentiles;

	if (s->is_left_out)
		printf(" %8s %8s %8s %8s", "N/A", "N/A", "N/A", "N/A");
	else
		printf(" %8.2f %8.2f %8.2f %8.2f", p->p50, p->p99, p->min, p->max);
}

static void results_print_row(struct results *t, const struct bench *b,
			      const struct sample samples[2])
{
	const struct sample *s = &samples[0];
	const struct collective *c = b->collective;

	printf("%12zu %13zu %9s %7s %7d", results_bytes(s), s->shape.count, results_dtype(c, s),
	       results_op(c, s), c->has_root ? s->root : -1);
	results_print_sample(t, b, &samples[0]);
	results_print_sample(t, b, &samples[1]);
	for (int i = 0; b->options->percentiles && i < 2; i++)
		results_print_percentiles(&samples[i]);
	putchar('\n');
	output_flush();
}

/* ---- JSON ---- */

/* "key": "text", and a comma. */
static void results_put_text(const struct results *j, const char *key, const char *text)
{
	fprintf(j->json.stream, "\"%s\": \"", key);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < ' ' || c == '"' || c == '\\')
			fprintf(j->json.stream, "\\u%04x", c);
		else
			fputc(c, j->json.stream);
	}
	fputs("\", ", j->json.stream);
}

static void results_put_number(const struct results *j, const char *key, size_t number)
{
	fprintf(j->json.stream, "\"%s\": %zu, ", key, number);
}

/* The command line, by its options' long names. */
static void results_put_settings(const struct results *j, const struct bench *b)
{
	const struct options *o = b->options;

	fputs(" \"settings\": {", j->json.stream);
	results_put_number(j, "minbytes", o->min_bytes);
	results_put_number(j, "maxbytes", o->max_bytes);
	results_put_number(j, o->step_factor ? "stepfactor" : "stepbytes",
			   o->step_factor ? o->step_factor : o->step_bytes);
	results_put_number(j, "iters", (size_t)o->iterations);
	results_put_number(j, "warmup_iters", (size_t)o->warmups);
	results_put_number(j, "agg_iters", (size_t)o->aggregated);
	results_put_number(j, "check", o->check != 0);
	results_put_number(j, "dirty", o->check || o->dirty);
	results_put_text(j, "datatype",
			 o->dtype == ALL ? "all" : element_name((tutti_dtype)o->dtype));
	results_put_text(j, "op", o->op == ALL ? "all" : op_name((tutti_op)o->op));
	fprintf(j->json.stream, "\"root\": %d, ", o->root);
	results_put_number(j, "blocking", (size_t)o->blocking);
	results_put_number(j, "nthreads", (size_t)o->threads);
	results_put_number(j, "ngpus", (size_t)o->gpus);
	results_put_number(j, "cudagraph", (size_t)o->graphs);
	results_put_number(j, "unalign", (size_t)o->unalign);
	results_put_number(j, "average", (size_t)o->average);
	results_put_number(j, "zero_copy", (size_t)o->zero_copy);
	results_put_number(j, "load", (size_t)o->load);
	fprintf(j->json.stream, "\"percentiles\": %d},\n", o->percentiles);
}

static void results_put_head(const struct results *j, const struct bench *b)
{
	fputs("{", j->json.stream);
	results_put_text(j, "program", program_invocation_short_name);
	results_put_text(j, "library", library_name());
	fprintf(j->json.stream, "\"ranks\": %d, \"nodes\": %d,\n", b->ranks,
		tutti_num_nodes(b->comm));
	results_put_text(j, "memory", b->gpu ? "cuda" : "host");
	if (b->gpu) {
		results_put_text(j, "gpu", b->gpu->name);
		results_put_number(j, "ranks_per_gpu", (size_t)results_ranks_per_gpu(b));
	}
	results_put_settings(j, b);
	fputs(" \"rows\": [", j->json.stream);
}

static void results_put_row(struct results *j, const struct bench *b, const struct sample *s)
{
	const struct collective *c = b->collective;
	const struct percentiles *p = &s->percentiles;

	if (!j->json.stream || s->is_left_out)
		return;
	fputs(j->json_rows++ > 0 ? ",\n  {" : "\n  {", j->json.stream);
	results_put_number(j, "bytes", results_bytes(s));
	results_put_number(j, "count", s->shape.count);
	results_put_text(j, "dtype", results_dtype(c, s));
	results_put_text(j, "op", results_op(c, s));
	fprintf(j->json.stream, "\"root\": %d, \"in_place\": %s, ", c->has_root ? s->root : -1,
		s->in_place ? "true" : "false");
	fprintf(j->json.stream, "\"time_us\": %.4f, \"algbw\": %.6f, \"busbw\": %.6f, ",
		s->seconds * 1e6, results_algbw(s), results_busbw(s, b));
	if (bench_is_checked(b))
		fprintf(j->json.stream, "\"wrong\": %" PRIu64, s->wrong);
	else
		fputs("\"wrong\": null", j->json.stream);
	if (b->options->percentiles)
		fprintf(j->json.stream,
			", \"p50_us\": %.3f, \"p99_us\": %.3f, \"min_us\": %.3f, \"max_us\": %.3f",
			p->p50, p->p99, p->min, p->max);
	fputc('}', j->json.stream);
}

/* ---- both ---- */

static bool results_complain(const char *path)
{
	fprintf(stderr, "%s: cannot write %s: %s.\n", program_invocation_short_name, path,
		strerror(errno));
	return false;
}

bool results_open(struct results *r, const char *path)
{
	return !path || whole_file_open(&r->json, path) || results_complain(path);
}

void results_begin(struct results *r, const struct bench *b)
{
	results_print_head(b);
	if (r->json.stream)
		results_put_head(r, b);
}

void results_left_out(const char *subject, const char *why)
{
	printf("# %s: %s.\n", subject, why);
	output_flush();
}

void results_row(struct results *r, const struct bench *b, const struct sample samples[2])
{
	results_print_row(r, b, samples);
	results_put_row(r, b, &samples[0]);
	results_put_row(r, b, &samples[1]);
}

void results_end(const struct results *r)
{
	printf("# Out of bounds values : %d %s\n", r->failed, r->failed ? "FAILED" : "OK");
	printf("# Avg bus bandwidth    : %g\n#\n", r->rows ? r->bus_sum / r->rows : 0.0);
	output_flush();
}

bool results_close(struct results *r, const char *path, bool is_complete)
{
	if (r->json.stream && is_complete)
		fputs("\n ]}\n", r->json.stream);
	return whole_file_close(&r->json, is_complete) || results_complain(path);
}
