/* Making and ending an engine, and what may be asked of it at any time. */
#include "collectives/engine/direct.h"
#include "collectives/engine/helper.h"
#include "collectives/engine/run.h"
#include "core/log.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tutti_status engine_copy_config(struct engine *e, const struct engine_config *config)
{
	size_t n = (size_t)config->size, places = 2 * n;
	e->config = *config;
	e->config.endpoints =
		calloc((size_t)config->endpoint_count + 1, sizeof *e->config.endpoints);
	e->links.routes = calloc(n, sizeof *e->links.routes);
	e->links.conns = calloc(places, sizeof *e->links.conns);
	for (int s = 0; s < 2; s++)
		e->links.streams[s] = calloc(places, sizeof *e->links.streams[s]);
	e->failure.trace_dir = config->trace_dir ? strdup(config->trace_dir) : NULL;
	if (!e->config.endpoints || !e->links.routes || !e->links.conns || !e->links.streams[0] ||
	    !e->links.streams[1] || (config->trace_dir && !e->failure.trace_dir))
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the tables of %d ranks",
			    config->rank, config->size);
	for (int s = 0; s < 2; s++)
		for (size_t i = 0; i < places; i++)
			e->links.streams[s][i].tail = &e->links.streams[s][i].head;
	if (config->routes)
		memcpy(e->links.routes, config->routes, n * sizeof *e->links.routes);
	return TUTTI_OK;
}

static void engine_free_tables(struct engine *e)
{
	free(e->config.endpoints);
	free(e->links.routes);
	free(e->links.conns);
	free(e->links.streams[0]);
	free(e->links.streams[1]);
	e->config.endpoints = NULL;
	e->links.routes = NULL;
	e->links.conns = NULL;
	e->links.streams[0] = e->links.streams[1] = NULL;
}

tutti_status engine_create(struct engine **engine, const struct engine_config *config)
{
	struct engine *e = calloc(1, sizeof *e);

	if (!e)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the engine", config->rank);
	pthread_mutex_init(&e->lock, NULL);
	pthread_mutex_init(&e->failure.lock, NULL);
	pthread_mutex_init(&e->lists.lock, NULL);
	tutti_done_init(&e->links.done);
	e->runs.dirty_tail = &e->runs.dirty;
	e->works.window_tail = &e->works.window_head;
	e->works.ended_tail = &e->works.ended;
	e->lists.called_tail = &e->lists.called;
	e->captured.started_tail = &e->captured.started;
	engine_ref_owner(e);
	tutti_status status = engine_copy_config(e, config);
	spread_near(&e->spread, e->config.near, config->ranks_near_count, config->ranks_near_me);
	if (status == TUTTI_OK)
		status = memory_host.open(&e->links.queues[TUTTI_MEMORY_HOST]);
	if (status != TUTTI_OK) {
		engine_free_tables(e);
		engine_unref_owner(e);
		return status;
	}
	/* Now the engine owns the endpoints and the window. */
	for (int i = 0; i < config->endpoint_count; i++)
		e->config.endpoints[i] = config->endpoints[i];
	direct_open(e);
	*engine = e;
	return TUTTI_OK;
}

static void engine_on_failure(void *arg, const struct failure *failure)
{
	engine_take_failure(arg, failure);
	engine_try_clean(arg);
}

tutti_status engine_open_control(struct engine *e)
{
	control_bind(e->config.control, engine_on_failure, helper_wake, e);
	if (!control_needs_helper(e->config.control))
		return TUTTI_OK;
	TRY(helper_attach(e));
	helper_wake();
	return TUTTI_OK;
}

/* If a connection breaks now, the last bytes may be lost, and only this rank can send them again.
 * It does so for linger_ms. */
static bool engine_must_linger(struct engine *e, uint64_t *until_ns)
{
	struct resend resend;

	if (*until_ns == 0)
		*until_ns = engine_now(e) + (uint64_t)e->config.linger_ms * 1000000u;
	if (!engine_in_doubt(e) || engine_now(e) >= *until_ns)
		return false;
	engine_resend(e, &resend);
	return true;
}

/* The engine, which is still in use, stays allocated. Returns false. */
static bool engine_leave_allocated(struct engine *e, const char *why)
{
	log_notice("tutti_comm_destroy on rank %d gives up, and leaves communicator %s allocated: "
		   "%s",
		   e->config.rank, e->config.name[0] ? e->config.name : "(without a name)", why);
	return false;
}

/* ThreadSanitizer of gcc 12 does not see pthread_mutex_clocklock. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
static void engine_tell_locked(pthread_mutex_t *lock)
{
	__tsan_mutex_pre_lock(lock, __tsan_mutex_try_lock);
	__tsan_mutex_post_lock(lock, __tsan_mutex_try_lock, 0);
}
#else
static void engine_tell_locked(pthread_mutex_t *lock)
{
	(void)lock;
}
#endif

/* Takes the lock. Threads hold it for one pass at a time, but a callback that was left by longjmp
 * leaves it locked for ever. False: gave up after the timeout. */
static bool engine_lock_in_time(struct engine *e)
{
	struct timespec until = deadline_timespec(engine_give_up_ns(e));
	char why[ERROR_BYTES];

	if (engine_trylock(e))
		return true;
	bool is_ours = engine_holds_lock(e);
	if (!is_ours && pthread_mutex_clocklock(&e->lock, CLOCK_MONOTONIC, &until) == 0) {
		engine_tell_locked(&e->lock);
		engine_set_holder(e);
		if (e->works.alone)
			engine_enlist(e);
		return true;
	}
	if (is_ours)
		snprintf(why, sizeof why,
			 "this thread holds its lock: a callback has called this, or was left by "
			 "longjmp; a reduction function must not call Tutti with its communicator");
	else
		snprintf(why, sizeof why,
			 "a thread has held its lock for %d ms: a callback, such as a reduction "
			 "function, does not return, or was left by longjmp",
			 engine_give_up_ms(e));
	engine_leave_allocated(e, why);
	engine_set_failure(e, TUTTI_ERR_ABORTED, FAILURE_NO_RANK, why);
	return false;
}

static bool engine_is_drained(struct engine *e)
{
	return !e->user || e->user->is_drained(e);
}

/* Pending works end first, by themselves or at their deadline. Then the others are told that this
 * rank leaves. Sends that no rank has received yet come last, since their receivers may wait for
 * that message. False: a thread did not release the lock in time. */
static bool engine_drain(struct engine *e)
{
	uint64_t until_ns = 0;
	bool has_left = false;
	struct wait w;
	wait_begin(&w, e->config.policy);
	for (;;) {
		if (!engine_lock_in_time(e))
			return false;
		bool moved = engine_pass(e, false), may_leave = !e->works.newest,
		     is_over =
			     may_leave && engine_is_drained(e) && !engine_must_linger(e, &until_ns);
		engine_unlock(e);
		if (may_leave && !has_left && e->config.control)
			control_leave(e->config.control);
		has_left |= may_leave;
		if (is_over)
			return true;
		if (moved)
			wait_begin(&w, e->config.policy);
		else if (!wait_again(&w))
			engine_sleep(e);
	}
}

/* Ranks that waited for no other one in their last calls may have made different ones. */
static void engine_compare_calls(struct engine *e)
{
	if (!e->config.control || engine_status(e) != TUTTI_OK)
		return;
	engine_lock(e);
	control_check(e->config.control, &(struct control_wait){NO_CALL, false});
	engine_unlock(e);
	if (engine_status(e) == TUTTI_ERR_MISMATCH)
		log_notice("tutti_comm_destroy on rank %d: %s", e->config.rank, engine_error(e));
}

/* A thread that has the lock looks by itself, or is about to unlock. */
void engine_look(struct engine *e)
{
	char message[ERROR_BYTES];

	if (e->failure.stop || !e->config.control || !control_has_news(e->config.control) ||
	    !engine_trylock(e))
		return;
	snprintf(message, sizeof message, "%s", last_error());
	control_look(e->config.control);
	fail(TUTTI_ERR_INTERNAL, "%s", message); /* kept */
	engine_unlock(e);
}

/* Under the lock: a thread that waited for the last work may still look at the engine. */
static void engine_take_apart(struct engine *e)
{
	captured_free_all(e);
	engine_disconnect(e);
	window_destroy(e->config.window);
	e->config.window = NULL;
	run_free_all(e);
	for (int i = 0; i < TUTTI_MEMORY_KINDS; i++)
		if (e->links.queues[i]) {
			e->links.queues[i]->kind->close(e->links.queues[i]);
			e->links.queues[i] = NULL;
		}
	if (e->user)
		e->user->free(e);
	engine_free_tables(e);
	e->config.trace = NULL;
	e->failure.is_clean = true;
}

/* Threads that waited for a work may still read the window's memory; they sleep at most 1 ms. */
static bool engine_await_waiters(struct engine *e)
{
	uint64_t until_ns = engine_give_up_ns(e);

	while (atomic_load(&e->help.waiters) > 0) {
		if (clock_now_ns() > until_ns)
			return engine_leave_allocated(
				e, "a thread that waits for a call has not returned");
		sched_yield();
	}
	return true;
}

static bool engine_leave_to_helper(struct engine *e)
{
	const char *callback = helper_callback();
	char why[128];

	if (callback)
		snprintf(why, sizeof why, "%s does not return", callback);
	else
		snprintf(why, sizeof why, "its helper thread has been busy with it for %d ms",
			 engine_give_up_ms(e));
	return engine_leave_allocated(e, why);
}

bool engine_destroy(struct engine *e)
{
	if (!e)
		return true;
	if (!engine_drain(e))
		return false;
	engine_compare_calls(e);
	if (e->user)
		e->user->leave(e);
	if (!helper_detach(e))
		return engine_leave_to_helper(e);
	control_destroy(e->config.control);
	e->config.control = NULL;
	if (!engine_await_waiters(e))
		return false;
	engine_lock(e);
	engine_take_apart(e);
	engine_release_lock(e);
	engine_unref_owner(e);
	return true;
}

tutti_status engine_wait_control(struct engine *e, uint64_t deadline_ns, bool (*is_over)(void *arg),
				 void *arg)
{
	if (!e->config.control)
		return TUTTI_OK;
	return control_wait(e->config.control, deadline_ns, is_over, arg);
}

bool engine_is_broken(struct engine *e)
{
	if (engine_status(e) == TUTTI_OK) {
		engine_lock(e);
		engine_ask_around(e);
		engine_unlock(e);
	}
	return engine_status(e) != TUTTI_OK;
}

/* The helper cleans up if it can: closing an endpoint that has undelivered bytes takes up to half a
 * second. */
void engine_abort(struct engine *e, const char *message)
{
	engine_set_failure(e, TUTTI_ERR_ABORTED, FAILURE_NO_RANK, message);
	if (!helper_clean(e))
		engine_try_clean(e);
}

void engine_stats(const struct engine *engine, tutti_stats *stats)
{
	struct engine *e = (struct engine *)(uintptr_t)engine;
	stats->messages = atomic_load_explicit(&e->traffic.messages, memory_order_relaxed);
	stats->sent_bytes = atomic_load_explicit(&e->traffic.sent_bytes, memory_order_relaxed);
	stats->received_bytes =
		atomic_load_explicit(&e->traffic.received_bytes, memory_order_relaxed);
	if (e->config.window)
		window_stats(e->config.window, &stats->window_bytes, &stats->staged_bytes);
}

void engine_forget_stats(struct engine *e)
{
	engine_lock(e);
	atomic_store_explicit(&e->traffic.messages, 0, memory_order_relaxed);
	atomic_store_explicit(&e->traffic.sent_bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&e->traffic.received_bytes, 0, memory_order_relaxed);
	engine_unlock(e);
}
