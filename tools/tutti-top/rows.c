/* Prints the table of tutti-top. */
#include "rows.h"

#include "tools/must.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct trace_comm *find(const struct sample *s, int pid, const struct trace_comm *comm)
{
	for (size_t i = 0; i < s->log.count; i++)
		for (size_t c = 0;
		     s->log.processes[i].pid == pid && c < s->log.processes[i].comm_count; c++)
			if (s->log.processes[i].comms[c].name == comm->name &&
			    s->log.processes[i].comms[c].rank == comm->rank)
				return &s->log.processes[i].comms[c];
	return NULL;
}

struct rates {
	double calls, bytes; /* a second */
};

/* Of more operations than a trace remembers, those that it does stand for all. */
static struct rates rates_of(const struct trace_comm *before, const struct trace_comm *now,
			     double seconds)
{
	struct rates r = {0};
	size_t seen = 0;
	double bytes = 0;

	if (!before || now->issued <= before->issued || seconds <= 0)
		return r;
	for (size_t k = 0; k < now->op_count; k++)
		if (now->ops[k].index >= before->issued) {
			bytes += (double)now->ops[k].bytes;
			seen++;
		}
	r.calls = (double)(now->issued - before->issued) / seconds;
	r.bytes = seen ? bytes / (double)seen * r.calls : 0;
	return r;
}

/* The oldest in flight, or the latest. */
static const struct trace_op *operation_of(const struct trace_comm *c)
{
	for (size_t k = 0; k < c->op_count; k++)
		if (c->ops[k].state == TRACE_STATE_RUNS)
			return &c->ops[k];
	return c->op_count ? &c->ops[c->op_count - 1] : NULL;
}

static void print_operation(const struct trace_op *op, int64_t now_ns, FILE *file)
{
	char what[48] = "-", ago[32];
	int64_t since;

	if (!op) {
		fprintf(file, " %-24s %-9s %10s", what, "-", "-");
		return;
	}
	if (op->sequence >= 0)
		snprintf(what, sizeof what, "%s #%" PRId64, op->name, op->sequence);
	else if (op->peer >= 0)
		snprintf(what, sizeof what, "%s %s %d", op->name,
			 strcmp(op->name, "send") == 0 ? "to" : "from", op->peer);
	else
		snprintf(what, sizeof what, "%s%s", op->name,
			 strcmp(op->name, "recv") == 0 ? " from any" : "");
	since = op->state == TRACE_STATE_RUNS || op->end_ns == TRACE_UNKNOWN ? op->earliest_ns
									     : op->end_ns;
	/* <: a short call that was over at once has no time of its own. */
	snprintf(ago, sizeof ago, "%s%.3f s", op->earliest_ns < op->latest_ns ? "<" : "",
		 now_ns > since ? (double)(now_ns - since) * 1e-9 : 0.0);
	fprintf(file, " %-24s %-9s %10s", what, trace_state_names[op->state], ago);
}

static void print_row(const struct trace_process *p, const struct trace_comm *c, struct rates rates,
		      FILE *file)
{
	const struct trace_op *op = operation_of(c);
	char who[16] = "-";
	bool waits =
		op && op->state == TRACE_STATE_RUNS && c->waits[0] && c->waits_index == op->index;

	fprintf(file, "%8d %4d %5d  %08x %-10s", p->pid, c->rank, c->size,
		(unsigned)(c->name >> 32), c->title[0] ? c->title : "-");
	print_operation(op, p->now_ns, file);
	if (waits && c->waits_rank >= 0)
		snprintf(who, sizeof who, "rank %d", c->waits_rank);
	fprintf(file, " %-10s %11.1f %11.3f", who, rates.calls, rates.bytes * 1e-6);
	if (op && op->label[0])
		fprintf(file, "  (%s)", op->label);
	if (waits)
		fprintf(file, "  %s", c->waits);
	if (c->status != TUTTI_OK)
		fprintf(file, "  failed: %s", tutti_status_string((tutti_status)c->status));
	fputc('\n', file);
}

/* A line of the table: a communicator of a process. */
struct row {
	const struct trace_process *process;
	const struct trace_comm *comm;
};

static int compare(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

/* The communicators of most ranks first. */
static int by_comm_and_rank(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int order = compare(y->comm->size, x->comm->size);

	if (order == 0)
		order = (x->comm->name > y->comm->name) - (x->comm->name < y->comm->name);
	if (order == 0)
		order = compare(x->comm->rank, y->comm->rank);
	return order ? order : compare(x->process->pid, y->process->pid);
}

static struct row *sorted_rows(const struct log *log, size_t *count)
{
	struct row *rows = NULL;
	size_t room = 0, n = 0;

	for (size_t i = 0; i < log->count; i++)
		for (size_t c = 0; c < log->processes[i].comm_count; c++) {
			rows = must_grow(rows, n, &room, sizeof *rows);
			rows[n++] = (struct row){&log->processes[i], &log->processes[i].comms[c]};
		}
	if (n)
		qsort(rows, n, sizeof *rows, by_comm_and_rank);
	*count = n;
	return rows;
}

void sample_print(const struct sample *before, const struct sample *now, FILE *file)
{
	double seconds = (double)(now->ns - before->ns) * 1e-9;
	size_t count;
	struct row *rows = sorted_rows(&now->log, &count);

	fprintf(file, "%8s %4s %5s  %-8s %-10s %-24s %-9s %10s %-10s %11s %11s\n", "PID", "RANK",
		"RANKS", "COMM", "NAME", "OPERATION", "STATE", "SINCE", "WAITS FOR", "CALLS/S",
		"MB/S");
	for (size_t i = 0; i < count; i++) {
		const struct trace_process *p = rows[i].process;
		const struct trace_comm *c = rows[i].comm;

		print_row(p, c, rates_of(find(before, p->pid, c), c, seconds), file);
	}
	if (!count)
		fputs("No process that this user may look at has a communicator of Tutti.\n", file);
	free(rows);
}
