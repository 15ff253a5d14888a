/* Which rank came last to each collective, and by how much: the report of merge. */
#include "late.h"

#include "tools/must.h"

#include <inttypes.h>

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

static int64_t newest_of(const struct trace_comm *c)
{
	int64_t newest = -1;

	for (size_t k = 0; k < c->op_count; k++)
		newest = c->ops[k].sequence > newest ? c->ops[k].sequence : newest;
	return newest;
}

static bool has_time(const struct part *p)
{
	return p->op->earliest_ns == p->op->latest_ns;
}

/* A rank that found all others there has not read the clock. Where ranks get out only when all are
 * in, those that waited for it have: it came when the first of them was done. */
static void find_times(const struct part *part, size_t n)
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
		if (has_time(&part[i]))
			continue;
		came = came < op->earliest_ns ? op->earliest_ns : came;
		op->begin_ns = came > op->latest_ns ? op->latest_ns : came;
		op->earliest_ns = op->latest_ns = op->begin_ns;
	}
}

/* No rank's clock was read, or in a call in which it says nothing about the others. */
static bool is_untold(const struct part *part, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!has_time(&part[i]))
			return true;
	return false;
}

static void judge_meeting(struct meeting *m, const struct summary *s, const struct part *part,
			  size_t n)
{
	const struct part *first = part, *before = NULL;

	*m = (struct meeting){.last = part};
	for (size_t i = 1; i < n; i++) {
		if (begin_of(&part[i]) < begin_of(first))
			first = &part[i];
		if (begin_of(&part[i]) >= begin_of(m->last)) {
			before = m->last;
			m->last = &part[i];
		} else if (!before || begin_of(&part[i]) > begin_of(before)) {
			before = &part[i];
		}
	}
	m->first_rank = first->comm->rank;
	m->span_ns = begin_of(m->last) - begin_of(first);
	m->by_ns = before ? begin_of(m->last) - begin_of(before) : 0;
	m->absence = absence_of(s->tallies, s->tally_count, part, n);
	m->is_told =
		m->absence.count > 0 || (n > 1 && m->absence.unknown == 0 && !is_untold(part, n));
	m->last->op->last_by_ns = m->absence.count || !m->is_told ? 0 : m->by_ns;
}

static int by_name(const void *a, const void *b)
{
	const struct tally *x = a, *y = b;

	if (x->comm->name != y->comm->name)
		return x->comm->name < y->comm->name ? -1 : 1;
	return (x->comm->rank > y->comm->rank) - (x->comm->rank < y->comm->rank);
}

static void find_tallies(struct summary *s, const struct log *log)
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
					       .newest = newest_of(&log->processes[i].comms[c])};
	qsort(s->tallies, s->tally_count, sizeof *s->tallies, by_name);
}

static void count_last(struct summary *s, const struct meeting *m)
{
	for (size_t i = 0; i < s->tally_count; i++)
		if (s->tallies[i].comm == m->last->comm) {
			s->tallies[i].times++;
			s->tallies[i].alone_ns += (double)m->by_ns;
		}
}

static void find_meetings(struct summary *s, const struct parts *parts)
{
	s->meetings = must_alloc(parts->count, sizeof *s->meetings);
	for (size_t i = 0, end; i < parts->count; i = end) {
		struct meeting *m = &s->meetings[s->meeting_count];
		end = parts_end(parts, i);
		find_times(&parts->part[i], end - i);
		judge_meeting(m, s, &parts->part[i], end - i);
		if (!m->is_told)
			continue;
		s->meeting_count++;
		if (!m->absence.count)
			count_last(s, m);
	}
}

static void print_meeting(const struct meeting *m, FILE *report)
{
	const struct trace_op *op = m->last->op;

	fprintf(report, "  %s #%" PRId64 ": ", op->name, op->sequence);
	if (m->absence.count)
		absence_print(&m->absence, report);
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
	unseen_print(tallies, n, report);
}

static void print_tallies(const struct summary *s, FILE *report)
{
	for (size_t i = 0, end; i < s->tally_count; i = end) {
		end = i + 1;
		while (end < s->tally_count &&
		       s->tallies[end].comm->name == s->tallies[i].comm->name)
			end++;
		late_print_ranks(&s->tallies[i], end - i, report);
	}
}

static int by_cost(const void *a, const void *b)
{
	const struct meeting *x = a, *y = b;
	int64_t x_ns = x->absence.count ? INT64_MAX : x->by_ns,
		y_ns = y->absence.count ? INT64_MAX : y->by_ns;

	return (x_ns < y_ns) - (x_ns > y_ns);
}

void late_report(const struct log *log, const struct parts *parts, bool all, FILE *report)
{
	struct summary s = {0};

	find_tallies(&s, log);
	find_meetings(&s, parts);
	print_tallies(&s, report);
	if (!all && s.meeting_count)
		qsort(s.meetings, s.meeting_count, sizeof *s.meetings, by_cost);
	fprintf(report, "%zu collectives of several ranks%s\n", s.meeting_count,
		s.meeting_count == 0              ? "."
		: all || s.meeting_count <= WORST ? ":"
						  : "; those that waited longest for one rank:");
	for (size_t i = 0; i < s.meeting_count && (all || i < WORST); i++)
		print_meeting(&s.meetings[i], report);
	free(s.tallies);
	free(s.meetings);
}
