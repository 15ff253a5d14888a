/* Works: what a caller holds of a call under way, and how threads wait for one. */
#include "collectives/engine/run.h"

#include "core/clock.h"
#include "core/status.h"
#include "memory/ops.h"
#include "memory/ops.h"

#include <stdlib.h>
#include <string.h>

struct tutti_work *work_new(struct engine *e)
{
	pthread_mutex_lock(&e->list_lock);
	struct tutti_work *work = e->free_works;
	if (work)
		e->free_works = work->next;
	pthread_mutex_unlock(&e->list_lock);
	if (!work && !(work = calloc(1, sizeof *work)))
		return NULL;
	size_t *tables = work->tables, room = work->table_room;
	memset(work, 0, sizeof *work);
	work->tables = tables;
	work->table_room = room;
	work->engine = e;
	work->refs = 2; /* the engine's until it ends, the caller's */
	atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
	return work;
}

/* The last holder gives it back; a list keeps them until the engine goes. */
static void unref(struct tutti_work *work)
{
	struct engine *e = work->engine;
	if (atomic_fetch_sub_explicit(&work->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (work->parts) {
		work_free_whole(work);
		return;
	}
	pthread_mutex_lock(&e->list_lock);
	work->next = e->free_works;
	e->free_works = work;
	pthread_mutex_unlock(&e->list_lock);
	engine_unref(e);
}

void work_release(struct tutti_work *work)
{
	if (work)
		unref(work);
}

void work_retain(struct tutti_work *work)
{
	atomic_fetch_add_explicit(&work->refs, 1, memory_order_relaxed);
}

static void unlink_work(struct engine *e, struct tutti_work *work)
{
	if (work->prev)
		work->prev->next = work->next;
	else
		e->works = work->next;
	if (work->next)
		work->next->prev = work->prev;
	e->work_count--;
}

/* Callbacks run on the helper, without any lock. */
static void hand_to_helper(struct engine *e, struct tutti_work *work)
{
	pthread_mutex_lock(&e->list_lock);
	work->next = NULL;
	*e->called_tail = work;
	e->called_tail = &work->next;
	pthread_mutex_unlock(&e->list_lock);
	if (!e->config.now_ns)
		helper_wake();
}

static void no_longer_async(struct engine *e, struct tutti_work *work)
{
	if (work->is_async)
		atomic_fetch_sub(&e->async_works, 1);
	unref(work);
}

static _Thread_local bool is_calling_back;

bool engine_in_callback(void)
{
	return is_calling_back;
}

bool helper_call_back(struct engine *e)
{
	pthread_mutex_lock(&e->list_lock);
	struct tutti_work *work = e->called;
	if (work && !(e->called = work->next))
		e->called_tail = &e->called;
	pthread_mutex_unlock(&e->list_lock);
	if (!work)
		return false;
	engine_show_failure(e);
	is_calling_back = true;
	work->spec.done(work->spec.done_arg, work->status);
	is_calling_back = false;
	no_longer_async(e, work);
	return true;
}

void work_end(struct engine *e, struct tutti_work *work)
{
	bool calls = work->spec.done != NULL;
	/* Partner: work_test and work_wait. */
	atomic_store_explicit(&work->is_done, 1, memory_order_release);
	if (calls)
		hand_to_helper(e, work); /* still the helper's business until it was called */
	else
		no_longer_async(e, work);
}

void work_finish(struct engine *e, struct tutti_work *work, tutti_status status)
{
	struct tutti_work *whole = work->whole;

	op_release(work->spec.args.op);
	trace_ended_late(&work->spec.trace, status != TUTTI_OK);
	unlink_work(e, work);
	if (work->run)
		run_recycle(e, work->run);
	work->run = NULL;
	if (work->message)
		p2p_finish(e, work);
	free(work->bounce.send);
	work->bounce.send = NULL;
	work->status = status;
	work_end(e, work);
	if (whole)
		work_part_ended(e, whole, status);
}

static void show_failure(const struct tutti_work *work)
{
	if (!work->parts)
		engine_show_failure(work->engine);
	for (size_t i = 0; work->parts && i < work->parts->engine_count; i++)
		engine_show_failure(work->parts->engine[i]);
}

/* A thread that learns of a failure by waiting has the sentence too. */
static tutti_status verdict(const struct tutti_work *work)
{
	if (__builtin_expect(work->status != TUTTI_OK, 0)) {
		show_failure(work);
		return fail(work->status, "%s",
			    work->parts ? work->parts->why : engine_error(work->engine));
	}
	return TUTTI_OK;
}

static bool is_done(struct tutti_work *work)
{
	return atomic_load_explicit(&work->is_done, memory_order_acquire);
}

/* Where another thread is at it already, nothing is left to do here. */
static bool pass(struct engine *e)
{
	bool moved = false;
	if (pthread_mutex_trylock(&e->lock) == 0) {
		moved = engine_pass(e);
		engine_unlock(e);
	}
	return moved;
}

static bool make_progress(struct tutti_work *work)
{
	bool moved = false;
	if (!work->parts)
		return pass(work->engine);
	for (size_t i = 0; i < work->parts->engine_count && !is_done(work); i++)
		moved |= pass(work->parts->engine[i]);
	return moved;
}

/* On news of one engine that still has to do with it; for those of another at most 1 ms. */
static void sleep_for(struct tutti_work *work)
{
	struct engine *e = work->engine;
	for (size_t i = 0; work->parts && i < work->parts->count; i++)
		if (!is_done(work->parts->part[i])) {
			e = work->parts->part[i]->engine;
			break;
		}
	engine_sleep(e);
}

tutti_status work_test(struct tutti_work *work, bool *done)
{
	if (!(*done = is_done(work))) {
		make_progress(work);
		*done = is_done(work);
	}
	return *done ? verdict(work) : TUTTI_OK;
}

/* A look for messages is a system call or more, and lasts as long as ten at the window's lines. */
static struct wait_policy policy_of(const struct engine *e)
{
	struct wait_policy policy = e->config.policy;
	if (!e->config.window)
		policy.spins /= 10;
	return policy;
}

/* Whoever waits makes progress; where another thread is at it already, looks on. */
tutti_status work_wait(struct tutti_work **held, int timeout_ms)
{
	struct tutti_work *work = *held;
	uint64_t deadline = timeout_ms > 0 ? deadline_after_ms(timeout_ms) : DEADLINE_NONE;
	struct wait w;

	wait_begin(&w, policy_of(work->engine));
	while (!is_done(work)) {
		if (make_progress(work)) {
			w.looks = 0;
			continue;
		}
		if (deadline != DEADLINE_NONE && clock_now_ns() >= deadline)
			return is_done(work) ? work_wait(held, 0) : TUTTI_IN_PROGRESS;
		if (!wait_again(&w))
			sleep_for(work);
	}
	tutti_status status = verdict(work);
	*held = NULL;
	unref(work);
	return status;
}

void *work_memory(const struct tutti_work *work)
{
	return window_run_memory(&work->window);
}
