/* Progress: one pass over everything that is in flight. A thread that waits for a work makes it. */
#include "collectives/engine/engine_internal.h"

#include "collectives/engine/run.h"
#include "core/clock.h"
#include "core/status.h"

#include <poll.h>

static void finish_ended(struct engine *e)
{
	while (e->works.ended) {
		struct tutti_work *work = e->works.ended;
		e->works.ended = work->next_ended;
		work_finish(e, work, TUTTI_OK);
	}
}

/* Completions first, then one lane at a time. No endpoint is asked. */
bool engine_settle(struct engine *e)
{
	bool moved = false;
	struct tutti_io *done;

	while (!e->failure.stop) {
		if ((done = tutti_done_pop(&e->links.done))) {
			struct engine_io *io = (struct engine_io *)done;
			(done->status == TUTTI_OK ? io->owner->done : io->owner->failed)(e, io);
		} else if (!run_issue(e)) {
			break;
		}
		moved = true;
	}
	finish_ended(e);
	return moved;
}

bool engine_pass(struct engine *e)
{
	bool moved = false;

	for (int i = 0; i < e->config.endpoint_count && (e->works.newest || e->loose); i++) {
		struct tutti_endpoint *ep = e->config.endpoints[i];
		moved |= ep->transport->progress(ep, &e->links.done) > 0;
	}
	for (int i = 1; i < TUTTI_MEMORY_KINDS; i++)
		if (e->links.queues[i])
			moved |= e->links.queues[i]->kind->progress(e->links.queues[i],
								    &e->links.done) > 0;
	moved |= engine_settle(e);
	while (!e->failure.stop && window_task_advance(e)) {
		moved = true;
		engine_settle(e);
	}
	if (e->works.newest && (e->config.now_ns || ++e->watch.passes % (moved ? 256 : 32) == 0))
		engine_watch(e);
	if (e->failure.stop)
		engine_clean_up(e);
	return moved;
}

bool engine_progress(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	bool moved = engine_pass(e);
	engine_unlock(e);
	if (e->config.now_ns)
		while (engine_call_back(e))
			moved = true;
	return moved;
}

void engine_sleep(struct engine *e)
{
	struct pollfd fds[8];
	int n = 0;
	if (pthread_mutex_trylock(&e->lock) == 0) { /* else another thread makes progress */
		n = e->failure.stop ? -1 : engine_arm(e, fds, 8);
		engine_unlock(e);
	}
	if (n >= 0)
		poll(fds, (nfds_t)n, 1);
	if (pthread_mutex_trylock(&e->lock) == 0) {
		engine_disarm(e);
		e->watch.passes |= 31; /* after a sleep the next pass may read the clock */
		engine_unlock(e);
	}
}

static void show_failure(const struct tutti_work *work)
{
	if (!work->parts)
		engine_show_failure(work->engine);
	for (size_t i = 0; work->parts && i < work->parts->engine_count; i++)
		engine_show_failure(work->parts->engine[i]);
}

/* The waiting thread gets the error message as its last error. */
static tutti_status result_of(const struct tutti_work *work)
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

/* If another thread holds a lock, that thread makes the progress. */
static bool make_progress(struct tutti_work *work)
{
	struct engine **engine = work->parts ? work->parts->engine : &work->engine;
	size_t count = work->parts ? work->parts->engine_count : 1;
	bool moved = false;

	for (size_t i = 0; i < count && !is_done(work); i++)
		if (pthread_mutex_trylock(&engine[i]->lock) == 0) {
			moved |= engine_pass(engine[i]);
			engine_unlock(engine[i]);
		}
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
	return *done ? result_of(work) : TUTTI_OK;
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
	tutti_status status = result_of(work);
	*held = NULL;
	work_release(work);
	return status;
}
