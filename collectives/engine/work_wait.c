/* How threads wait for a work: a thread that waits makes progress. */
#include "collectives/engine/job.h"

#include "core/clock.h"
#include "core/status.h"

static void show_failure(const struct tutti_work *work)
{
	if (!work->parts)
		engine_show_failure(work->engine);
	for (size_t i = 0; work->parts && i < work->parts->engine_count; i++)
		engine_show_failure(work->parts->engine[i]);
}

/* The waiting thread gets the error message as its last error. */
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

/* If another thread holds the lock, that thread makes the progress. */
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

/* Wakes up at an event of one engine with unfinished parts, and for the others after 1 ms. */
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

/* Looking for messages costs a system call, about as much as ten looks at the lines of a window. */
static struct wait_policy policy_of(const struct engine *e)
{
	struct wait_policy policy = e->config.policy;
	if (!e->config.window)
		policy.spins /= 10;
	return policy;
}

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
	work_release(work);
	return status;
}
