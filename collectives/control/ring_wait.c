/* What a call that waits asks the ring: control.h. */
#include "collectives/control/control_internal.h"

#include "core/rank_list.h"

#include <stdio.h>

/* A rank that has left makes no more calls, so a wait in a later call has to fail. */
static void look_for_leavers(struct control_ring *c, uint64_t sequence)
{
	for (int r = 0; c->some_have_left && r < c->config.size; r++) {
		const struct control_known *known = &c->known[r];
		char text[ERROR_BYTES], who[128];
		if (!known->has_left || known->left_at > sequence)
			continue;
		snprintf(text, sizeof text,
			 "%s has left the communicator after %llu calls, and rank %d waits in "
			 "call #%llu.",
			 control_who(c, r, who, sizeof who), (unsigned long long)known->left_at,
			 c->config.rank, (unsigned long long)sequence);
		control_decide(c, &(struct failure){.status = TUTTI_ERR_PEER,
						    .rank = r,
						    .sequence = sequence,
						    .message = text});
		return;
	}
}

void ring_check(struct control *control, const struct control_wait *wait)
{
	struct control_ring *c = ring_of(control);
	uint64_t sequence = wait->sequence;

	pthread_mutex_lock(&c->lock);
	control_settle(c);
	control_compare_kept(c);
	if (sequence != NO_CALL)
		look_for_leavers(c, sequence);
	if (c->dead >= 0 && wait->is_urgent)
		control_decide(c, &(struct failure){.status = TUTTI_ERR_PEER,
						    .rank = c->dead,
						    .sequence = sequence,
						    .message = c->death});
	control_watch(c);
	control_measure_silence(c);
	if (sequence != NO_CALL && c->slow_told != sequence + 1 && !c->has_failed) {
		uint64_t first = sequence > CONTROL_BEFORE ? sequence - CONTROL_BEFORE : 0;
		c->slow_told = sequence + 1;
		for (int i = 0; i < c->link_count; i++)
			control_send_calls(&c->links[i], first, first + CONTROL_CALLS_MOST - 1);
	}
	control_settle(c);
	control_unlock(c);
}

void ring_ask(struct control *control, uint64_t sequence)
{
	struct control_ring *c = ring_of(control);
	struct control_message m = {
		.kind = CONTROL_WHO, .origin = c->config.rank, .first = sequence};

	pthread_mutex_lock(&c->lock);
	if (c->asked != sequence + 1) {
		c->asked = sequence + 1;
		control_post(
			&c->links[c->links[c->link_count - 1].peer < 0 ? 0 : c->link_count - 1],
			&m);
		control_settle(c);
	}
	control_unlock(c);
}

const char *ring_missing(struct control *control, uint64_t sequence, char *text, size_t text_bytes)
{
	struct control_ring *c = ring_of(control);
	struct rank_list list;

	rank_list_begin(&list, text, text_bytes);
	pthread_mutex_lock(&c->lock);
	control_settle(c);
	for (uint32_t i = 0; c->answer_to == sequence + 1 && i < c->missing_count; i++)
		rank_list_add(&list, (int)c->missing[i]);
	control_unlock(c);
	return rank_list_end(&list);
}

bool ring_all_agree(struct control *control, uint64_t sequence)
{
	struct control_ring *c = ring_of(control);
	pthread_mutex_lock(&c->lock);
	control_settle(c);
	bool agree = !c->has_failed && c->answer_to == sequence + 1 && c->missing_count == 0;
	control_unlock(c);
	return agree;
}
