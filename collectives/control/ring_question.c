/* The question that goes round the ring: which ranks are there, and have made a call? */
#include "collectives/control/control_internal.h"

#include "core/rank_list.h"

#include <string.h>

/* Both ways round after a deadline: a rank that is stopped may cut the ring on one side, and one
 * that has failed on the other. */
static void post_question(struct control_ring *c)
{
	struct control_message m = {.kind = CONTROL_WHO,
				    .origin = c->config.rank,
				    .is_common = c->question.deadline_ns != 0,
				    .first = c->question.sequence,
				    .issued = c->question.number};
	bool is_asked = false;

	c->question.is_posted = true;
	for (int i = c->link_count - 1; i >= 0; i--) {
		if (c->links[i].peer < 0 || (is_asked && !m.is_common))
			continue;
		control_post_question(&c->links[i], &m);
		is_asked = true;
	}
}

bool control_ring_ask(struct control *control, uint64_t sequence, uint64_t deadline_ns)
{
	struct control_ring *c = ring_of(control);
	struct control_question *q = &c->question;

	pthread_mutex_lock(&c->lock);
	if (!q->number || q->sequence != sequence || q->deadline_ns != deadline_ns)
		*q = (struct control_question){
			.sequence = sequence, .deadline_ns = deadline_ns, .number = q->number + 1};
	if (!q->is_posted)
		post_question(c);
	control_settle(c);
	bool is_answered = q->is_answered;
	control_unlock(c);
	return !is_answered;
}

/* The ring's, to call sequence; NULL: it has not come. */
static const struct control_question *ring_question_answer_to(const struct control_ring *c,
							      uint64_t sequence)
{
	return c->question.is_answered && c->question.sequence == sequence ? &c->question : NULL;
}

const char *control_ring_missing(struct control *control, uint64_t sequence, char *text,
				 size_t text_bytes)
{
	struct control_ring *c = ring_of(control);
	struct rank_list list;

	rank_list_begin(&list, text, text_bytes);
	pthread_mutex_lock(&c->lock);
	control_settle(c);
	const struct control_question *answer = ring_question_answer_to(c, sequence);
	for (uint32_t i = 0; answer && i < answer->missing_count; i++)
		rank_list_add(&list, (int)answer->missing[i]);
	control_unlock(c);
	return rank_list_end(&list);
}

bool control_ring_all_agree(struct control *control, uint64_t sequence)
{
	struct control_ring *c = ring_of(control);
	pthread_mutex_lock(&c->lock);
	control_settle(c);
	const struct control_question *answer = ring_question_answer_to(c, sequence);
	bool agree = !c->has_failed && answer && answer->missing_count == 0;
	control_unlock(c);
	return agree;
}

/* A rank that has not made the call adds its name; back at the origin the list is the answer. */
void control_take_question(struct control_link *l, struct control_message *m)
{
	struct control_ring *c = l->ring;
	struct control_link *on = control_other(l);
	struct control_question *q = &c->question;
	struct control_message here = {.kind = CONTROL_HERE, .origin = c->config.rank};

	if (m->count > CONTROL_MISSING)
		return;
	control_post(l, &here);
	control_compare_kept(
		c); /* records that came before the question are compared before it goes on */
	if (m->origin == c->config.rank) {
		if (m->issued != q->number)
			return; /* to an earlier one */
		memcpy(q->missing, m->ranks, m->count * sizeof q->missing[0]);
		q->missing_count = m->count;
		q->is_answered = true;
		return;
	}
	if (c->known[m->origin].is_gone)
		return; /* no rank waits for the answer, and none would stop the question */
	if (m->first != NO_CALL && recorder_issued(c->config.recorder) <= m->first &&
	    m->count < CONTROL_MISSING)
		m->ranks[m->count++] = c->config.rank;
	control_post_question(on ? on : l, m);
}
