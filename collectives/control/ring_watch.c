/* Whether ranks that say nothing are there. A rank whose wait lasts asks both neighbours; each
 * of them answers and asks the next one. So every rank is asked by its two neighbours, at most
 * once in an interval, however many ranks wait. The helper thread answers: a rank
 * that computes is there, one that is stopped is not. */
#include "collectives/control/control_internal.h"

#include "core/clock.h"
#include "core/machine.h"

#include <stdio.h>

#define PAUSE_NS    1000000000u /* looks that lie further apart are of different waits */
#define TICK_NS_MAX MS_TO_NS(2 * RING_LOOK_MS)

static uint64_t silence_ns(const struct control_ring *c)
{
	return MS_TO_NS(c->config.silence_ms);
}

static uint64_t ring_watch_interval_ns(const struct control_ring *c)
{
	uint64_t most = MS_TO_NS(WATCH_MS), interval = silence_ns(c) / 4;
	return interval < most ? interval : most;
}

static void await_answer(struct control_link *l)
{
	if (l->is_awaited)
		return;
	control_measure_silence(l->ring);
	l->is_awaited = true;
	l->silent_ns = 0;
	l->ring->needs_helper = true;
}

/* If the neighbour was asked a moment ago, all ranks behind it have been asked, too. */
static void ask_sign_of_life(struct control_link *l, uint32_t hops)
{
	struct control_ring *c = l->ring;
	struct control_message m = {.kind = CONTROL_WATCH, .origin = c->config.rank, .count = hops};
	uint64_t now = clock_now_ns();

	if (!l->conn || !l->is_up ||
	    (l->watched_ns && now - l->watched_ns < ring_watch_interval_ns(c)))
		return;
	l->watched_ns = now;
	await_answer(l);
	control_post(l, &m);
}

void control_watch(struct control_ring *c)
{
	uint64_t now = clock_now_ns();

	if (c->config.silence_ms == 0 || c->has_failed)
		return;
	if (now - c->slow_ns > PAUSE_NS)
		c->slow_since_ns = now;
	c->slow_ns = now;
	if (now - c->slow_since_ns >= ring_watch_interval_ns(c))
		for (int i = 0; i < c->link_count; i++)
			ask_sign_of_life(&c->links[i], (uint32_t)c->config.size);
}

void control_take_watch(struct control_link *l, const struct control_message *m)
{
	struct control_ring *c = l->ring;
	struct control_link *on = control_other(l);
	struct control_message here = {.kind = CONTROL_HERE, .origin = c->config.rank};

	control_post(l, &here);
	if (on && m->count > 1 && c->config.silence_ms)
		ask_sign_of_life(on, m->count - 1);
}

static bool ring_watch_is_stopped(const struct control_link *l)
{
	const struct control_peer *peer = &l->ring->config.peers[l->peer];
	return peer->is_visible && process_is_stopped(peer->process);
}

/* How long a neighbour may be silent. */
static uint64_t ring_watch_limit_ns(const struct control_link *l)
{
	uint64_t silence = l->ring->config.silence_ms ? silence_ns(l->ring) : UINT64_MAX;
	bool is_sooner = l->asker >= 0 && MS_TO_NS(ANSWER_MS) < silence;
	return is_sooner ? MS_TO_NS(ANSWER_MS) : silence;
}

static void ring_watch_give_up(struct control_link *l)
{
	struct control_ring *c = l->ring;
	char text[ERROR_BYTES], who[128], why[100] = "(TUTTI_SILENCE_MS; 0: wait for ever)";

	if (l->asker >= 0)
		snprintf(why, sizeof why,
			 "and the deadline of a call of rank %d has passed (TUTTI_TIMEOUT_MS)",
			 l->asker);
	snprintf(text, sizeof text, "%s %s: it has not answered rank %d for %.1f s %s.",
		 control_who(c, l->peer, who, sizeof who),
		 ring_watch_is_stopped(l)
			 ? "is stopped (SIGSTOP, or a debugger)"
			 : "is silent: stopped, or its machine or the way there is gone",
		 c->config.rank, (double)l->silent_ns * 1e-9, why);
	control_decide(c, &(struct failure){.status = TUTTI_ERR_TIMEOUT,
					    .rank = FAILURE_NO_RANK,
					    .message = text,
					    .is_common = true});
}

/* The kernel says at once which processes of this machine are stopped; other machines have to
 * answer. */
void control_post_question(struct control_link *l, const struct control_message *m)
{
	if (m->is_common && l->peer >= 0) {
		await_answer(l);
		l->asker = m->origin;
		if (ring_watch_is_stopped(l))
			ring_watch_give_up(l);
	}
	if (!l->ring->has_failed)
		control_post(l, m);
}

/* A process that was stopped itself, or starved, wakes up late: what it could not hear meanwhile is
 * not the silence of other ranks. */
void control_measure_silence(struct control_ring *c)
{
	uint64_t now = clock_now_ns(), passed = now - c->ticked_ns;

	c->ticked_ns = now;
	passed = passed < TICK_NS_MAX ? passed : TICK_NS_MAX;
	for (int i = 0; i < c->link_count && !c->has_failed; i++) {
		struct control_link *l = &c->links[i];
		if (!l->is_awaited)
			continue;
		l->silent_ns += passed;
		if (l->silent_ns >= ring_watch_limit_ns(l))
			ring_watch_give_up(l);
	}
}
