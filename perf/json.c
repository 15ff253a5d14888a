/* Writes the results as JSON. */
#include "json.h"

#include "library.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static bool json_complain(const char *path)
{
	fprintf(stderr, "%s: cannot write %s: %s.\n", program_invocation_short_name, path,
		strerror(errno));
	return false;
}

bool json_open(struct json *j, const char *path)
{
	*j = (struct json){.path = path};
	if (!path)
		return true;
	if (!whole_file_open(&j->output, path))
		return json_complain(path);
	j->file = j->output.stream;
	return true;
}

/* "key": "text", and a comma. */
static void put_text(const struct json *j, const char *key, const char *text)
{
	fprintf(j->file, "\"%s\": \"", key);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < ' ' || c == '"' || c == '\\')
			fprintf(j->file, "\\u%04x", c);
		else
			fputc(c, j->file);
	}
	fputs("\", ", j->file);
}

static void json_put_number(const struct json *j, const char *key, size_t number)
{
	fprintf(j->file, "\"%s\": %zu, ", key, number);
}

/* The command line, by its options' long names. */
static void put_settings(const struct json *j, const struct bench *b)
{
	const struct options *o = b->options;

	fputs(" \"settings\": {", j->file);
	json_put_number(j, "minbytes", o->min_bytes);
	json_put_number(j, "maxbytes", o->max_bytes);
	json_put_number(j, o->step_factor ? "stepfactor" : "stepbytes",
			o->step_factor ? o->step_factor : o->step_bytes);
	json_put_number(j, "iters", (size_t)o->iterations);
	json_put_number(j, "warmup_iters", (size_t)o->warmups);
	json_put_number(j, "agg_iters", (size_t)o->aggregated);
	json_put_number(j, "check", o->check != 0);
	json_put_number(j, "dirty", o->check || o->dirty);
	put_text(j, "datatype", o->dtype == ALL ? "all" : element_name((tutti_dtype)o->dtype));
	put_text(j, "op", o->op == ALL ? "all" : operation_name((tutti_op)o->op));
	fprintf(j->file, "\"root\": %d, ", o->root);
	json_put_number(j, "blocking", (size_t)o->blocking);
	json_put_number(j, "nthreads", (size_t)o->threads);
	json_put_number(j, "ngpus", (size_t)o->gpus);
	json_put_number(j, "cudagraph", (size_t)o->graphs);
	json_put_number(j, "unalign", (size_t)o->unalign);
	json_put_number(j, "average", (size_t)o->average);
	json_put_number(j, "zero_copy", (size_t)o->zero_copy);
	json_put_number(j, "load", (size_t)o->load);
	fprintf(j->file, "\"percentiles\": %d},\n", o->percentiles);
}

void json_begin(struct json *j, const struct bench *b)
{
	if (!j->file)
		return;
	fputs("{", j->file);
	put_text(j, "program", program_invocation_short_name);
	put_text(j, "library", library_name());
	fprintf(j->file, "\"ranks\": %d, \"nodes\": %d,\n", b->ranks, tutti_num_nodes(b->comm));
	put_text(j, "memory", b->gpu ? "cuda" : "host");
	if (b->gpu) {
		put_text(j, "gpu", gpu_rank_name(b->gpu));
		json_put_number(j, "ranks_per_gpu", (size_t)bench_ranks_per_gpu(b));
	}
	put_settings(j, b);
	fputs(" \"rows\": [", j->file);
}

void json_row(struct json *j, const struct bench *b, const struct sample *s)
{
	const struct collective *c = b->collective;
	const struct percentiles *p = &s->percentiles;

	if (!j->file || s->is_left_out)
		return;
	fputs(j->rows++ > 0 ? ",\n  {" : "\n  {", j->file);
	json_put_number(j, "bytes", sample_bytes(s));
	json_put_number(j, "count", s->shape.count);
	put_text(j, "dtype", collective_has_data(c) ? element_name(s->dtype) : "none");
	put_text(j, "op", c->is_reduced ? operation_name(s->op) : "none");
	fprintf(j->file, "\"root\": %d, \"in_place\": %s, ", c->has_root ? s->root : -1,
		s->in_place ? "true" : "false");
	fprintf(j->file, "\"time_us\": %.4f, \"algbw\": %.6f, \"busbw\": %.6f, ", s->seconds * 1e6,
		sample_algbw(s), sample_busbw(s, b));
	if (bench_is_checked(b))
		fprintf(j->file, "\"wrong\": %" PRIu64, s->wrong);
	else
		fputs("\"wrong\": null", j->file);
	if (b->options->percentiles)
		fprintf(j->file,
			", \"p50_us\": %.3f, \"p99_us\": %.3f, \"min_us\": %.3f, \"max_us\": %.3f",
			p->p50, p->p99, p->min, p->max);
	fputc('}', j->file);
}

bool json_close(struct json *j, bool is_complete)
{
	if (!j->file)
		return true;
	if (is_complete)
		fputs("\n ]}\n", j->file);
	j->file = NULL;
	return whole_file_close(&j->output, is_complete) || json_complain(j->path);
}
