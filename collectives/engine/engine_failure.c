/* How a communicator fails: the first failure sticks, and its error message is made here. Files
 * above see to it that everything in flight ends with it (progress.c). */
#include "collectives/engine/engine_internal.h"

#include "core/log.h"

#include <stdio.h>
#include <string.h>

/* A message that was composed without the engine, or on another rank, may lack it. */
static bool has_name(const struct engine *e, const char *message)
{
	char of[ENGINE_NAME_BYTES + 8];

	snprintf(of, sizeof of, " of %s", e->config.name);
	return !e->config.name[0] || strstr(message, of) || strstr(message, "Communicator ");
}

tutti_status engine_name_error(const struct engine *e, tutti_status status)
{
	char before[ENGINE_NAME_BYTES + 20];

	if (status == TUTTI_OK || has_name(e, last_error()))
		return status;
	snprintf(before, sizeof before, "Communicator %s: ", e->config.name);
	return fail_before(status, before);
}

/* An error that may follow from another rank's, perhaps in another communicator. */
static bool may_follow(tutti_status status)
{
	return status == TUTTI_ERR_PEER || status == TUTTI_ERR_ABORTED ||
	       status == TUTTI_ERR_TIMEOUT;
}

/* "Rank 5 of 8 has failed first. ", where the message does not say so. Notes who that is. */
static const char *say_first(const struct engine *e, tutti_status status, int rank,
			     const char *message, char text[JOB_FIRST_BYTES])
{
	text[0] = '\0';
	if (!e->config.control || !may_follow(status))
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

	say_first(e, status, rank, message, first);
	pthread_mutex_lock(&e->failure.lock);
	bool is_first = !atomic_load_explicit(&e->failure.stop, memory_order_relaxed);
	if (is_first) {
		if (has_name(e, message))
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

/* The call by its name, whatever kind it is. Returns text. */
static const char *engine_failure_call_words(const struct tutti_work *work, char *text,
					     size_t text_bytes)
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
		 engine_failure_call_words(work, call, sizeof call), why);
	return text;
}

static unsigned long long ms_since(const struct engine *e, uint64_t start_ns)
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
		 e->works.count, engine_works_most(e), ms_since(e, e->works.outside_since_ns),
		 engine_failure_call_words(oldest, call, sizeof call),
		 ms_since(e, oldest->deadline_ns - (uint64_t)oldest->spec.timeout_ms * 1000000u));
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

static bool ends_with_stop(const char *text)
{
	size_t n = strlen(text);
	return n > 0 && strchr(".?!", text[n - 1]);
}

/* Adds this rank's own operation, which is work or its oldest, to the message for all ranks. */
void engine_fail_with_call(struct engine *e, const struct failure *failure,
			   const struct tutti_work *work)
{
	char text[ERROR_BYTES], call[100], who[360];

	for (const struct tutti_work *next = work ? NULL : e->works.newest; next; next = next->next)
		work = next; /* the oldest is last */
	if (!work || (failure->status != TUTTI_ERR_PEER && !failure->is_common)) {
		engine_set_failure(e, failure->status, failure->rank, failure->message);
		return;
	}
	work_explain(e, work, who, sizeof who);
	snprintf(text, sizeof text, "%.260s%s Rank %d was in %s and waited %.110s%s",
		 failure->message, ends_with_stop(failure->message) ? "" : ".", e->config.rank,
		 engine_failure_call_words(work, call, sizeof call), who,
		 ends_with_stop(who) ? "" : ".");
	engine_set_failure(e, failure->status, failure->rank, text);
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
