/* Waits that last: what the engine looks at once a call has turned slow. Deadlines; who may know
 * why it does not come to its end (the window, the control ring); and connections that broke, whose
 * message counts only when nobody has a better one. */
#include "collectives/engine/job.h"

#include "collectives/control/deadlines.h"

#include <stdio.h>
#include <string.h>

static bool is_collective(const struct tutti_work *work)
{
	return work->spec.args.fingerprint != 0;
}

static uint64_t age(const struct tutti_work *work, uint64_t now)
{
	uint64_t start = work->deadline_ns - (uint64_t)work->spec.timeout_ms * 1000000u;
	return now > start ? now - start : 0;
}

static const char *missing_ranks(struct engine *e, const struct tutti_work *work, char *text,
				 size_t text_bytes)
{
	uint64_t sequence = work->spec.args.sequence;
	text[0] = '\0';
	if (!is_collective(work))
		return text;
	if (e->config.window)
		return window_missing(e->config.window, sequence, text, text_bytes);
	if (e->config.control)
		return control_missing(e->config.control, sequence, text, text_bytes);
	return text;
}

static void explain_wait(struct engine *e, struct tutti_work *work)
{
	char who[360], absent[128], text[ERROR_BYTES];
	work_explain(e, work, who, sizeof who);
	missing_ranks(e, work, absent, sizeof absent);
	if (absent[0])
		snprintf(text, sizeof text, "waited %d ms %.330s; not in this call: %s",
			 work->spec.timeout_ms, who, absent);
	else
		snprintf(text, sizeof text, "waited %d ms %.330s%s", work->spec.timeout_ms, who,
			 work->message ? "" : "; is every rank alive and in this call?");
	engine_fail_in(e, work, TUTTI_ERR_TIMEOUT, text);
}

/* Not the simulator's ranks: they have only their connections. */
static bool may_be_explained(const struct engine *e)
{
	return !e->config.now_ns && (e->config.window || e->config.control);
}

static void look(struct engine *e, uint64_t sequence, bool is_bad)
{
	if (e->config.window) {
		tutti_status status = window_look(e->config.window, sequence, is_bad);
		if (status != TUTTI_OK)
			engine_set_failure(e, status, window_dead(e->config.window), last_error());
	} else {
		control_slow(e->config.control, sequence, is_bad);
	}
}

bool engine_suspect(struct engine *e, const struct tutti_work *work, int peer, tutti_status status,
		    const char *message)
{
	struct failure failure = {.status = status,
				  .rank = status == TUTTI_ERR_PEER ? peer : FAILURE_NO_RANK,
				  .sequence = work && is_collective(work) ? work->spec.args.sequence
									  : NO_CALL,
				  .message = message};

	if (!suspicion_may_be_explained(status) || !may_be_explained(e))
		return false;
	if (!e->stop && suspicion_note(&e->suspicion, &failure, engine_now(e)))
		look(e, failure.sequence, true);
	return true;
}

void engine_lost(struct engine *e, const struct tutti_work *work, int peer, tutti_status status,
		 const char *why)
{
	char text[ERROR_BYTES];

	engine_in_words(e, work, why, text);
	if (!engine_suspect(e, work, peer, status, text))
		engine_set_failure(e, status, status == TUTTI_ERR_PEER ? peer : -1, text);
}

/* After a mismatch was suspected: whether all ranks are known to have made the same call. */
static bool all_agree(const struct engine *e)
{
	const struct failure *suspected = &e->suspicion.failure;

	return suspicion_is_mismatch(&e->suspicion) && e->config.control &&
	       suspected->sequence != NO_CALL &&
	       control_all_agree(e->config.control, suspected->sequence);
}

static void fail_as_suspected(struct engine *e)
{
	const struct failure *suspected = &e->suspicion.failure;

	engine_set_failure(e, suspected->status, suspected->rank, suspected->message);
}

/* Whoever has died, it might have been the one to send. */
static bool waits_for_anybody(const struct engine *e)
{
	for (const struct tutti_work *work = e->works; work; work = work->next)
		if (work->spec.p2p.side == P2P_RECV && work->spec.p2p.peer == TUTTI_ANY)
			return true;
	return false;
}

/* lasts: of the oldest work, be it a message; oldest: the oldest collective. */
static void look_around(struct engine *e, const struct tutti_work *oldest, uint64_t lasts,
			uint64_t now)
{
	bool is_suspect = suspicion_is_open(&e->suspicion), is_bad;

	if (now - e->looked_ns < MS_TO_NS(LOOK_AROUND_MS) ||
	    (lasts < MS_TO_NS(SLOW_MS) && !is_suspect))
		return;
	e->looked_ns = now;
	is_bad = is_suspect || lasts > MS_TO_NS(DEATH_MATTERS_MS) || waits_for_anybody(e);
	look(e, oldest ? oldest->spec.args.sequence : NO_CALL, is_bad);
	if (is_suspect && !e->stop && suspicion_is_over(&e->suspicion, all_agree(e), now))
		fail_as_suspected(e);
}

/* There is one question at a time: about the call that a mismatch was seen in, or else about the
 * one whose deadline comes next. */
static void ask_around(struct engine *e, const struct tutti_work *next, uint64_t now)
{
	const struct failure *suspected = &e->suspicion.failure;
	uint64_t early = (uint64_t)next->spec.timeout_ms * 1000000u / 2;

	if (early > MS_TO_NS(ASK_MISSING_MS))
		early = MS_TO_NS(ASK_MISSING_MS);
	if (!e->config.control)
		return;
	if (suspicion_is_mismatch(&e->suspicion) && suspected->sequence != NO_CALL)
		control_ask(e->config.control, suspected->sequence);
	else if (next->deadline_ns - now < early)
		control_ask(e->config.control, next->spec.args.sequence);
}

void engine_ask_around(struct engine *e)
{
	if (may_be_explained(e) && !e->stop)
		look(e, NO_CALL, true);
}

void engine_take_failure(struct engine *e, const struct failure *failure)
{
	pthread_mutex_lock(&e->fail_lock);
	if (e->reported.status == TUTTI_OK) {
		snprintf(e->reported_message, sizeof e->reported_message, "%s", failure->message);
		e->reported = *failure;
		e->reported.message = e->reported_message;
		/* Partner: engine_unlock, as for engine_fail. */
		atomic_store(&e->report_state, REPORT_NEW);
	}
	pthread_mutex_unlock(&e->fail_lock);
}

/* The rank that failed had made all calls before failure.sequence: what it sent for them has
 * arrived or is on its way. */
static bool may_end_well(const struct engine *e, const struct failure *failure, uint64_t now)
{
	if (suspicion_is_open(&e->suspicion) || now - e->reported_ns > MS_TO_NS(END_WELL_MS))
		return false;
	for (const struct tutti_work *work = e->works; work; work = work->next)
		if (is_collective(work) && work->spec.args.sequence < failure->sequence)
			return true;
	return false;
}

/* What all are told, and what this rank was doing. */
static const char *with_own_call(struct engine *e, const struct failure *failure, char *text)
{
	const struct tutti_work *oldest = e->works;
	char call[100], who[360];

	while (oldest && oldest->next)
		oldest = oldest->next;
	if (!oldest || (failure->status != TUTTI_ERR_PEER && !failure->is_common))
		return failure->message;
	work_explain(e, oldest, who, sizeof who);
	snprintf(text, ERROR_BYTES, "%.220s Rank %d was in %s and waited %.150s%s",
		 failure->message, e->config.rank, engine_call_words(oldest, call, sizeof call),
		 who, who[strlen(who) - 1] == '?' ? "" : ".");
	return text;
}

void engine_act_on_failure(struct engine *e)
{
	char text[ERROR_BYTES];
	uint64_t now = engine_now(e);
	pthread_mutex_lock(&e->fail_lock);
	struct failure failure = e->reported;
	pthread_mutex_unlock(&e->fail_lock);

	if (atomic_exchange(&e->report_state, REPORT_SEEN) == REPORT_NEW)
		e->reported_ns = now;
	if (!may_end_well(e, &failure, now))
		engine_set_failure(e, failure.status, failure.rank,
				   with_own_call(e, &failure, text));
}

void engine_watch(struct engine *e)
{
	uint64_t now = engine_now(e);
	struct tutti_work *late = NULL, *oldest = NULL, *next = NULL, *first = NULL;
	uint64_t lasts = 0;

	for (struct tutti_work *work = e->works; work; work = work->next) { /* the oldest is last */
		if (work->deadline_ns <= now)
			late = work;
		if (is_collective(work)) {
			oldest = work;
			next = !next || work->deadline_ns < next->deadline_ns ? work : next;
		}
		lasts = age(work, now);
		first = work;
	}
	if (late) {
		/* A connection that broke just before may be of one whose deadline came first. */
		if (suspicion_is_mismatch(&e->suspicion))
			fail_as_suspected(e);
		else
			explain_wait(e, late);
		return;
	}
	if (lasts >= MS_TO_NS(SLOW_MS))
		work_tell(e, first, now);
	if (!may_be_explained(e))
		return;
	if (next)
		ask_around(e, next, now);
	look_around(e, oldest, lasts, now);
}
