/* Which operations of the ranks belong together, and one time line for all hosts. */
#include "merge.h"

#include "tools/must.h"

#include <math.h>
#include <string.h>

/* Which operations of the ranks are one collective: those of the same number on the same
 * communicator. */

static const char *clocks_parts_host(const struct trace_process *p)
{
	return p->boot[0] ? p->boot : p->host;
}

/* Processes of one boot of a machine have one clock. */
static int clocks_parts_number_host(const struct log *log, size_t process, int *hosts)
{
	for (size_t i = 0; i < process; i++)
		if (strcmp(clocks_parts_host(&log->processes[i]),
			   clocks_parts_host(&log->processes[process])) == 0)
			return log->processes[i].host_number;
	return (*hosts)++;
}

static int clocks_parts_compare(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	if (x->comm->name != y->comm->name)
		return x->comm->name < y->comm->name ? -1 : 1;
	if (x->op->sequence != y->op->sequence)
		return x->op->sequence < y->op->sequence ? -1 : 1;
	if (x->comm->rank != y->comm->rank)
		return x->comm->rank < y->comm->rank ? -1 : 1;
	return (x->op->index > y->op->index) - (x->op->index < y->op->index);
}

/* Of a collective that takes several rounds (comm_split) the first round stands for all. */
static void clocks_parts_drop_repeats(struct parts *parts)
{
	size_t kept = 0;

	for (size_t i = 0; i < parts->count; i++) {
		const struct part *last = kept ? &parts->part[kept - 1] : NULL;
		if (last && last->comm->name == parts->part[i].comm->name &&
		    last->op->sequence == parts->part[i].op->sequence &&
		    last->comm->rank == parts->part[i].comm->rank)
			continue;
		parts->part[kept++] = parts->part[i];
	}
	parts->count = kept;
}

static size_t clocks_parts_count(const struct log *log)
{
	size_t n = 0;

	for (size_t i = 0; i < log->count; i++)
		for (size_t c = 0; c < log->processes[i].comm_count; c++)
			n += log->processes[i].comms[c].op_count;
	return n;
}

void parts_find(struct parts *parts, struct log *log)
{
	*parts = (struct parts){.part = must_alloc(clocks_parts_count(log), sizeof *parts->part)};
	for (size_t i = 0; i < log->count; i++) {
		struct trace_process *p = &log->processes[i];
		p->host_number = clocks_parts_number_host(log, i, &parts->hosts);
		for (size_t c = 0; c < p->comm_count; c++)
			for (size_t k = 0; k < p->comms[c].op_count; k++) {
				struct trace_op *op = &p->comms[c].ops[k];
				if (op->sequence >= 0)
					parts->part[parts->count++] =
						(struct part){p, &p->comms[c], op};
			}
	}
	qsort(parts->part, parts->count, sizeof *parts->part, clocks_parts_compare);
	clocks_parts_drop_repeats(parts);
}

void parts_free(struct parts *parts)
{
	free(parts->part);
}

size_t parts_end(const struct parts *parts, size_t i)
{
	const struct part *first = &parts->part[i];

	while (i < parts->count && parts->part[i].comm->name == first->comm->name &&
	       parts->part[i].op->sequence == first->op->sequence)
		i++;
	return i;
}

/* One time line for several hosts, whose clocks began at different moments.
 *
 * A collective in which every rank needs something of every other (all_reduce, barrier, all_gather
 * and their like) ends nowhere before it has begun everywhere. So for two hosts A and B, and s
 * added to B's times: latest begin on A <= earliest end on B + s, and latest begin on B + s <=
 * earliest end on A. Each collective gives s a lower and an upper bound. The middle between the
 * highest lower and the lowest upper bound is taken, and half of what lies between is how wrong it
 * can be, as long as the clocks run equally fast. Hosts that share no such collective follow their
 * calendars. */

struct bounds {
	int64_t low, high; /* of what is added to the second's times */
	size_t count;
};

struct host {
	const struct trace_process *process; /* one of it */
	int64_t begin, end;                  /* in one collective: the latest, the earliest */
	bool is_in, is_known;
	int64_t shift_ns;
};

bool meets_all(const struct trace_op *op)
{
	static const char *const names[] = {"all_reduce", "barrier", "all_gather", "reduce_scatter",
					    "all_to_all"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(op->name, names[i]) == 0)
			return i == 1 || op->bytes > 0;
	return false;
}

static void clocks_take_bounds(struct bounds *b, const struct host *first,
			       const struct host *second)
{
	int64_t low = first->begin - second->end, high = first->end - second->begin;

	b->low = b->count == 0 || low > b->low ? low : b->low;
	b->high = b->count == 0 || high < b->high ? high : b->high;
	b->count++;
}

/* One collective, parts i to end. */
static void clocks_look_at(const struct parts *parts, size_t i, size_t end, struct host *hosts,
			   struct bounds *bounds)
{
	int n = parts->hosts;

	for (int h = 0; h < n; h++)
		hosts[h].is_in = false;
	for (; i < end; i++) {
		const struct trace_op *op = parts->part[i].op;
		struct host *h = &hosts[parts->part[i].process->host_number];
		if (!meets_all(op) || op->state != TRACE_STATE_DONE || op->end_ns == TRACE_UNKNOWN)
			return;
		h->begin = h->is_in && h->begin > op->begin_ns ? h->begin : op->begin_ns;
		h->end = h->is_in && h->end < op->end_ns ? h->end : op->end_ns;
		h->is_in = true;
	}
	for (int a = 0; a < n; a++)
		for (int b = 0; b < n; b++)
			if (a != b && hosts[a].is_in && hosts[b].is_in)
				clocks_take_bounds(&bounds[a * n + b], &hosts[a], &hosts[b]);
}

/* The surest way from a host that is known to one that is not; NULL: there is none. */
static const struct bounds *clocks_next_host(const struct host *hosts, const struct bounds *bounds,
					     int n, int *known, int *unknown)
{
	const struct bounds *best = NULL;

	for (int a = 0; a < n; a++)
		for (int b = 0; b < n; b++) {
			const struct bounds *x = &bounds[a * n + b];
			if (!hosts[a].is_known || hosts[b].is_known || x->count == 0 ||
			    (best && x->high - x->low >= best->high - best->low))
				continue;
			best = x;
			*known = a;
			*unknown = b;
		}
	return best;
}

/* A larger shift comes from a made-up trace, and must not overflow. */
static int64_t clocks_limited(int64_t shift_ns)
{
	const int64_t most = INT64_C(2000000000000000000);
	return shift_ns > most ? most : shift_ns < -most ? -most : shift_ns;
}

static void clocks_by_collectives(struct host *hosts, const struct bounds *bounds, int n,
				  FILE *report)
{
	int a = 0, b = 0;
	const struct bounds *x;

	while ((x = clocks_next_host(hosts, bounds, n, &a, &b))) {
		int64_t between = x->high - x->low, middle = x->low + between / 2;
		hosts[b].is_known = true;
		hosts[b].shift_ns = clocks_limited(hosts[a].shift_ns + middle);
		fprintf(report,
			"The clock of %s is set by that of %s: %+.3f us, %s %.3f us, from %zu "
			"collectives.\n",
			hosts[b].process->host, hosts[a].process->host, (double)middle / 1e3,
			between >= 0 ? "right within" : "drifting by", fabs((double)between) / 2e3,
			x->count);
	}
}

static void clocks_by_date(struct host *host, const struct host *first, FILE *report)
{
	host->is_known = true;
	host->shift_ns = clocks_limited((host->process->real_ns - host->process->start_ns) -
					(first->process->real_ns - first->process->start_ns));
	fprintf(report,
		"The clock of %s is set by its calendar: it shares no collective with %s that "
		"would tell.\n",
		host->process->host, first->process->host);
}

void clocks_align(struct log *log, const struct parts *parts, FILE *report)
{
	int n = parts->hosts;
	struct host *hosts = must_alloc((size_t)n, sizeof *hosts);
	struct bounds *bounds = must_alloc((size_t)n * (size_t)n, sizeof *bounds);

	for (size_t i = log->count; i-- > 0;)
		hosts[log->processes[i].host_number].process = &log->processes[i];
	for (size_t i = 0, end; n > 1 && i < parts->count; i = end) {
		end = parts_end(parts, i);
		clocks_look_at(parts, i, end, hosts, bounds);
	}
	for (int h = 0; h < n; h++) {
		if (!hosts[h].is_known && h > 0)
			clocks_by_date(&hosts[h], &hosts[0], report);
		hosts[h].is_known = true;
		clocks_by_collectives(hosts, bounds, n, report);
	}
	for (size_t i = 0; i < log->count; i++)
		log->processes[i].shift_ns = hosts[log->processes[i].host_number].shift_ns;
	free(hosts);
	free(bounds);
}
