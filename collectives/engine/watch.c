/* Waits that last: what the engine looks at once a call has turned slow. These are its deadline;
 * the window or the control ring, which may know why the call does not end; and connections that
 * broke, whose message counts only when no other rank has a better one. */
#include "collectives/engine/engine_internal.h"

#include "collectives/control/control.h"

#include <stdio.h>

/* Deadlines are some ms. A look at all works costs the more the more there are, so it is not made
 * with each pass. */
enum { WATCH_NS = 500000 };

/* The earlier work of a call's stream may take any time. */
static void put_off_deadline(struct tutti_work *work, uint64_t now)
{
	bool is_held =
		work->spec.kind->is_held ? work->spec.kind->is_held(work) : work->bounce.is_held;

	if (is_held)
		work->deadline_ns = now + MS_TO_NS(work->spec.timeout_ms);
}

static uint64_t watch_age(const struct tutti_work *work, uint64_t now)
{
	uint64_t start = work->deadline_ns - (uint64_t)work->spec.timeout_ms * 1000000u;
	return now > start ? now - start : 0;
}

void engine_timed_out(struct engine *e, const struct tutti_work *work)
{
	char who[300], absent[128] = "", text[ERROR_BYTES];

	work_explain(e, work, who, sizeof who);
	if (work_is_collective(work) && e->config.control)
		control_missing(e->config.control, work->spec.args.sequence, absent, sizeof absent);
	if (absent[0])
		snprintf(text, sizeof text,
			 "waited %d ms %s; not in this call: %s. "
			 "TUTTI_TIMEOUT_MS sets how long to wait.",
			 work->spec.timeout_ms, who, absent);
	else
		snprintf(text, sizeof text, "waited %d ms %s%s", work->spec.timeout_ms, who,
			 work_message(work) ? "" : "; is every rank alive and in this call?");
	engine_fail_in(e, work, TUTTI_ERR_TIMEOUT, text);
}

bool engine_suspect(struct engine *e, const struct tutti_work *work, int peer, tutti_status status,
		    const char *message)
{
	struct failure failure = {
		.status = status,
		.rank = status == TUTTI_ERR_PEER ? peer : FAILURE_NO_RANK,
		.sequence = work && work_is_collective(work) ? work->spec.args.sequence : NO_CALL,
		.is_of_replay = work && work->spec.captured != NULL,
		.message = message};

	/* Ranks keep no records of replays that could say more. */
	if (!e->config.control || (failure.is_of_replay && status == TUTTI_ERR_MISMATCH))
		return e->failure.stop;
	return e->failure.stop || control_suspect(e->config.control, &failure, engine_now(e));
}

void engine_lost(struct engine *e, const struct tutti_work *work, int peer, tutti_status status,
		 const char *why)
{
	char text[ERROR_BYTES];

	engine_in_words(e, work, why, text);
	if (!engine_suspect(e, work, peer, status, text))
		engine_set_failure(e, status, status == TUTTI_ERR_PEER ? peer : -1, text);
}

static void fail_with(struct engine *e, const struct failure *failure)
{
	engine_set_failure(e, failure->status, failure->rank, failure->message);
}

/* Any rank that has died might have been the sender. */
static bool waits_for_anybody(const struct engine *e)
{
	for (const struct tutti_work *work = e->works.newest; work; work = work->next)
		if (work->spec.p2p.side == P2P_RECV && work->spec.p2p.peer == TUTTI_ANY)
			return true;
	return false;
}

/* lasts: since the oldest work, be it a message, was submitted: other ranks may fail while its
 * stream's earlier work keeps it from beginning. oldest: the oldest collective. */
static void look_around(struct engine *e, const struct tutti_work *oldest, uint64_t lasts,
			uint64_t now)
{
	struct control *control = e->config.control;
	bool is_suspect = control_suspicion(control) != NULL;

	if (now - e->watch.looked_ns < MS_TO_NS(LOOK_AROUND_MS) ||
	    (lasts < MS_TO_NS(SLOW_MS) && !is_suspect))
		return;
	e->watch.looked_ns = now;
	control_check(control,
		      &(struct control_wait){
			      .sequence = oldest ? oldest->spec.args.sequence : NO_CALL,
			      .is_urgent = is_suspect || lasts > MS_TO_NS(DEATH_MATTERS_MS) ||
					   waits_for_anybody(e)});
	const struct failure *failure = e->failure.stop ? NULL : control_unexplained(control, now);
	if (failure)
		fail_with(e, failure);
}

static bool is_mismatch(const struct failure *suspected)
{
	return suspected && suspected->status == TUTTI_ERR_MISMATCH;
}

/* Any rank may be why it is late: the rank that late waits for may itself wait. */
static bool awaits_answers(struct engine *e, const struct tutti_work *late, uint64_t now)
{
	uint64_t sequence = work_is_collective(late) ? late->spec.args.sequence : NO_CALL;

	if (!e->config.control)
		return false;
	if (e->watch.late_ns != late->deadline_ns) {
		e->watch.late_ns = late->deadline_ns;
		e->watch.asked_ns = now;
	}
	return now - e->watch.asked_ns < MS_TO_NS(ANSWERS_MS) &&
	       control_ask(e->config.control, sequence, late->deadline_ns);
}

void engine_ask_around(struct engine *e)
{
	if (e->config.control && !e->failure.stop)
		control_check(e->config.control, &(struct control_wait){NO_CALL, true});
}

void engine_take_failure(struct engine *e, const struct failure *failure)
{
	pthread_mutex_lock(&e->failure.lock);
	if (e->failure.reported.status == TUTTI_OK) {
		snprintf(e->failure.reported_message, sizeof e->failure.reported_message, "%s",
			 failure->message);
		e->failure.reported = *failure;
		e->failure.reported.message = e->failure.reported_message;
		/* Partner: engine_unlock, as for engine_fail. */
		atomic_store(&e->failure.report_state, REPORT_NEW);
	}
	pthread_mutex_unlock(&e->failure.lock);
}

/* The rank that failed had made all calls before failure.sequence: what it sent for them has
 * arrived or is on its way. */
static bool may_end_well(const struct engine *e, const struct failure *failure, uint64_t now)
{
	if (!e->config.control || control_suspicion(e->config.control) ||
	    now - e->watch.reported_ns > MS_TO_NS(END_WELL_MS))
		return false;
	for (const struct tutti_work *work = e->works.newest; work; work = work->next)
		if (work_is_collective(work) && work->spec.args.sequence < failure->sequence)
			return true;
	return false;
}

void engine_act_on_failure(struct engine *e)
{
	uint64_t now = engine_now(e);
	pthread_mutex_lock(&e->failure.lock);
	struct failure failure = e->failure.reported;
	pthread_mutex_unlock(&e->failure.lock);

	if (atomic_exchange(&e->failure.report_state, REPORT_SEEN) == REPORT_NEW)
		e->watch.reported_ns = now;
	if (!may_end_well(e, &failure, now))
		engine_fail_with_call(e, &failure, NULL);
}

void engine_watch(struct engine *e)
{
	uint64_t now = engine_now(e);
	struct tutti_work *late = NULL, *oldest = NULL, *first = NULL, *join = NULL;
	uint64_t lasts = 0;

	if (!e->config.now_ns && now - e->watch.watched_ns < WATCH_NS)
		return;
	e->watch.watched_ns = now;
	for (struct tutti_work *work = e->works.newest; work;
	     work = work->next) { /* the oldest is last */
		put_off_deadline(work, now);
		if (work->deadline_ns <= now)
			late = work;
		if (work_is_collective(work))
			oldest = work;
		if (call_is_join(&work->spec.args))
			join = work;
		lasts = watch_age(work, now);
		first = work;
	}
	if (late && e->failure.report_state)
		return; /* engine_unlock acts on what another rank has said */
	if (late) {
		const struct failure *suspected =
			e->config.control ? control_suspicion(e->config.control) : NULL;
		/* A suspected mismatch explains more than this deadline. A connection that broke
		 * does not: the deadline of the rank at its other end may have passed first. */
		if (is_mismatch(suspected)) {
			fail_with(e, suspected);
			return;
		}
		if (!awaits_answers(e, late, now)) {
			engine_timed_out(e, late);
			return;
		}
	}
	if (lasts >= MS_TO_NS(SLOW_MS))
		work_tell(e, first, now);
	if (join)
		join_tell(e, join, now);
	if (!e->config.control)
		return;
	look_around(e, oldest, first ? now - first->submitted_ns : 0, now);
}
