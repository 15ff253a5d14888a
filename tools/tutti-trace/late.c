/* Which rank came last to each collective, and by how much: the report of merge. */
#include "merge.h"

#include "core/rank_list.h"
#include "tools/must.h"

#include <inttypes.h>
#include <string.h>

/* A rank of a communicator that was seen, over all its collectives. */
struct tally {
	const struct trace_process *process;
	const struct trace_comm *comm;
	int64_t newest;  /* of its collectives; -1: none */
	size_t times;    /* it came last */
	double alone_ns; /* all others were there */
};

/* The ranks that are not in a collective, of those that were seen elsewhere. */
struct absence {
	size_t unknown; /* they may have come: their traces end before, or begin after it */
	size_t count;   /* they have not come; the first of them: */
	const struct tally *missing;
	const struct part *waiter; /* has been in it longest, and is not done; NULL: all are done */
	int64_t waited_ns;         /* and how long */
};

/* Which ranks have not come to a collective. A trace says nothing of what came after it was read,
 * and a rank's silence nothing where the others' results show that it has come. */

/* In ns, on the time line of all hosts. */
static int64_t late_begin(const struct part *p)
{
	return p->op->begin_ns + p->process->shift_ns;
}

static bool late_has_come(const struct part *part, size_t n, int rank)
{
	for (size_t i = 0; i < n; i++)
		if (part[i].comm->rank == rank)
			return true;
	return false;
}

static const struct part *late_find_waiter(const struct part *part, size_t n)
{
	const struct part *waiter = NULL;

	for (size_t i = 0; i < n; i++)
		if (part[i].op->state != TRACE_STATE_DONE &&
		    (!waiter || late_begin(&part[i]) < late_begin(waiter)))
			waiter = &part[i];
	return waiter;
}

/* Whether no rank could be done with this operation without that rank. */
static bool late_needs(const struct part *done, int rank)
{
	const struct trace_op *op = done->op;
	bool to_root = strcmp(op->name, "reduce") == 0 || strcmp(op->name, "gather") == 0;
	bool from_root = strcmp(op->name, "broadcast") == 0 || strcmp(op->name, "scatter") == 0;

	if (meets_all(op))
		return true;
	return op->bytes > 0 &&
	       ((to_root && done->comm->rank == op->peer) || (from_root && rank == op->peer));
}

static bool late_must_have_come(const struct part *part, size_t n, int rank)
{
	for (size_t i = 0; i < n; i++)
		if (part[i].op->state == TRACE_STATE_DONE && late_needs(&part[i], rank))
			return true;
	return false;
}

/* A rank that has failed by itself will not come later either. */
static bool late_tells(const struct tally *t, const struct part *waiter)
{
	return t->comm->status != 0 ||
	       t->process->now_ns + t->process->shift_ns >= late_begin(waiter);
}

static int64_t late_waited(const struct part *waiter)
{
	const struct trace_op *op = waiter->op;
	int64_t until = op->end_ns != TRACE_UNKNOWN ? op->end_ns : waiter->process->now_ns;

	return until > op->begin_ns ? until - op->begin_ns : 0;
}

/* Of a collective of n parts; the tallies are all of the log. */
static struct absence late_find_absence(const struct tally *tallies, size_t tally_count,
					const struct part *part, size_t n)
{
	struct absence a = {.waiter = late_find_waiter(part, n)};
	int counted = -1; /* a rank may have been looked at twice */

	for (size_t i = 0; i < tally_count; i++) {
		const struct tally *t = &tallies[i];
		int rank = t->comm->rank;
		if (t->comm->name != part[0].comm->name || late_has_come(part, n, rank))
			continue;
		if (!a.waiter || t->newest >= part[0].op->sequence || !late_tells(t, a.waiter) ||
		    late_must_have_come(part, n, rank))
			a.unknown++;
		else if (rank != counted) {
			counted = rank;
			a.missing = a.count++ ? a.missing : t;
		}
	}
	if (a.waiter)
		a.waited_ns = late_waited(a.waiter);
	return a;
}

static void late_print_absence(const struct absence *a, FILE *report)
{
	const struct trace_process *p = a->missing->process, *q = a->waiter->process;
	int64_t earlier = q->now_ns + q->shift_ns - p->now_ns - p->shift_ns;
	bool has_failed = a->waiter->op->state == TRACE_STATE_FAILED;

	fprintf(report, "rank %d ", a->missing->comm->rank);
	if (a->count > 1)
		fprintf(report, "and %zu others have not come; ", a->count - 1);
	else
		fprintf(report, "has not come; ");
	fprintf(report, "rank %d %s for %.6f s", a->waiter->comm->rank,
		has_failed ? "waited" : "waits", (double)a->waited_ns * 1e-9);
	if (has_failed)
		fprintf(report, ", until that failed");
	else if (earlier > 0)
		fprintf(report, ", and was looked at %.6f s later", (double)earlier * 1e-9);
	fprintf(report, "\n");
}

/* The ranks of a communicator of which there is no trace at all; tallies are all of its own, by
 * rank. */
static void late_print_unseen(const struct tally *tallies, size_t tally_count, FILE *report)
{
	int size = tallies[0].comm->size, next = 0;
	struct rank_list unseen;
	char text[160];

	rank_list_begin(&unseen, text, sizeof text);
	for (size_t i = 0; i <= tally_count; i++) {
		int rank = i < tally_count && tallies[i].comm->rank < size ? tallies[i].comm->rank
									   : size;
		if (rank > next)
			rank_list_add_run(&unseen, next, rank - 1);
		next = rank >= next ? rank + 1 : next;
	}
	if (unseen.count)
		fprintf(report, "  of %d ranks, these are in no trace that was given: %s\n", size,
			rank_list_end(&unseen));
}

#define WORST 10

/* A collective of at least two ranks that were seen. */
struct meeting {
	const struct part *last;
	int64_t span_ns, by_ns; /* behind the first, and behind the one before */
	int first_rank;
	struct absence absence;
	bool is_told; /* which rank is late, and by how much */
};

struct summary {
	struct tally *tallies; /* by name, then rank */
	size_t tally_count;
	struct meeting *meetings;
	size_t meeting_count;
};

static int64_t late_newest(const struct trace_comm *c)
{
	int64_t newest = -1;

	for (size_t k = 0; k < c->op_count; k++)
		newest = c->ops[k].sequence > newest ? c->ops[k].sequence : newest;
	return newest;
}

static bool late_has_time(const struct part *p)
{
	return p->op->earliest_ns == p->op->latest_ns;
}

/* A rank that found all others there has not read the clock. Where ranks get out only when all are
 * in, those that waited for it have: it came when the first of them was done. */
static void late_find_times(const struct part *part, size_t n)
{
	int64_t over = INT64_MAX;

	if (!meets_all(part[0].op))
		return;
	for (size_t i = 0; i < n; i++)
		if (part[i].op->end_ns != TRACE_UNKNOWN &&
		    part[i].op->end_ns + part[i].process->shift_ns < over)
			over = part[i].op->end_ns + part[i].process->shift_ns;
	for (size_t i = 0; over != INT64_MAX && i < n; i++) {
		struct trace_op *op = part[i].op;
		int64_t came = over - part[i].process->shift_ns;
		if (late_has_time(&part[i]))
			continue;
		came = came < op->earliest_ns ? op->earliest_ns : came;
		op->begin_ns = came > op->latest_ns ? op->latest_ns : came;
		op->earliest_ns = op->latest_ns = op->begin_ns;
	}
}

/* No rank's clock was read, or in a call in which it says nothing about the others. */
static bool late_is_untold(const struct part *part, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!late_has_time(&part[i]))
			return true;
	return false;
}

static void late_judge(struct meeting *m, const struct summary *s, const struct part *part,
		       size_t n)
{
	const struct part *first = part, *before = NULL;

	*m = (struct meeting){.last = part};
	for (size_t i = 1; i < n; i++) {
		if (late_begin(&part[i]) < late_begin(first))
			first = &part[i];
		if (late_begin(&part[i]) >= late_begin(m->last)) {
			before = m->last;
			m->last = &part[i];
		} else if (!before || late_begin(&part[i]) > late_begin(before)) {
			before = &part[i];
		}
	}
	m->first_rank = first->comm->rank;
	m->span_ns = late_begin(m->last) - late_begin(first);
	m->by_ns = before ? late_begin(m->last) - late_begin(before) : 0;
	m->absence = late_find_absence(s->tallies, s->tally_count, part, n);
	m->is_told = m->absence.count > 0 ||
		     (n > 1 && m->absence.unknown == 0 && !late_is_untold(part, n));
	m->last->op->last_by_ns = m->absence.count || !m->is_told ? 0 : m->by_ns;
}

static int late_compare_names(const void *a, const void *b)
{
	const struct tally *x = a, *y = b;

	if (x->comm->name != y->comm->name)
		return x->comm->name < y->comm->name ? -1 : 1;
	return (x->comm->rank > y->comm->rank) - (x->comm->rank < y->comm->rank);
}

static void late_find_tallies(struct summary *s, const struct log *log)
{
	size_t n = 0;

	for (size_t i = 0; i < log->count; i++)
		n += log->processes[i].comm_count;
	s->tallies = must_alloc(n, sizeof *s->tallies);
	for (size_t i = 0; i < log->count; i++)
		for (size_t c = 0; c < log->processes[i].comm_count; c++)
			s->tallies[s->tally_count++] =
				(struct tally){.process = &log->processes[i],
					       .comm = &log->processes[i].comms[c],
					       .newest = late_newest(&log->processes[i].comms[c])};
	qsort(s->tallies, s->tally_count, sizeof *s->tallies, late_compare_names);
}

static void late_count(struct summary *s, const struct meeting *m)
{
	for (size_t i = 0; i < s->tally_count; i++)
		if (s->tallies[i].comm == m->last->comm) {
			s->tallies[i].times++;
			s->tallies[i].alone_ns += (double)m->by_ns;
		}
}

static void late_find_meetings(struct summary *s, const struct parts *parts)
{
	s->meetings = must_alloc(parts->count, sizeof *s->meetings);
	for (size_t i = 0, end; i < parts->count; i = end) {
		struct meeting *m = &s->meetings[s->meeting_count];
		end = parts_end(parts, i);
		late_find_times(&parts->part[i], end - i);
		late_judge(m, s, &parts->part[i], end - i);
		if (!m->is_told)
			continue;
		s->meeting_count++;
		if (!m->absence.count)
			late_count(s, m);
	}
}

static void late_print_meeting(const struct meeting *m, FILE *report)
{
	const struct trace_op *op = m->last->op;

	fprintf(report, "  %s #%" PRId64 ": ", op->name, op->sequence);
	if (m->absence.count)
		late_print_absence(&m->absence, report);
	else
		fprintf(report,
			"rank %d came last, %.3f us after rank %d, the first, %.3f us after the "
			"one before it\n",
			m->last->comm->rank, (double)m->span_ns / 1e3, m->first_rank,
			(double)m->by_ns / 1e3);
}

/* One communicator's. */
static void late_print_ranks(const struct tally *tallies, size_t n, FILE *report)
{
	const struct trace_comm *comm = tallies[0].comm;

	fprintf(report, "Communicator %016" PRIx64 " of %d ranks (%s):\n", comm->name, comm->size,
		comm->way);
	for (size_t i = 0; i < n; i++)
		fprintf(report, "  rank %d came last %zu times, and was waited for %.3f us\n",
			tallies[i].comm->rank, tallies[i].times, tallies[i].alone_ns / 1e3);
	late_print_unseen(tallies, n, report);
}

static void late_print_tallies(const struct summary *s, FILE *report)
{
	for (size_t i = 0, end; i < s->tally_count; i = end) {
		end = i + 1;
		while (end < s->tally_count &&
		       s->tallies[end].comm->name == s->tallies[i].comm->name)
			end++;
		late_print_ranks(&s->tallies[i], end - i, report);
	}
}

static int late_compare_costs(const void *a, const void *b)
{
	const struct meeting *x = a, *y = b;
	int64_t x_ns = x->absence.count ? INT64_MAX : x->by_ns,
		y_ns = y->absence.count ? INT64_MAX : y->by_ns;

	return (x_ns < y_ns) - (x_ns > y_ns);
}

void late_report(const struct log *log, const struct parts *parts, bool all, FILE *report)
{
	struct summary s = {0};

	late_find_tallies(&s, log);
	late_find_meetings(&s, parts);
	late_print_tallies(&s, report);
	if (!all && s.meeting_count)
		qsort(s.meetings, s.meeting_count, sizeof *s.meetings, late_compare_costs);
	fprintf(report, "%zu collectives of several ranks%s\n", s.meeting_count,
		s.meeting_count == 0              ? "."
		: all || s.meeting_count <= WORST ? ":"
						  : "; those that waited longest for one rank:");
	for (size_t i = 0; i < s.meeting_count && (all || i < WORST); i++)
		late_print_meeting(&s.meetings[i], report);
	free(s.tallies);
	free(s.meetings);
}
