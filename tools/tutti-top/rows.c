/* Prints the table of tutti-top. */
#include "rows.h"

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
	char what[48] = "-";
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
		snprintf(what, sizeof what, "%s from any", op->name);
	since = op->state == TRACE_STATE_RUNS || op->end_ns == TRACE_UNKNOWN ? op->begin_ns
									     : op->end_ns;
	fprintf(file, " %-24s %-9s %8.3f s", what, trace_state_names[op->state],
		now_ns > since ? (double)(now_ns - since) * 1e-9 : 0.0);
}

static void print_row(const struct trace_process *p, const struct trace_comm *c, struct rates rates,
		      FILE *file)
{
	const struct trace_op *op = operation_of(c);
	char who[16] = "-";
	bool waits =
		op && op->state == TRACE_STATE_RUNS && c->waits[0] && c->waits_index == op->index;

	fprintf(file, "%8d %4d %5d  %08x", p->pid, c->rank, c->size, (unsigned)(c->name >> 32));
	print_operation(op, p->now_ns, file);
	if (waits && c->waits_rank >= 0)
		snprintf(who, sizeof who, "rank %d", c->waits_rank);
	fprintf(file, " %-10s %11.1f %11.3f", who, rates.calls, rates.bytes * 1e-6);
	if (waits)
		fprintf(file, "  %s", c->waits);
	if (c->status != TUTTI_OK)
		fprintf(file, "  failed: %s", tutti_status_string((tutti_status)c->status));
	fputc('\n', file);
}

static int by_rank(const void *a, const void *b)
{
	const struct trace_process *x = a, *y = b;
	uint64_t x_name = x->comm_count ? x->comms[0].name : 0;
	uint64_t y_name = y->comm_count ? y->comms[0].name : 0;
	int x_rank = x->comm_count ? x->comms[0].rank : 0;
	int y_rank = y->comm_count ? y->comms[0].rank : 0;

	if (x_name != y_name)
		return x_name < y_name ? -1 : 1;
	return (x_rank > y_rank) - (x_rank < y_rank);
}

void sample_print(const struct sample *before, struct sample *now, FILE *file)
{
	double seconds = (double)(now->ns - before->ns) * 1e-9;
	size_t rows = 0;

	if (now->log.count)
		qsort(now->log.processes, now->log.count, sizeof *now->log.processes, by_rank);
	fprintf(file, "%8s %4s %5s  %-8s %-24s %-9s %10s %-10s %11s %11s\n", "PID", "RANK", "RANKS",
		"COMM", "OPERATION", "STATE", "SINCE", "WAITS FOR", "CALLS/S", "MB/S");
	for (size_t i = 0; i < now->log.count; i++) {
		const struct trace_process *p = &now->log.processes[i];
		for (size_t c = 0; c < p->comm_count; c++, rows++)
			print_row(
				p, &p->comms[c],
				rates_of(find(before, p->pid, &p->comms[c]), &p->comms[c], seconds),
				file);
	}
	if (!rows)
		fputs("No process that this user may look at has a communicator of Tutti.\n", file);
}
