/* How a communicator fails. The first failure sticks, and its error message is made here; that
 * everything in flight ends with it is up to progress.c. Before that, what the engine looks at once
 * a call has turned slow: what it waits for; its deadline; the window or the control ring, which
 * may know why the call does not end; and connections that broke, whose message counts only when no
 * other rank has a better one. */
#include "collectives/control/control.h"
#include "collectives/engine/engine_internal.h"
#include "core/log.h"

#include <stdio.h>
#include <string.h>

#define TELL_NS 20000000u /* between two looks at one wait: the missing ranks may change */

/* Deadlines are some ms. A look at all works costs the more the more there are, so it is not made
 * with each pass. */
enum { WATCH_NS = 500000 };

/* What work waits for, in words, and a rank of it, or -1. */
static int engine_failure_work_explain(struct engine *e, const struct tutti_work *work, char *text,
				       size_t text_bytes)
{
	if (work->stage == WORK_PREPARES) {
		snprintf(text, text_bytes, "for staging in %s memory", work->spec.memory->name);
		return -1;
	}
	return work->spec.kind->explain(e, work, text, text_bytes);
}

static void engine_failure_tell_trace(struct engine *e, const struct trace_mark *mark, int rank,
				      const char *text)
{
	struct trace_wait wait = {.ticks = ticks_now(trace_clock), .rank = rank};
	uint64_t issued = atomic_load_explicit(&e->config.trace->issued, memory_order_relaxed);

	wait.index = issued - (uint32_t)((uint32_t)issued - mark->index);
	memcpy(wait.text, text, strlen(text) + 1);
	trace_waits(e->config.trace, &wait);
}

static bool engine_failure_is_due(struct engine *e, const struct trace_mark *mark, uint64_t now)
{
	if (!e->config.trace || !mark->entry || now - e->watch.told_ns < TELL_NS)
		return false;
	e->watch.told_ns = now;
	return true;
}

/* Asks which ranks have not come. False: their answers are still to come. An answer of 30 s ago is
 * no answer, so each time begins with another question. */
static bool engine_failure_ask_for_absent(struct engine *e, uint64_t sequence, uint64_t now)
{
	struct engine_watch *w = &e->watch;

	if (!w->absent_ns)
		control_ask(e->config.control, NO_CALL, 0);
	w->absent_ns = w->absent_ns ? w->absent_ns : now;
	if (now - w->absent_ns < MS_TO_NS(ANSWERS_MS) &&
	    control_ask(e->config.control, sequence, 0))
		return false;
	w->absent_ns = 0;
	return true;
}

/* Tells the user of a call that makes a communicator, once it has waited long. rank: that this one
 * waits for, which may itself be waiting for those that have not come. */
static void engine_failure_say_absent(struct engine *e, const struct call_args *args, int rank,
				      uint64_t now)
{
	struct engine_watch *w = &e->watch;
	char absent[128] = "";

	if (w->join != args->sequence + 1) {
		w->join = args->sequence + 1;
		w->wait = (struct long_wait){0};
		w->absent_ns = 0;
	}
	if (!w->absent_ns && !long_wait_is_due(&w->wait, now))
		return;
	if (e->config.control) {
		if (!engine_failure_ask_for_absent(e, args->sequence, now))
			return;
		control_missing(e->config.control, args->sequence, absent, sizeof absent);
	}
	if (!absent[0])
		snprintf(absent, sizeof absent, "rank %d", rank);
	long_wait_say("%s in tutti_%s", absent, collective_name(args->collective));
}

static void engine_failure_work_tell(struct engine *e, const struct tutti_work *work, uint64_t now)
{
	const struct trace_mark *mark = &work->spec.trace;
	char text[sizeof((struct trace_wait *)0)->text];

	if (engine_failure_is_due(e, mark, now))
		engine_failure_tell_trace(
			e, mark, engine_failure_work_explain(e, work, text, sizeof text), text);
}

/* Tells the user, after a long wait, which ranks have not come to work, which makes a communicator
 * (call_is_join). To be called again and again. */
static void engine_failure_join_tell(struct engine *e, const struct tutti_work *work, uint64_t now)
{
	char text[200];

	engine_failure_say_absent(e, &work->spec.args,
				  engine_failure_work_explain(e, work, text, sizeof text), now);
}

void window_tell(struct engine *e, struct window_run *run, const struct trace_mark *mark,
		 uint64_t now)
{
	char ranks[200], text[sizeof((struct trace_wait *)0)->text];

	if (call_is_join(&run->args))
		engine_failure_say_absent(e, &run->args, window_waits_for(e->config.window, run),
					  now);
	if (!engine_failure_is_due(e, mark, now))
		return;
	snprintf(text, sizeof text, "for %s",
		 window_explain(e->config.window, run, ranks, sizeof ranks));
	engine_failure_tell_trace(e, mark, window_waits_for(e->config.window, run), text);
}

/* A message that was composed without the engine, or on another rank, may lack it. */
static bool engine_failure_has_name(const struct engine *e, const char *message)
{
	char of[ENGINE_NAME_BYTES + 8];

	snprintf(of, sizeof of, " of %s", e->config.name);
	return !e->config.name[0] || strstr(message, of) || strstr(message, "Communicator ");
}

tutti_status engine_name_error(const struct engine *e, tutti_status status)
{
	char before[ENGINE_NAME_BYTES + 20];

	if (status == TUTTI_OK || engine_failure_has_name(e, last_error()))
		return status;
	snprintf(before, sizeof before, "Communicator %s: ", e->config.name);
	return fail_before(status, before);
}

/* An error that may follow from another rank's, perhaps in another communicator. */
static bool engine_failure_may_follow(tutti_status status)
{
	return status == TUTTI_ERR_PEER || status == TUTTI_ERR_ABORTED ||
	       status == TUTTI_ERR_TIMEOUT;
}

/* "Rank 5 of 8 has failed first. ", where the message does not say so. Notes who that is. */
static const char *engine_failure_say_first(const struct engine *e, tutti_status status, int rank,
					    const char *message, char text[JOB_FIRST_BYTES])
{
	text[0] = '\0';
	if (!e->config.control || !engine_failure_may_follow(status))
		return text;
	const struct job_view *job = control_job(e->config.control);
	if (status == TUTTI_ERR_PEER && rank >= 0 && !strstr(message, FAILURE_HAS_LEFT)) {
		control_hear_first(e->config.control, rank);
		job_note(job, 1 + job_number(job, rank));
	}
	job_say_first(job, rank, text);
	if (strstr(message, JOB_HAS_FAILED_FIRST)) /* another rank has said who */
		text[0] = '\0';
	return text;
}

void engine_set_failure(struct engine *e, tutti_status status, int rank, const char *message)
{
	char first[JOB_FIRST_BYTES];

	engine_failure_say_first(e, status, rank, message, first);
	pthread_mutex_lock(&e->failure.lock);
	bool is_first = !atomic_load_explicit(&e->failure.stop, memory_order_relaxed);
	if (is_first) {
		if (engine_failure_has_name(e, message))
			snprintf(e->failure.error, sizeof e->failure.error, "%s%s", first, message);
		else
			snprintf(e->failure.error, sizeof e->failure.error, "%sCommunicator %s: %s",
				 first, e->config.name, message);
		atomic_store_explicit(&e->failure.peer, rank + 1, memory_order_relaxed);
		atomic_store_explicit(&e->failure.status, (int)status, memory_order_release);
		/* Partner: every wait of this communicator looks at stop. */
		atomic_store_explicit(&e->failure.stop, 1, memory_order_release);
		if (e->config.trace)
			atomic_store_explicit(&e->config.trace->failed, (uint64_t)status,
					      memory_order_relaxed);
		log_info("the communicator failed: %s", e->failure.error);
	}
	pthread_mutex_unlock(&e->failure.lock);
	if (is_first && e->config.control)
		control_fail(e->config.control,
			     &(struct failure){
				     .status = status, .rank = rank, .message = e->failure.error},
			     e->works.numbered + (e->works.alone != NULL));
}

const char *engine_queue_error(const struct engine *e, const struct memory_kind *kind,
			       tutti_status status)
{
	const struct memory_queue *q = e->links.queues[kind->id];

	return q && q->error[0] ? q->error : tutti_status_string(status);
}

static const char *engine_call_words(const struct tutti_work *work, char *text, size_t text_bytes)
{
	return work->spec.kind->words(work, text, text_bytes);
}

const char *collective_words(const struct tutti_work *work, char *text, size_t text_bytes)
{
	const char *name = work->engine->config.name;
	char number[32];

	if (work->spec.captured)
		snprintf(number, sizeof number, ", replay %u", work->spec.replay);
	else
		snprintf(number, sizeof number, " #%llu",
			 (unsigned long long)work->spec.args.sequence);
	snprintf(text, text_bytes, "%s%s%s%s%s (%s)", work->spec.captured ? "captured " : "",
		 work->spec.name, number, name[0] ? " of " : "", name, work->spec.algorithm);
	return text;
}

const char *engine_in_words(const struct engine *e, const struct tutti_work *work, const char *why,
			    char *text)
{
	char call[100];
	snprintf(text, ERROR_BYTES, "rank %d: %s: %.380s", e->config.rank,
		 engine_call_words(work, call, sizeof call), why);
	return text;
}

static unsigned long long engine_failure_ms_since(const struct engine *e, uint64_t start_ns)
{
	return (engine_now(e) - start_ns) / 1000000u;
}

/* Not the peer's fault: it may be waiting for what this rank could not issue yet. */
void engine_fail_outside(struct engine *e)
{
	struct tutti_work named = {.engine = e, .spec = *e->works.outside},
			  *oldest = e->works.newest;
	char call[100], why[400], text[ERROR_BYTES];

	while (oldest->next)
		oldest = oldest->next;
	snprintf(why, sizeof why,
		 "%d works are in flight on this communicator (at most %d): waited %llu ms for one "
		 "of them to end; the oldest, %s, has lasted %llu ms; wait for some before issuing "
		 "more, or issue them in a group",
		 e->works.count, engine_works_most(e),
		 engine_failure_ms_since(e, e->works.outside_since_ns),
		 engine_call_words(oldest, call, sizeof call),
		 engine_failure_ms_since(e, oldest->deadline_ns -
						    (uint64_t)oldest->spec.timeout_ms * 1000000u));
	engine_set_failure(e, TUTTI_ERR_TIMEOUT, FAILURE_NO_RANK,
			   engine_in_words(e, &named, why, text));
}

void engine_fail_in(struct engine *e, const struct tutti_work *work, tutti_status status,
		    const char *why)
{
	char text[ERROR_BYTES];
	if (status == TUTTI_ERR_TIMEOUT && e->works.outside &&
	    e->works.count >= engine_works_most(e))
		engine_fail_outside(e);
	else
		engine_set_failure(e, status, FAILURE_NO_RANK, engine_in_words(e, work, why, text));
}

static bool engine_failure_ends_with_stop(const char *text)
{
	size_t n = strlen(text);
	return n > 0 && strchr(".?!", text[n - 1]);
}

/* Fails with failure, which all ranks are told. The message here names this rank's own operation,
 * too: work, or if NULL its oldest. */
static void engine_fail_with_call(struct engine *e, const struct failure *failure,
				  const struct tutti_work *work)
{
	char text[ERROR_BYTES], call[100], who[360];

	for (const struct tutti_work *next = work ? NULL : e->works.newest; next; next = next->next)
		work = next; /* the oldest is last */
	if (!work || (failure->status != TUTTI_ERR_PEER && !failure->is_common)) {
		engine_set_failure(e, failure->status, failure->rank, failure->message);
		return;
	}
	engine_failure_work_explain(e, work, who, sizeof who);
	snprintf(text, sizeof text, "%.260s%s Rank %d was in %s and waited %.110s%s",
		 failure->message, engine_failure_ends_with_stop(failure->message) ? "" : ".",
		 e->config.rank, engine_call_words(work, call, sizeof call), who,
		 engine_failure_ends_with_stop(who) ? "" : ".");
	engine_set_failure(e, failure->status, failure->rank, text);
}

tutti_status engine_status(const struct engine *e)
{
	return (tutti_status)atomic_load_explicit(&((struct engine *)(uintptr_t)e)->failure.status,
						  memory_order_acquire);
}

const char *engine_error(const struct engine *e)
{
	return engine_status(e) == TUTTI_OK ? "" : e->failure.error;
}

int engine_failed_peer(const struct engine *e)
{
	return engine_status(e) == TUTTI_ERR_PEER ? e->failure.peer - 1 : -1;
}

void engine_show_failure(struct engine *e)
{
	if (e->failure.trace_dir && engine_status(e) != TUTTI_OK &&
	    !atomic_exchange(&e->failure.is_shown, true))
		trace_dump_failure(e->failure.trace_dir);
}

/* The earlier work of a call's stream may take any time. */
static void engine_failure_put_off_deadline(struct tutti_work *work, uint64_t now)
{
	bool is_held =
		work->spec.kind->is_held ? work->spec.kind->is_held(work) : work->bounce.is_held;

	if (is_held)
		work->deadline_ns = now + MS_TO_NS(work->spec.timeout_ms);
}

static uint64_t engine_failure_watch_age(const struct tutti_work *work, uint64_t now)
{
	uint64_t start = work->deadline_ns - (uint64_t)work->spec.timeout_ms * 1000000u;
	return now > start ? now - start : 0;
}

/* work's deadline has passed. Says what it waited for, and which ranks are not in it. */
static void engine_timed_out(struct engine *e, const struct tutti_work *work)
{
	char who[300], absent[128] = "", text[ERROR_BYTES];

	engine_failure_work_explain(e, work, who, sizeof who);
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

/* A mismatch that the window has seen itself has the same message on both ranks. */
void engine_window_failed(struct engine *e, const struct tutti_work *work, tutti_status status)
{
	const struct failure *found = e->config.control ? control_found(e->config.control) : NULL;
	char why[ERROR_BYTES];

	snprintf(why, sizeof why, "%s", last_error());
	if (found)
		engine_fail_with_call(e, found, work);
	else if (status == TUTTI_ERR_MISMATCH)
		engine_set_failure(e, status, FAILURE_NO_RANK, why);
	else if (status == TUTTI_ERR_TIMEOUT)
		engine_timed_out(e, work);
	else
		engine_fail_in(e, work, status, why);
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

static void engine_failure_fail_with(struct engine *e, const struct failure *failure)
{
	engine_set_failure(e, failure->status, failure->rank, failure->message);
}

/* Any rank that has died might have been the sender. */
static bool engine_failure_waits_for_anybody(const struct engine *e)
{
	for (const struct tutti_work *work = e->works.newest; work; work = work->next)
		if (work->spec.p2p.side == P2P_RECV && work->spec.p2p.peer == TUTTI_ANY)
			return true;
	return false;
}

/* lasts: since the oldest work, be it a message, was submitted: other ranks may fail while its
 * stream's earlier work keeps it from beginning. oldest: the oldest collective. */
static void engine_failure_look_around(struct engine *e, const struct tutti_work *oldest,
				       uint64_t lasts, uint64_t now)
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
					   engine_failure_waits_for_anybody(e)});
	const struct failure *failure = e->failure.stop ? NULL : control_unexplained(control, now);
	if (failure)
		engine_failure_fail_with(e, failure);
}

static bool engine_failure_is_mismatch(const struct failure *suspected)
{
	return suspected && suspected->status == TUTTI_ERR_MISMATCH;
}

/* Any rank may be why it is late: the rank that late waits for may itself wait. */
static bool engine_failure_awaits_answers(struct engine *e, const struct tutti_work *late,
					  uint64_t now)
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
static bool engine_failure_may_end_well(const struct engine *e, const struct failure *failure,
					uint64_t now)
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
	if (!engine_failure_may_end_well(e, &failure, now))
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
		engine_failure_put_off_deadline(work, now);
		if (work->deadline_ns <= now)
			late = work;
		if (work_is_collective(work))
			oldest = work;
		if (call_is_join(&work->spec.args))
			join = work;
		lasts = engine_failure_watch_age(work, now);
		first = work;
	}
	if (late && e->failure.report_state)
		return; /* engine_unlock acts on what another rank has said */
	if (late) {
		const struct failure *suspected =
			e->config.control ? control_suspicion(e->config.control) : NULL;
		/* A suspected mismatch explains more than this deadline. A connection that broke
		 * does not: the deadline of the rank at its other end may have passed first. */
		if (engine_failure_is_mismatch(suspected)) {
			engine_failure_fail_with(e, suspected);
			return;
		}
		if (!engine_failure_awaits_answers(e, late, now)) {
			engine_timed_out(e, late);
			return;
		}
	}
	if (lasts >= MS_TO_NS(SLOW_MS))
		engine_failure_work_tell(e, first, now);
	if (join)
		engine_failure_join_tell(e, join, now);
	if (!e->config.control)
		return;
	engine_failure_look_around(e, oldest, first ? now - first->submitted_ns : 0, now);
}
