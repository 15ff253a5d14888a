/* See judge_groups.h. */
#include "tests/faults/judge_groups.h"

#include <string.h>

#define BITS(x) __builtin_popcount(x)

static uint32_t group_of(const struct event *e)
{
	uint32_t group = 0;

	for (int i = 0; i < e->size; i++)
		group |= 1u << e->ids[i];
	return group;
}

/* A rank's event of that kind in that generation and, where it matters, segment. */
static const struct event *find(const struct board *board, int rank, enum happening what,
				int generation, int segment)
{
	const struct seat *seat = &board->seats[rank];

	for (int i = 0; i < board_count(seat); i++) {
		const struct event *e = &seat->events[i];
		if (e->what == what && e->generation == generation &&
		    (segment < 0 || e->segment == segment))
			return e;
	}
	return NULL;
}

static bool is_verdict(const struct event *e)
{
	return e && (e->status == TUTTI_OK || e->status == TUTTI_ERR_PEER) &&
	       (e->flag & 0xff) != 0xff && !strstr(e->message, "gone on without");
}

/* It asked, and got no answer: that is judged by itself. */
static bool was_refused(const struct board *board, int rank, int generation)
{
	const struct seat *seat = &board->seats[rank];

	for (int i = 0; i < board_count(seat); i++) {
		const struct event *e = &seat->events[i];
		if (e->generation == generation &&
		    ((e->what == HAD_SHRINK && e->status != TUTTI_OK) ||
		     (e->what == HAD_AGREE && !is_verdict(e))))
			return true;
	}
	return false;
}

/* From when on a rank can answer nobody: 0: never. */
static uint64_t over_ns(const struct board *board, const struct truth *t, int rank)
{
	const struct seat *seat = &board->seats[rank];

	for (int i = 0; i < board_count(seat); i++) {
		const struct event *e = &seat->events[i];
		if (e->what == LEAVES || (e->what == HAD_INIT && e->status != TUTTI_OK))
			return e->at_ns;
	}
	return t->dead_ns[rank];
}

static bool is_across(const struct truth *t, int a, int b)
{
	return t->cut_ns && (t->side >> a & 1) != (t->side >> b & 1);
}

/* Nothing was done to it that could keep others from hearing it, as far as `from` is concerned. */
static bool is_well(const struct truth *t, int rank, int from)
{
	return !t->dead_ns[rank] && !(t->absent >> rank & 1) && !t->silent_ns[rank] &&
	       !is_across(t, rank, from);
}

/* The ranks that are missing and should not be. */
static void judge_missing(struct verdict *v, const struct board *board, const struct truth *t,
			  int rank, const struct event *e, uint32_t members, const char *what)
{
	uint32_t missing = group_of(e) & ~members;

	for (int r = 0; r < scenario_seats(t->scenario); r++) {
		uint64_t over = over_ns(board, t, r);
		if (!(missing >> r & 1) || !is_well(t, r, rank) ||
		    was_refused(board, r, e->generation) || (over && over <= e->at_ns))
			continue;
		judge_complain(v, "rank %d: rank %d is well, and is missing in the %s of %#x", rank,
			       r, what, members);
	}
	if (!(members >> rank & 1))
		judge_complain(v, "rank %d is not in its own %s of %#x", rank, what, members);
	if (members & ~group_of(e))
		judge_complain(v, "rank %d: a %s of %#x out of %#x", rank, what, members,
			       group_of(e));
}

/* Whether it may be that these knew nothing of a rank's decision at a time: all are gone by then.
 */
static bool are_over(const struct board *board, const struct truth *t, uint32_t ranks,
		     uint64_t at_ns)
{
	for (int r = 0; r < scenario_seats(t->scenario); r++) {
		uint64_t over = over_ns(board, t, r);
		if ((ranks >> r & 1) && (!over || over > at_ns))
			return false;
	}
	return true;
}

/* Enough are well, by the narrower of the rules for who may decide: more than half, or half with
 * the lowest, or all that are not known to be gone. */
static bool may_decide(const struct board *board, const struct truth *t, int rank,
		       const struct event *e)
{
	uint32_t group = group_of(e), here = 0, gone = 0;

	for (int r = 0; r < scenario_seats(t->scenario); r++) {
		uint64_t over = over_ns(board, t, r);
		bool is_proved = over && over <= e->at_ns && !t->is_unproved[r] &&
				 !t->silent_ns[r] && !is_across(t, r, rank);
		if (!(group >> r & 1))
			continue;
		if (is_proved)
			gone |= 1u << r;
		else if (is_well(t, r, rank))
			here |= 1u << r;
	}
	int all = BITS(group), half = 2 * BITS(here);
	return BITS(here) == all - BITS(gone) || half > all ||
	       (half == all && (here & group & -group));
}

static void judge_refusal(struct verdict *v, const struct board *board, const struct truth *t,
			  int rank, const struct event *e)
{
	/* An abort ends what its rank waits in, and that rank recovers no more. */
	bool is_own_abort = e->status == TUTTI_ERR_ABORTED && (t->aborter >> rank & 1) &&
			    t->aborted_ns <= e->at_ns;

	if (t->silent_ns[rank] || is_own_abort)
		return;
	if (e->status != TUTTI_ERR_TIMEOUT && e->status != TUTTI_ERR_PEER)
		judge_complain(v, "rank %d: %s: %s: %s", rank, e->call,
			       tutti_status_string(e->status), e->message);
	else if (may_decide(board, t, rank, e))
		judge_complain(v, "rank %d: enough are well, and yet: %s: %s: %s", rank, e->call,
			       tutti_status_string(e->status), e->message);
}

/* ---- survivors ------------------------------------------------------------------------------- */

void judge_shrink(struct verdict *v, const struct board *board, const struct truth *t, int rank,
		  const struct event *e)
{
	if (e->status != TUTTI_OK) {
		judge_refusal(v, board, t, rank, e);
		return;
	}
	judge_missing(v, board, t, rank, e, e->members, "group");
	for (int r = 0; r < scenario_seats(t->scenario); r++) {
		const struct event *other = find(board, r, HAD_SHRINK, e->generation, -1);
		bool is_member = e->members >> r & 1, is_faulty = !is_well(t, r, rank);
		if (is_member && !find(board, r, BEGAN_SHRINK, e->generation, -1))
			judge_complain(v, "rank %d: rank %d has never asked to be in %#x", rank, r,
				       e->members);
		if (is_member && !is_faulty && (!other || other->status != TUTTI_OK))
			judge_complain(v, "rank %d: rank %d is in %#x, and does not know", rank, r,
				       e->members);
		if (!other || other->status != TUTTI_OK || other->members == e->members ||
		    other->at_ns > e->at_ns)
			continue;
		if (!are_over(board, t, other->members, e->at_ns))
			judge_complain(v, "rank %d is in %#x and rank %d in %#x", rank, e->members,
				       r, other->members);
	}
}

/* All who were there have the new communicator, or none; and who comes anew has it only if these
 * have. */
void judge_grow(struct verdict *v, const struct board *board, const struct truth *t, int rank,
		const struct event *e)
{
	bool is_new = rank >= t->scenario->ranks;

	if (!is_new && !e->members && t->dead_ns[rank])
		return; /* before it could write down the rest */
	for (int r = 0; r < t->scenario->ranks; r++) {
		const struct event *other = find(board, r, HAD_GROW, 1, -1);
		if (!other || t->silent_ns[r] || t->dead_ns[r])
			continue;
		if (other->status != TUTTI_OK)
			judge_complain(v, "rank %d has grown, and rank %d has not: %s", rank, r,
				       other->message);
		else if (!is_new && other->members != e->members)
			judge_complain(v, "rank %d is in %#x and rank %d in %#x", rank, e->members,
				       r, other->members);
	}
	if (!is_new && !(e->members >> t->scenario->ranks & 1))
		judge_complain(v, "rank %d has grown to %#x, without anybody new", rank,
			       e->members);
}

/* ---- verdicts -------------------------------------------------------------------------------- */

void judge_agree(struct verdict *v, const struct board *board, const struct truth *t, int rank,
		 const struct event *e)
{
	uint32_t took = ~e->flag & 0xff, right = UINT32_MAX;

	if (!is_verdict(e)) {
		judge_refusal(v, board, t, rank, e);
		return;
	}
	judge_missing(v, board, t, rank, e, took, "verdict");
	for (int r = 0; r < scenario_seats(t->scenario); r++) {
		const struct event *own = find(board, r, BEGAN_AGREE, e->generation, e->segment);
		const struct event *other = find(board, r, HAD_AGREE, e->generation, e->segment);
		if (took >> r & 1)
			right &= own ? own->flag : 0;
		if (!is_verdict(other) || other->at_ns > e->at_ns ||
		    (other->flag == e->flag && other->status == e->status))
			continue;
		if (!are_over(board, t, ~other->flag & 0xff, e->at_ns))
			judge_complain(v, "rank %d was told %#x, %s, rank %d %#x, %s", rank,
				       e->flag, tutti_status_string(e->status), r, other->flag,
				       tutti_status_string(other->status));
	}
	if (e->flag != right)
		judge_complain(v, "rank %d was told %#x, but those who took part said %#x", rank,
			       e->flag, right);
	if ((e->status == TUTTI_OK) != (took == group_of(e)))
		judge_complain(v, "rank %d: %#x of %#x took part, and it says %s", rank, took,
			       group_of(e), tutti_status_string(e->status));
}
