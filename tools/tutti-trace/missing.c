/* Which ranks have not come to a collective. A trace says nothing of what came after it was read,
 * and a rank's silence nothing where the others' results show that it has come. */
#include "late.h"

#include "core/rank_list.h"

#include <string.h>

int64_t begin_of(const struct part *p)
{
	return p->op->begin_ns + p->process->shift_ns;
}

static bool missing_has_come(const struct part *part, size_t n, int rank)
{
	for (size_t i = 0; i < n; i++)
		if (part[i].comm->rank == rank)
			return true;
	return false;
}

static const struct part *find_waiter(const struct part *part, size_t n)
{
	const struct part *waiter = NULL;

	for (size_t i = 0; i < n; i++)
		if (part[i].op->state != TRACE_STATE_DONE &&
		    (!waiter || begin_of(&part[i]) < begin_of(waiter)))
			waiter = &part[i];
	return waiter;
}

/* Whether no rank could be done with this operation without that rank. */
static bool missing_needs(const struct part *done, int rank)
{
	const struct trace_op *op = done->op;
	bool to_root = strcmp(op->name, "reduce") == 0 || strcmp(op->name, "gather") == 0;
	bool from_root = strcmp(op->name, "broadcast") == 0 || strcmp(op->name, "scatter") == 0;

	if (meets_all(op))
		return true;
	return op->bytes > 0 &&
	       ((to_root && done->comm->rank == op->peer) || (from_root && rank == op->peer));
}

static bool must_have_come(const struct part *part, size_t n, int rank)
{
	for (size_t i = 0; i < n; i++)
		if (part[i].op->state == TRACE_STATE_DONE && missing_needs(&part[i], rank))
			return true;
	return false;
}

/* A rank that has failed by itself will not come later either. */
static bool tells_of(const struct tally *t, const struct part *waiter)
{
	return t->comm->status != 0 ||
	       t->process->now_ns + t->process->shift_ns >= begin_of(waiter);
}

static int64_t missing_waited(const struct part *waiter)
{
	const struct trace_op *op = waiter->op;
	int64_t until = op->end_ns != TRACE_UNKNOWN ? op->end_ns : waiter->process->now_ns;

	return until > op->begin_ns ? until - op->begin_ns : 0;
}

struct absence absence_of(const struct tally *tallies, size_t tally_count, const struct part *part,
			  size_t n)
{
	struct absence a = {.waiter = find_waiter(part, n)};
	int counted = -1; /* a rank may have been looked at twice */

	for (size_t i = 0; i < tally_count; i++) {
		const struct tally *t = &tallies[i];
		int rank = t->comm->rank;
		if (t->comm->name != part[0].comm->name || missing_has_come(part, n, rank))
			continue;
		if (!a.waiter || t->newest >= part[0].op->sequence || !tells_of(t, a.waiter) ||
		    must_have_come(part, n, rank))
			a.unknown++;
		else if (rank != counted) {
			counted = rank;
			a.missing = a.count++ ? a.missing : t;
		}
	}
	if (a.waiter)
		a.waited_ns = missing_waited(a.waiter);
	return a;
}

void absence_print(const struct absence *a, FILE *report)
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

void unseen_print(const struct tally *tallies, size_t tally_count, FILE *report)
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
