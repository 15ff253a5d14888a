/* The half of the judge that is about what each rank is told. */
#include "tests/faults/judge.h"

#include "tests/faults/judge_groups.h"
#include "tests/faults/words.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void judge_complain(struct verdict *v, const char *format, ...)
{
	size_t room = sizeof v->text - v->used;
	va_list args;

	v->complaints++;
	va_start(args, format);
	int n = vsnprintf(v->text + v->used, room, format, args);
	va_end(args);
	if (n > 0 && (size_t)n + 1 < room) {
		v->used += (size_t)n;
		v->text[v->used++] = '\n';
		v->text[v->used] = '\0';
	}
}

uint64_t judge_first_ns(const struct truth *t)
{
	uint64_t first = UINT64_MAX, times[3] = {t->cut_ns, t->broken_ns, t->aborted_ns};

	for (int i = 0; i < 3; i++)
		if (times[i] && times[i] < first)
			first = times[i];
	for (int r = 0; r < RANKS_MOST; r++) {
		if (t->dead_ns[r] && t->dead_ns[r] < first)
			first = t->dead_ns[r];
		if (t->silent_ns[r] && t->silent_ns[r] < first)
			first = t->silent_ns[r];
	}
	return first == UINT64_MAX ? 0 : first;
}

static bool is_by(uint64_t ns, uint64_t at_ns)
{
	return ns && ns <= at_ns;
}

/* What a rank may say of others at a time. */
struct blame {
	uint32_t dead, silent, ends, aborter, all;
};

static struct blame blame_of(const struct truth *t, int rank, uint64_t at_ns)
{
	struct blame b = {0};

	for (int r = 0; r < scenario_seats(t->scenario); r++) {
		bool is_across =
			is_by(t->cut_ns, at_ns) && (t->side >> r & 1) != (t->side >> rank & 1);
		if (is_by(t->dead_ns[r], at_ns) || (t->absent >> r & 1))
			b.dead |= 1u << r;
		if (is_by(t->silent_ns[r], at_ns) || is_across)
			b.silent |= 1u << r;
	}
	if (is_by(t->broken_ns, at_ns) && !t->reconnects)
		b.ends = t->ends;
	if (is_by(t->aborted_ns, at_ns))
		b.aborter = t->aborter;
	b.all = b.dead | b.silent | b.ends | b.aborter;
	return b;
}

static bool anybody_shrinks(const struct board *board, int generation, uint64_t at_ns)
{
	for (int r = 0; r < RANKS_MOST; r++)
		for (int i = 0; i < board_count(&board->seats[r]); i++) {
			const struct event *e = &board->seats[r].events[i];
			if (e->what == BEGAN_SHRINK && e->generation == generation &&
			    e->at_ns <= at_ns)
				return true;
		}
	return false;
}

/* Where ranks leave a communicator for its successor, those that wait in it hear that. */
static bool is_summons(const struct event *e)
{
	return e->status == TUTTI_ERR_ABORTED &&
	       (strstr(e->message, "tutti_comm_shrink") || strstr(e->message, "was given up"));
}

/* A rank that got a child of a split in which another rank failed hears of it in the child, with
 * that rank's message: its numbers are those of the parent. */
static bool is_given_up(const struct event *e)
{
	return e->status == TUTTI_ERR_ABORTED &&
	       strstr(e->message, "aborted this communicator while it was being made: ");
}

/* b: what e may be about. A deadline that passes has one status on all ranks. */
static bool is_right_status(const struct truth *t, const struct event *e, const struct blame *b)
{
	bool is_late = t->scenario->fault_count > 0 &&
		       scenario_fault(t->scenario)->kind == KIND_LATE && b->all == b->silent;

	if (e->status == TUTTI_ERR_PEER)
		return !is_late || e->what == HAD_INIT;
	if (e->status == TUTTI_ERR_TIMEOUT)
		return b->silent || e->what == HAD_INIT;
	return e->status == TUTTI_ERR_ABORTED && b->aborter;
}

/* A child's failure is the child's alone. Its ranks make no more calls of this segment, so the
 * others miss them in the parent until the deadline. */
static bool is_missed(const struct board *board, const struct event *e)
{
	for (int r = 0; r < e->size && !e->is_child; r++) {
		const struct seat *seat = &board->seats[e->ids[r]];
		for (int i = 0; i < board_count(seat); i++) {
			const struct event *other = &seat->events[i];
			if (other->what == HAD_FAILURE && other->is_child &&
			    other->generation == e->generation && other->at_ns <= e->at_ns)
				return true;
		}
	}
	return false;
}

static bool has_left(const struct board *board, int rank, uint64_t at_ns)
{
	const struct seat *seat = &board->seats[rank];

	for (int i = 0; i < board_count(seat); i++)
		if (seat->events[i].what == LEAVES && seat->events[i].at_ns <= at_ns)
			return true;
	return false;
}

/* What is wrong with a claim about a rank; NULL: nothing. */
static const char *wrong_claim(enum claim_kind kind, bool is_blamed, bool is_dead)
{
	bool is_of_end = kind == CLAIM_GONE || kind == CLAIM_DEAD;

	if ((is_of_end || kind == CLAIM_SILENT) && !is_blamed)
		return "nothing has happened to rank";
	return kind == CLAIM_DEAD && !is_dead ? "alive is rank" : NULL;
}

static void judge_message(struct verdict *v, const struct board *board, const struct truth *t,
			  int rank, const struct event *e, const struct blame *b)
{
	struct claim claims[CLAIMS_MOST];
	int count = words_read(e->message, claims), here = -1;
	uint32_t named = 0, members = 0;

	for (int i = 0; i < e->size; i++) {
		members |= 1u << e->ids[i];
		if (e->ids[i] == rank)
			here = i;
	}
	for (int i = 0; i < count; i++) {
		const struct claim *c = &claims[i];
		if (c->rank >= e->size) {
			judge_complain(v, "rank %d: there is no rank %d: %s", rank, c->rank,
				       e->message);
			continue;
		}
		int who = e->ids[c->rank];
		bool is_blamed = b->all >> who & 1;
		named |= 1u << who;
		if (c->pid && c->pid != t->pids[who])
			judge_complain(v, "rank %d: rank %d is process %d, not %ld: %s", rank, who,
				       (int)t->pids[who], c->pid, e->message);
		const char *wrong = has_left(board, who, e->at_ns) && c->kind != CLAIM_SILENT
					    ? NULL
					    : wrong_claim(c->kind, is_blamed, b->dead >> who & 1);
		if (wrong)
			judge_complain(v, "rank %d: %s %d: %s", rank, wrong, who, e->message);
	}
	/* A child without them is kept waiting by a rank that waits for them. */
	if (!(named & b->all) && (members & b->all || !(named & ~(1u << rank))))
		judge_complain(v, "rank %d: the message names none of %#x: %s", rank, b->all,
			       e->message);
	/* tutti_init makes calls of its own. */
	if (e->what != HAD_INIT && words_misplace(e->message, here, e->call))
		judge_complain(v, "rank %d was in %s: %s", rank, e->call, e->message);
}

static bool anybody_grows(const struct board *board)
{
	for (int r = 0; r < RANKS_MOST; r++)
		for (int i = 0; i < board_count(&board->seats[r]); i++)
			if (board->seats[r].events[i].what == BEGAN_GROW)
				return true;
	return false;
}

/* A grow, or the tutti_init of who comes anew, that failed: for something that was done by then,
 * and not to the first victim, in whose place somebody was to come. Its message counts ranks as
 * comm or as the new one does. */
static void judge_grow_failure(struct verdict *v, const struct board *board, const struct truth *t,
			       int rank, const struct event *e)
{
	struct blame b = blame_of(t, rank, e->at_ns);
	/* A rank that comes anew finds none where the others have ended, and none comes in place of
	 * one that has. */
	bool is_asked = e->what == HAD_GROW || anybody_grows(board);
	/* That a new rank did not come is no reason of its own. */
	uint32_t reasons = (b.dead & ~t->absent) | b.silent | b.ends | b.aborter;

	for (int r = 0; r < t->scenario->ranks; r++)
		is_asked &= !has_left(board, r, e->at_ns);
	if (is_asked && !(reasons & ~t->scenario->faults[0].victims) &&
	    !is_by(t->silent_ns[rank], e->at_ns))
		judge_complain(v, "rank %d could not grow though nothing had happened: %s: %s",
			       rank, tutti_status_string(e->status), e->message);
	if (e->status != TUTTI_ERR_PEER && e->status != TUTTI_ERR_TIMEOUT)
		judge_complain(v, "rank %d: %s is not what happened: %s", rank,
			       tutti_status_string(e->status), e->message);
	if (strlen(e->message) < 20)
		judge_complain(v, "rank %d could not grow, and is not told why: '%s'", rank,
			       e->message);
}

static void judge_failure(struct verdict *v, const struct board *board, const struct truth *t,
			  int rank, const struct event *e)
{
	struct blame b = blame_of(t, rank, e->at_ns);

	if (is_by(t->silent_ns[rank], e->at_ns)) {
		if (strlen(e->message) < 20)
			judge_complain(v, "rank %d was stopped, and then: '%s'", rank, e->message);
		return;
	}
	if (!b.all) {
		judge_complain(v, "rank %d failed though nothing had happened: %s: %s", rank,
			       tutti_status_string(e->status), e->message);
		return;
	}
	if (e->failed & ~b.all)
		judge_complain(v, "rank %d: tutti_comm_failed lists %#x of %#x: %s", rank,
			       e->failed, b.all, e->message);
	if (is_given_up(e))
		return;
	if (is_summons(e)) {
		if (!anybody_shrinks(board, e->generation, e->at_ns))
			judge_complain(v, "rank %d: nobody has called shrink: %s", rank,
				       e->message);
		return;
	}
	if (!is_right_status(t, e, &b) && !(e->status == TUTTI_ERR_TIMEOUT && is_missed(board, e)))
		judge_complain(v, "rank %d: %s is not what happened: %s", rank,
			       tutti_status_string(e->status), e->message);
	judge_message(v, board, t, rank, e, &b);
}

void judge(struct verdict *v, const struct board *board, const struct truth *t)
{
	for (int r = 0; r < scenario_seats(t->scenario); r++) {
		const struct seat *seat = &board->seats[r];
		for (int i = 0; i < board_count(seat); i++) {
			const struct event *e = &seat->events[i];
			bool is_new = r >= t->scenario->ranks && e->what == HAD_INIT;
			if (e->what == HAD_FAILURE ||
			    (e->what == HAD_INIT && e->status != TUTTI_OK && !is_new))
				judge_failure(v, board, t, r, e);
			if ((is_new || e->what == HAD_GROW) && e->status != TUTTI_OK)
				judge_grow_failure(v, board, t, r, e);
			if ((is_new || e->what == HAD_GROW) && e->status == TUTTI_OK)
				judge_grow(v, board, t, r, e);
			if (e->what == HAD_SHRINK)
				judge_shrink(v, board, t, r, e);
			if (e->what == HAD_AGREE)
				judge_agree(v, board, t, r, e);
		}
	}
}

uint64_t judge_told_ns(const struct board *board, const struct truth *t, int rank)
{
	const struct seat *seat = &board->seats[rank];

	if (t->dead_ns[rank] || t->silent_ns[rank] || (t->aborter >> rank & 1))
		return 0;
	for (int i = 0; i < board_count(seat); i++) {
		const struct event *e = &seat->events[i];
		if (e->status != TUTTI_OK)
			return e->at_ns;
	}
	return 0;
}
