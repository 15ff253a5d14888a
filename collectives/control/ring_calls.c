/* Records of calls, compared along the control ring. */
#include "collectives/control/control_internal.h"

#include <stdio.h>

static uint64_t ring_calls_end_of(const struct control_message *m)
{
	return m->first + m->count;
}

static bool is_same_call(const struct call_record *a, const struct call_record *b)
{
	return a->what == b->what && a->op == b->op && a->counts == b->counts &&
	       a->count == b->count;
}

/* Our own records of calls first..last, as far as we have them. */
void control_send_calls(struct control_link *l, uint64_t first, uint64_t last)
{
	const struct recorder *r = l->ring->config.recorder;
	struct control_message m = {.kind = CONTROL_CALLS,
				    .origin = l->ring->config.rank,
				    .first = first,
				    .issued = recorder_issued(r)};

	while (first <= last && !recorder_find(r, first, &m.calls[0]))
		first++;
	for (m.first = first; first <= last && m.count < CONTROL_CALLS_MOST; first++, m.count++)
		if (!recorder_find(r, first, &m.calls[m.count]))
			break;
	if (m.count == 0)
		return;
	if (ring_calls_end_of(&m) > l->told)
		l->told = ring_calls_end_of(&m);
	control_post(l, &m);
}

static void ring_calls_report(struct control_ring *c, int rank_a, const struct call_record *a,
			      int rank_b, const struct call_record *b, uint64_t sequence)
{
	char text[ERROR_BYTES];
	call_record_mismatch(rank_a, a, rank_b, b, sequence, text, sizeof text);
	control_decide(c, &(struct failure){.status = TUTTI_ERR_MISMATCH,
					    .rank = FAILURE_NO_RANK,
					    .sequence = sequence,
					    .message = text});
}

enum comparison { ALIKE, UNKNOWN, DIFFER };

/* The first call of theirs that we know differs: either it is the mismatch, or one before it is,
 * and our records of those before go back: the two ranks go back together until they find it. */
static enum comparison ring_calls_compare(struct control_link *l, const struct control_message *m)
{
	struct control_ring *c = l->ring;
	const struct recorder *r = c->config.recorder;
	enum comparison comparison = UNKNOWN;

	for (uint32_t i = 0; i < m->count; i++) {
		uint64_t sequence = m->first + i;
		struct call_record mine, before;
		if (!recorder_find(r, sequence, &mine))
			continue;
		if (mine.fingerprint == m->calls[i].fingerprint) {
			comparison = ALIKE;
			continue;
		}
		if (is_same_call(&mine, &m->calls[i]) && sequence > 0 &&
		    recorder_find(r, sequence - 1, &before)) {
			uint64_t back =
				sequence > CONTROL_CALLS_MOST ? sequence - CONTROL_CALLS_MOST : 0;
			control_send_calls(l, back, sequence - 1);
			return DIFFER;
		}
		ring_calls_report(c, m->origin, &m->calls[i], c->config.rank, &mine, sequence);
		return DIFFER;
	}
	return comparison;
}

/* This rank has made none of the calls that both neighbours have made, and yet knows that they
 * differ. */
static void compare_kept(struct control_ring *c)
{
	const struct control_message *a = &c->links[0].kept, *b = &c->links[1].kept;

	if (c->link_count < 2 || !c->links[0].is_keeping || !c->links[1].is_keeping)
		return;
	for (uint32_t i = 0; i < a->count; i++) {
		uint64_t sequence = a->first + i;
		if (sequence < b->first || sequence >= ring_calls_end_of(b))
			continue;
		const struct call_record *other = &b->calls[sequence - b->first];
		if (a->calls[i].fingerprint == other->fingerprint)
			continue;
		if (a->origin != b->origin && !is_same_call(&a->calls[i], other))
			ring_calls_report(c, a->origin, &a->calls[i], b->origin, other, sequence);
		return;
	}
}

/* So far behind that there is nothing to compare: then they compare with what we did last. */
static void answer_from_behind(struct control_link *l, const struct control_message *m)
{
	uint64_t issued = recorder_issued(l->ring->config.recorder);
	if (issued == 0 || issued > m->first || l->answered == issued)
		return;
	l->answered = issued;
	control_send_calls(l, issued > CONTROL_CALLS_MOST ? issued - CONTROL_CALLS_MOST : 0,
			   issued - 1);
}

/* A rank that has left never makes the call that another rank waits in. */
static void check_leavers(struct control_ring *c, const struct control_message *m)
{
	char text[ERROR_BYTES], call[128], who[128];
	uint64_t last = ring_calls_end_of(m) - 1;
	int r = 0;

	while (r < c->config.size && (!c->known[r].has_left || c->known[r].left_at > last))
		r++;
	if (r == c->config.size)
		return;
	struct call_summary summary = call_record_summary(&m->calls[m->count - 1], last);
	snprintf(text, sizeof text,
		 "%s " FAILURE_HAS_LEFT " after %llu calls, and rank %d called %s.",
		 control_who(c, r, who, sizeof who), (unsigned long long)c->known[r].left_at,
		 m->origin, call_in_words(&summary, call, sizeof call));
	control_decide(
		c, &(struct failure){
			   .status = TUTTI_ERR_PEER, .rank = r, .sequence = last, .message = text});
}

static void ring_calls_keep(struct control_link *l, const struct control_message *m)
{
	if (l->is_keeping && ring_calls_end_of(&l->kept) >= ring_calls_end_of(m))
		return;
	l->kept = *m;
	l->ring->needs_helper |= !l->is_keeping;
	l->is_keeping = true;
}

void control_take_calls(struct control_link *l, const struct control_message *m)
{
	struct control_ring *c = l->ring;
	struct control_link *on = control_other(l);
	bool is_ours = m->origin == c->config.rank;

	if (m->count == 0 || m->count > CONTROL_CALLS_MOST || is_ours ||
	    ring_calls_compare(l, m) == DIFFER)
		return;
	bool is_behind = recorder_issued(c->config.recorder) < ring_calls_end_of(m);
	if (is_behind) {
		ring_calls_keep(l, m);
		compare_kept(c);
		answer_from_behind(l, m);
	}
	if (m->kind == CONTROL_LEAVING)
		return;
	if (c->some_have_left)
		check_leavers(c, m);
	if (!on || c->known[m->origin].is_gone) /* the records have gone round to where it was */
		return;
	if (is_behind)
		control_post(on, m);
	else if (on->told < ring_calls_end_of(m))
		control_send_calls(on, m->first, ring_calls_end_of(m) - 1);
}

void control_compare_kept(struct control_ring *c)
{
	uint64_t issued = recorder_issued(c->config.recorder);

	for (int i = 0; i < c->link_count; i++) {
		struct control_link *l = &c->links[i];
		if (!l->is_keeping || c->has_failed)
			continue;
		enum comparison comparison = ring_calls_compare(l, &l->kept);
		if (comparison == DIFFER || issued >= ring_calls_end_of(&l->kept))
			l->is_keeping = false;
		else
			answer_from_behind(l, &l->kept);
	}
}
