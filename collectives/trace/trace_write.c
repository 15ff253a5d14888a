/* Traces as JSON of the Trace Event Format: for viewers "traceEvents", and beside it, under
 * "tutti", which viewers pass over, the same in full, for tutti-trace merge. */
#include "collectives/trace/trace_log.h"

#include <inttypes.h>

/* Of the time line: where it begins. */
static int64_t trace_write_origin_of(const struct trace_process *processes, size_t count)
{
	int64_t origin = INT64_MAX;

	for (size_t i = 0; i < count; i++)
		for (size_t c = 0; c < processes[i].comm_count; c++) {
			const struct trace_comm *comm = &processes[i].comms[c];
			for (size_t k = 0; k < comm->op_count; k++)
				if (comm->ops[k].begin_ns + processes[i].shift_ns < origin)
					origin = comm->ops[k].begin_ns + processes[i].shift_ns;
		}
	return origin == INT64_MAX ? 0 : origin;
}

struct events {
	FILE *file;
	const char *separator;
	int64_t origin_ns;
};

static void trace_write_begin_event(struct events *e)
{
	fprintf(e->file, "%s\n{", e->separator);
	e->separator = ",";
}

static void trace_write_name(struct events *e, const char *what, size_t pid, size_t tid,
			     const char *text)
{
	trace_write_begin_event(e);
	fprintf(e->file,
		"\"ph\":\"M\",\"name\":\"%s\",\"pid\":%zu,\"tid\":%zu,\"args\":{\"name\":\"%s\"}}",
		what, pid, tid, text);
}

/* Where a process or track is drawn: the lowest is the first. */
static void trace_write_place(struct events *e, const char *what, size_t pid, size_t tid,
			      size_t place)
{
	trace_write_begin_event(e);
	fprintf(e->file,
		"\"ph\":\"M\",\"name\":\"%s\",\"pid\":%zu,\"tid\":%zu,\"args\":{\"sort_index\":%zu}"
		"}",
		what, pid, tid, place);
}

static void trace_write_us(FILE *file, const char *name, int64_t ns)
{
	uint64_t size = ns < 0 ? (uint64_t)-ns : (uint64_t)ns;
	fprintf(file, ",\"%s\":%s%" PRIu64 ".%03u", name, ns < 0 ? "-" : "", size / 1000,
		(unsigned)(size % 1000));
}

static void trace_write_args(FILE *file, const struct trace_comm *c, const struct trace_op *op)
{
	fprintf(file, ",\"args\":{\"rank\":%d,\"state\":\"%s\"", c->rank,
		trace_state_names[op->state]);
	if (op->sequence >= 0)
		fprintf(file, ",\"sequence\":%" PRId64, op->sequence);
	fprintf(file, ",\"bytes\":%" PRIu64 ",\"count\":%" PRIu64 ",\"dtype\":\"%s\"", op->bytes,
		op->count, op->dtype);
	fprintf(file, ",\"algorithm\":\"%s\",\"peer\":%d", op->algorithm, op->peer);
	if (op->label[0])
		fprintf(file, ",\"label\":\"%s\"", op->label);
	if (op->last_by_ns)
		trace_write_us(file, "came_last_by_us", op->last_by_ns);
	if (op->is_grouped)
		fputs(",\"in\":\"a group\"", file);
	if (op->earliest_ns < op->latest_ns)
		fputs(",\"time\":\"between its neighbours'\"", file);
	if (c->waits[0] && c->waits_index == op->index)
		fprintf(file, ",\"waits\":\"%s\"", c->waits);
	if (op->is_async) /* it is drawn off its communicator's track */
		fprintf(file, ",\"communicator\":\"%016" PRIx64 "%s%s\"", c->name,
			c->title[0] ? " " : "", c->title);
	fputs("}}", file);
}

/* Until when it is drawn: until now while it runs. Where it was over at once, as long as that can
 * have lasted: until the next began, or a microsecond. */
static int64_t trace_write_drawn_until(const struct trace_process *p, const struct trace_op *op,
				       const struct trace_op *next)
{
	if (op->end_ns != TRACE_UNKNOWN)
		return op->end_ns;
	if (op->state == TRACE_STATE_RUNS)
		return p->now_ns > op->begin_ns ? p->now_ns : op->begin_ns;
	if (next && next->begin_ns >= op->begin_ns && next->begin_ns < op->begin_ns + 1000)
		return next->begin_ns;
	return op->begin_ns + 1000;
}

/* The id is the process's own: an id of all processes is drawn apart from each of them. */
static void trace_write_begin_op(struct events *e, const char *phase, size_t pid, size_t tid,
				 const struct trace_op *op)
{
	trace_write_begin_event(e);
	fprintf(e->file, "\"ph\":\"%s\",\"name\":\"%s\",\"cat\":\"tutti\",\"pid\":%zu,\"tid\":%zu",
		phase, op->name, pid, tid);
	if (op->is_async)
		fprintf(e->file, ",\"id2\":{\"local\":\"%zu.%" PRIu64 "\"}", tid, op->index);
}

/* An operation that its caller waited for is a block on the thread's track; the others may overlap,
 * and have tracks of their own. */
static void trace_write_op(struct events *e, const struct trace_process *p, size_t pid, size_t tid,
			   const struct trace_op *op)
{
	const struct trace_comm *c = &p->comms[tid - 1];
	const struct trace_op *next = op + 1 < c->ops + c->op_count ? op + 1 : NULL;
	int64_t until = trace_write_drawn_until(p, op, next),
		begin = op->begin_ns + p->shift_ns - e->origin_ns;

	trace_write_begin_op(e, op->is_async ? "b" : "X", pid, tid, op);
	trace_write_us(e->file, "ts", begin);
	if (!op->is_async)
		trace_write_us(e->file, "dur", until - op->begin_ns);
	trace_write_args(e->file, c, op);
	if (!op->is_async)
		return;
	trace_write_begin_op(e, "e", pid, tid, op);
	trace_write_us(e->file, "ts", begin + (until - op->begin_ns));
	fputc('}', e->file);
}

static void trace_write_events(struct events *e, const struct trace_process *p, size_t pid)
{
	char text[160];

	snprintf(text, sizeof text, "%s, process %d", p->host, p->pid);
	if (p->comm_count)
		snprintf(text, sizeof text, "rank %d of %d: %s, process %d", p->comms[0].rank,
			 p->comms[0].size, p->host, p->pid);
	trace_write_name(e, "process_name", pid, 0, text);
	trace_write_place(e, "process_sort_index", pid, 0,
			  p->comm_count ? (size_t)p->comms[0].rank : 0);
	for (size_t c = 0; c < p->comm_count; c++) {
		const struct trace_comm *comm = &p->comms[c];
		snprintf(text, sizeof text, "rank %d of %d, communicator %016" PRIx64 "%s%s (%s)",
			 comm->rank, comm->size, comm->name, comm->title[0] ? " " : "", comm->title,
			 comm->way);
		trace_write_name(e, "thread_name", pid, c + 1, text);
		trace_write_place(e, "thread_sort_index", pid, c + 1, c);
		for (size_t k = 0; k < comm->op_count; k++)
			trace_write_op(e, p, pid, c + 1, &comm->ops[k]);
	}
}

static void trace_write_time(FILE *file, int64_t ns, int64_t start_ns)
{
	if (ns == TRACE_UNKNOWN)
		fputs(",\"\"", file);
	else
		fprintf(file, ",%" PRId64, ns - start_ns);
}

static void trace_write_whole_op(FILE *file, const struct trace_op *op, int64_t start_ns)
{
	fprintf(file, "[%" PRIu64 ",%" PRId64 ",\"%s\",\"%s\",\"%s\",%" PRIu64 ",%" PRIu64 ",%d",
		op->index, op->sequence, op->name, op->dtype, op->algorithm, op->count, op->bytes,
		op->peer);
	fprintf(file, ",\"%s\",%d,%d", trace_state_names[op->state], op->is_async, op->is_grouped);
	trace_write_time(file, op->earliest_ns, start_ns);
	trace_write_time(file, op->latest_ns, start_ns);
	trace_write_time(file, op->begin_ns, start_ns);
	trace_write_time(file, op->end_ns, start_ns);
	fputc(']', file);
}

/* Those of the operations that have one. */
static void trace_write_labels(FILE *file, const struct trace_comm *c)
{
	const char *before = ",\"labels\":[";

	for (size_t k = 0; k < c->op_count; k++) {
		if (!c->ops[k].label[0])
			continue;
		fprintf(file, "%s[%" PRIu64 ",\"%s\"]", before, c->ops[k].index, c->ops[k].label);
		before = ",";
	}
	if (before[1] == '\0')
		fputc(']', file);
}

static void trace_write_whole_comm(FILE *file, const struct trace_comm *c, int64_t start_ns)
{
	fprintf(file,
		"{\"name\":\"%016" PRIx64 "\",\"rank\":%d,\"size\":%d,\"node\":%d,\"nodes\":%d,"
		"\"way\":\"%s\",\"status\":%d,\"issued\":%" PRIu64,
		c->name, c->rank, c->size, c->node_rank, c->num_nodes, c->way, c->status,
		c->issued);
	if (c->waits[0])
		fprintf(file, ",\"waits\":{\"index\":%" PRIu64 ",\"rank\":%d,\"text\":\"%s\"}",
			c->waits_index, c->waits_rank, c->waits);
	if (c->title[0])
		fprintf(file, ",\"title\":\"%s\"", c->title);
	trace_write_labels(file, c);
	fputs(",\"operations\":[", file);
	for (size_t k = 0; k < c->op_count; k++) {
		fputs(k ? ",\n" : "\n", file);
		trace_write_whole_op(file, &c->ops[k], start_ns);
	}
	fputs("]}", file);
}

/* A moment of CLOCK_MONOTONIC, and what the date was then: the other times count from there. */
static void trace_write_whole_process(FILE *file, const struct trace_process *p)
{
	fprintf(file,
		"{\"pid\":%d,\"host\":\"%s\",\"boot\":\"%s\",\"library\":\"%s\",\"start_s\":"
		"%" PRId64 ",\"start_ns\":%" PRId64 ",\"date_s\":%" PRId64 ",\"date_ns\":%" PRId64
		",\"read\":%" PRId64 ",\"communicators\":[",
		p->pid, p->host, p->boot, p->library, p->start_ns / 1000000000,
		p->start_ns % 1000000000, p->real_ns / 1000000000, p->real_ns % 1000000000,
		p->now_ns - p->start_ns);
	for (size_t c = 0; c < p->comm_count; c++) {
		fputs(c ? ",\n" : "\n", file);
		trace_write_whole_comm(file, &p->comms[c], p->start_ns);
	}
	fputs("]}", file);
}

void trace_write(FILE *file, const struct trace_process *processes, size_t count)
{
	struct events events = {file, "", trace_write_origin_of(processes, count)};

	fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", file);
	for (size_t i = 0; i < count; i++)
		trace_write_events(&events, &processes[i],
				   count == 1 ? (size_t)processes[i].pid : i + 1);
	fputs("\n],\n\"tutti\":{\"format\":1,\"processes\":[", file);
	for (size_t i = 0; i < count; i++) {
		fputs(i ? ",\n" : "\n", file);
		trace_write_whole_process(file, &processes[i]);
	}
	fputs("]}}\n", file);
}
