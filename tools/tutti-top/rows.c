/* The rows of tutti-top's table, as text and as JSON. */
#include "rows.h"

#include "tools/must.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A line of the table: a communicator of a process. */
struct row {
	const struct trace_process *process;
	const struct trace_comm *comm;
	const struct trace_op *op; /* the oldest in flight, or the latest; NULL: there is none */
	bool waits;                /* op has told what it waits for                            */
	double calls, bytes;       /* begun, and named in calls; a second, since before        */
};

static const struct trace_comm *rows_find(const struct sample *s, int pid,
					  const struct trace_comm *comm)
{
	for (size_t i = 0; i < s->log.count; i++)
		for (size_t c = 0;
		     s->log.processes[i].pid == pid && c < s->log.processes[i].comm_count; c++)
			if (s->log.processes[i].comms[c].name == comm->name &&
			    s->log.processes[i].comms[c].rank == comm->rank)
				return &s->log.processes[i].comms[c];
	return NULL;
}

/* Of more operations than a trace remembers, those that it does stand for all. */
static void rows_find_rates(struct row *row, const struct trace_comm *before, double seconds)
{
	const struct trace_comm *now = row->comm;
	size_t seen = 0;
	double bytes = 0;

	if (!before || now->issued <= before->issued || seconds <= 0)
		return;
	for (size_t k = 0; k < now->op_count; k++)
		if (now->ops[k].index >= before->issued) {
			bytes += (double)now->ops[k].bytes;
			seen++;
		}
	row->calls = (double)(now->issued - before->issued) / seconds;
	row->bytes = seen ? bytes / (double)seen * row->calls : 0;
}

/* The oldest in flight, or the latest. */
static const struct trace_op *rows_find_operation(const struct trace_comm *c)
{
	for (size_t k = 0; k < c->op_count; k++)
		if (c->ops[k].state == TRACE_STATE_RUNS)
			return &c->ops[k];
	return c->op_count ? &c->ops[c->op_count - 1] : NULL;
}

/* A short call that was over at once has no time of its own. */
static double rows_seconds(const struct row *row, bool *is_about)
{
	const struct trace_op *op = row->op;
	int64_t now_ns = row->process->now_ns;
	int64_t since = op->state == TRACE_STATE_RUNS || op->end_ns == TRACE_UNKNOWN
				? op->earliest_ns
				: op->end_ns;

	*is_about = op->earliest_ns < op->latest_ns;
	return now_ns > since ? (double)(now_ns - since) * 1e-9 : 0.0;
}

static void rows_print_operation(const struct row *row, FILE *file)
{
	char what[ATTACH_OP_BYTES], ago[32] = "-";
	bool is_about;

	attach_op_name(row->op, what);
	if (row->op) {
		double seconds = rows_seconds(row, &is_about);
		snprintf(ago, sizeof ago, "%s%.3f s", is_about ? "<" : "", seconds);
	}
	fprintf(file, " %-24s %-9s %10s", what, row->op ? trace_state_names[row->op->state] : "-",
		ago);
}

static void rows_print_row(const struct row *row, FILE *file)
{
	const struct trace_comm *c = row->comm;
	char who[16] = "-";

	fprintf(file, "%8d %4d %5d  %08x %-10s", row->process->pid, c->rank, c->size,
		(unsigned)(c->name >> 32), c->title[0] ? c->title : "-");
	rows_print_operation(row, file);
	if (row->waits && c->waits_rank >= 0)
		snprintf(who, sizeof who, "rank %d", c->waits_rank);
	fprintf(file, " %-10s %11.1f %11.3f", who, row->calls, row->bytes * 1e-6);
	if (row->op && row->op->label[0])
		fprintf(file, "  (%s)", row->op->label);
	if (row->waits)
		fprintf(file, "  %s", c->waits);
	if (c->status != TUTTI_OK)
		fprintf(file, "  failed: %s", tutti_status_string((tutti_status)c->status));
	fputc('\n', file);
}

static int rows_compare(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

/* The communicators of most ranks first. */
static int rows_compare_rows(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int order = rows_compare(y->comm->size, x->comm->size);

	if (order == 0)
		order = (x->comm->name > y->comm->name) - (x->comm->name < y->comm->name);
	if (order == 0)
		order = rows_compare(x->comm->rank, y->comm->rank);
	return order ? order : rows_compare(x->process->pid, y->process->pid);
}

static void rows_fill(struct row *row, const struct sample *before, double seconds)
{
	const struct trace_comm *c = row->comm;
	const struct trace_op *op = rows_find_operation(c);

	row->op = op;
	row->waits =
		op && op->state == TRACE_STATE_RUNS && c->waits[0] && c->waits_index == op->index;
	rows_find_rates(row, rows_find(before, row->process->pid, c), seconds);
}

/* The largest communicators first, by rank. The caller frees them, before now is freed. */
static struct row *rows_of(const struct sample *before, const struct sample *now, size_t *count)
{
	double seconds = (double)(now->ns - before->ns) * 1e-9;
	const struct log *log = &now->log;
	struct row *rows = NULL;
	size_t room = 0, n = 0;

	for (size_t i = 0; i < log->count; i++)
		for (size_t c = 0; c < log->processes[i].comm_count; c++) {
			rows = must_grow(rows, n, &room, sizeof *rows);
			rows[n] = (struct row){.process = &log->processes[i],
					       .comm = &log->processes[i].comms[c]};
			rows_fill(&rows[n++], before, seconds);
		}
	if (n)
		qsort(rows, n, sizeof *rows, rows_compare_rows);
	*count = n;
	return rows;
}

void sample_print(const struct sample *before, const struct sample *now, FILE *file)
{
	size_t count;
	struct row *rows = rows_of(before, now, &count);

	fprintf(file, "%8s %4s %5s  %-8s %-10s %-24s %-9s %10s %-10s %11s %11s\n", "PID", "RANK",
		"RANKS", "COMM", "NAME", "OPERATION", "STATE", "SINCE", "WAITS FOR", "CALLS/S",
		"MB/S");
	for (size_t i = 0; i < count; i++)
		rows_print_row(&rows[i], file);
	if (!count)
		fputs("No process that this user may look at has a communicator of Tutti.\n", file);
	free(rows);
}

/* As JSON, for the page. The texts are those of traces: printable, without quotes and backslashes.
 */

static void rows_json_operation(const struct row *row, FILE *file)
{
	char what[ATTACH_OP_BYTES];
	bool is_about;
	double seconds;

	attach_op_name(row->op, what);
	if (!row->op)
		return;
	seconds = rows_seconds(row, &is_about);
	fprintf(file,
		",\"operation\":\"%s\",\"state\":\"%s\",\"seconds\":%.6f,\"is_about\":%s"
		",\"label\":\"%s\"",
		what, trace_state_names[row->op->state], seconds, is_about ? "true" : "false",
		row->op->label);
	if (row->waits)
		fprintf(file, ",\"waits\":\"%s\",\"waits_for\":%d", row->comm->waits,
			row->comm->waits_rank);
}

static void rows_json_row(const struct row *row, FILE *file)
{
	const struct trace_comm *c = row->comm;

	fprintf(file,
		"{\"pid\":%d,\"host\":\"%s\",\"rank\":%d,\"ranks\":%d,\"comm\":\"%016" PRIx64
		"\",\"name\":\"%s\",\"way\":\"%s\",\"calls\":%.3f,\"bytes\":%.3f",
		row->process->pid, row->process->host, c->rank, c->size, c->name, c->title, c->way,
		row->calls, row->bytes);
	rows_json_operation(row, file);
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
		rows_json_row(&rows[i], file);
	}
	fputs("]}\n", file);
	free(rows);
}
