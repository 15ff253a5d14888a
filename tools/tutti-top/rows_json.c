/* The rows of tutti-top as JSON, for its page. The texts are those of traces: printable, without
 * quotes and backslashes. */
#include "rows.h"

#include <inttypes.h>
#include <stdlib.h>

static void rows_json_print_operation(const struct row *row, FILE *file)
{
	char what[ROW_OPERATION_BYTES];
	bool is_about;
	double seconds;

	row_operation(row, what);
	if (!row->op)
		return;
	seconds = row_seconds(row, &is_about);
	fprintf(file,
		",\"operation\":\"%s\",\"state\":\"%s\",\"seconds\":%.6f,\"is_about\":%s"
		",\"label\":\"%s\"",
		what, trace_state_names[row->op->state], seconds, is_about ? "true" : "false",
		row->op->label);
	if (row->waits)
		fprintf(file, ",\"waits\":\"%s\",\"waits_for\":%d", row->comm->waits,
			row->comm->waits_rank);
}

static void rows_json_print_row(const struct row *row, FILE *file)
{
	const struct trace_comm *c = row->comm;

	fprintf(file,
		"{\"pid\":%d,\"host\":\"%s\",\"rank\":%d,\"ranks\":%d,\"comm\":\"%016" PRIx64
		"\",\"name\":\"%s\",\"way\":\"%s\",\"calls\":%.3f,\"bytes\":%.3f",
		row->process->pid, row->process->host, c->rank, c->size, c->name, c->title, c->way,
		row->calls, row->bytes);
	rows_json_print_operation(row, file);
	if (c->status != TUTTI_OK)
		fprintf(file, ",\"failed\":\"%s\"", tutti_status_string((tutti_status)c->status));
	fputc('}', file);
}

void sample_print_json(const struct sample *before, const struct sample *now, FILE *file)
{
	size_t count;
	struct row *rows = rows_of(before, now, &count);

	fprintf(file, "{\"between\":%.6f,\"rows\":[", (double)(now->ns - before->ns) * 1e-9);
	for (size_t i = 0; i < count; i++) {
		fputs(i ? ",\n" : "\n", file);
		rows_json_print_row(&rows[i], file);
	}
	fputs("]}\n", file);
	free(rows);
}
