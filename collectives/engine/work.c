/* Works: the handles of calls in flight, and how they end. The work of a group ends when its last
 * part ends. How threads and streams wait is in waiting.c. */
#include "collectives/engine/engine_internal.h"
#include "collectives/engine/helper.h"
#include "core/callback.h"
#include "core/memory/ops.h"
#include "core/poison.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void work_free_engine(struct engine *e)
{
	pthread_mutex_destroy(&e->lock);
	pthread_mutex_destroy(&e->failure.lock);
	pthread_mutex_destroy(&e->lists.lock);
	free(e->failure.trace_dir);
	free(e);
}

/* Works that callers have released. CLOSED: the engine has ended, and nobody collects them. */
#define CLOSED ((struct tutti_work *)1)
/* The owner's share of refs: more than there ever are works. */
#define OWNER (1 << 30)

static void work_free_list(struct tutti_work *work)
{
	while (work) {
		struct tutti_work *next = work->next;
		free(work->tables);
		free(work);
		work = next;
	}
}

static struct tutti_work *work_take_free(struct engine *e)
{
	/* Partner: work_recycle. */
	if (!e->works.free)
		e->works.free =
			atomic_exchange_explicit(&e->lists.released, NULL, memory_order_acquire);
	struct tutti_work *work = e->works.free;
	if (work)
		e->works.free = work->next;
	return work;
}

struct tutti_work *work_new(struct engine *e)
{
	struct tutti_work *work = work_take_free(e);
	if (!work) {
		if (!(work = calloc(1, sizeof *work)))
			return NULL;
		e->works.made++;
	}
	memset(work, 0, offsetof(struct tutti_work, tables));
	memset(&work->as.task, 0, offsetof(struct work_task, io));
	work->gate.word = NULL;
	work->engine = e;
	/* One for the engine until the work ends, one for the caller. */
	atomic_store_explicit(&work->refs, 2, memory_order_relaxed);
	return work;
}

void engine_ref_owner(struct engine *e)
{
	atomic_store(&e->refs, OWNER);
}

static void engine_unref(struct engine *e)
{
	if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) == 1)
		work_free_engine(e);
}

static int work_list_length(const struct tutti_work *work)
{
	int length = 0;
	for (; work; work = work->next)
		length++;
	return length;
}

/* Works that callers still hold keep the engine. */
void engine_unref_owner(struct engine *e)
{
	struct tutti_work *released = atomic_exchange(&e->lists.released, CLOSED);
	int outside = e->works.made - work_list_length(e->works.free) - work_list_length(released);

	work_free_list(e->works.free);
	work_free_list(released);
	e->works.free = NULL;
	if (atomic_fetch_sub(&e->refs, OWNER - outside) == OWNER - outside)
		work_free_engine(e);
}

static void work_free_whole(struct tutti_work *whole)
{
	for (size_t i = 0; i < whole->parts->count; i++)
		work_release(whole->parts->part[i]);
	engine_unref(whole->engine);
	free(whole); /* its parts' tables are in the same block */
}

/* A work is used again as long as its engine lives. */
static void work_recycle(struct engine *e, struct tutti_work *work)
{
	struct tutti_work *first = atomic_load_explicit(&e->lists.released, memory_order_relaxed);

	poison(work, offsetof(struct tutti_work, tables));
	poison(&work->as, sizeof work->as);
	do {
		if (first == CLOSED) {
			work->next = NULL;
			work_free_list(work);
			engine_unref(e);
			return;
		}
		work->next = first;
	} while (!atomic_compare_exchange_weak_explicit(
		&e->lists.released, &first, work, memory_order_acq_rel, memory_order_relaxed));
}

static void work_unref(struct tutti_work *work)
{
	/* The only holder needs no read-modify-write. */
	if (atomic_load_explicit(&work->refs, memory_order_acquire) != 1 &&
	    atomic_fetch_sub_explicit(&work->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (work->parts)
		work_free_whole(work);
	else
		work_recycle(work->engine, work);
}

void work_release(struct tutti_work *work)
{
	if (work)
		work_unref(work);
}

void work_retain(struct tutti_work *work)
{
	atomic_fetch_add_explicit(&work->refs, 1, memory_order_relaxed);
}

/* Only the lock's holder writes the counts, so that no read-modify-write is needed. */
static void work_count_add(atomic_int *count, int more)
{
	int before = atomic_load_explicit(count, memory_order_relaxed);
	atomic_store_explicit(count, before + more, memory_order_relaxed);
}

static void works_count(struct engine *e, const struct tutti_work *work, int more)
{
	work_count_add(&e->works.count, more);
	if (work_is_collective(work))
		work_count_add(&e->works.numbered, more);
	e->works.by_message += work->spec.kind != &window_tasks ? more : 0;
}

void work_begin_life(struct engine *e, struct tutti_work *work, bool is_async)
{
	work->is_async = is_async;
	if (!work->submitted_ns)
		work->submitted_ns = engine_coarse_now(e);
	work->deadline_ns = work->submitted_ns + MS_TO_NS(work->spec.timeout_ms) +
			    (e->config.now_ns ? 0 : COARSE_NS);
	work->next = e->works.newest;
	if (e->works.newest)
		e->works.newest->prev = work;
	e->works.newest = work;
	works_count(e, work, 1);
	if (work->spec.captured)
		work->engine->captured.tasks->began(work);
	if (work->is_async)
		atomic_fetch_add(&e->help.async_works, 1);
}

static void work_unlink_work(struct engine *e, struct tutti_work *work)
{
	if (work->prev)
		work->prev->next = work->next;
	else
		e->works.newest = work->next;
	if (work->next)
		work->next->prev = work->prev;
	works_count(e, work, -1);
	atomic_store_explicit(&e->help.ended, e->help.ended + 1, memory_order_relaxed);
}

const char *work_error(const struct tutti_work *work, char *text)
{
	if (work->parts)
		return work->parts->why;
	if (work->own_status == TUTTI_OK)
		return engine_error(work->engine);
	work->spec.kind->why(work, text, ERROR_BYTES);
	return text;
}

static void work_show_failure(const struct tutti_work *work)
{
	if (!work->parts)
		engine_show_failure(work->engine);
	for (size_t i = 0; work->parts && i < work->parts->engine_count; i++)
		engine_show_failure(work->parts->engine[i]);
}

tutti_status work_result(const struct tutti_work *work)
{
	char text[ERROR_BYTES];
	if (__builtin_expect(work->status == TUTTI_OK, 1))
		return TUTTI_OK;
	work_show_failure(work);
	return fail(work->status, "%s", work_error(work, text));
}

/* The helper thread calls done functions, without any lock. */
static void work_hand_to_helper(struct engine *e, struct tutti_work *work)
{
	pthread_mutex_lock(&e->lists.lock);
	work->next = NULL;
	*e->lists.called_tail = work;
	e->lists.called_tail = &work->next;
	atomic_store(&e->lists.has_called, true);
	pthread_mutex_unlock(&e->lists.lock);
	if (!e->config.now_ns)
		helper_wake();
}

static void work_no_longer_async(struct engine *e, struct tutti_work *work)
{
	if (work->is_async)
		atomic_fetch_sub(&e->help.async_works, 1);
	work_unref(work);
}

bool engine_call_back(struct engine *e)
{
	pthread_mutex_lock(&e->lists.lock);
	struct tutti_work *work = e->lists.called;
	if (work && !(e->lists.called = work->next))
		e->lists.called_tail = &e->lists.called;
	atomic_store(&e->lists.has_called, e->lists.called != NULL);
	pthread_mutex_unlock(&e->lists.lock);
	if (!work)
		return false;
	work_result(work);
	callback_done("the done function", "a tutti_call", e->config.rank, work->spec.done,
		      work->spec.done_arg, work->status);
	work_no_longer_async(e, work);
	return true;
}

/* Publishes its status. */
static void work_end(struct engine *e, struct tutti_work *work)
{
	bool calls = work->spec.done != NULL;
	/* Partner: work_test and work_wait. */
	atomic_store_explicit(&work->is_done, 1, memory_order_release);
	if (calls)
		work_hand_to_helper(e, work); /* the helper releases the work after the callback */
	else
		work_no_longer_async(e, work);
}

void work_note_error(struct tutti_work *whole, tutti_status status, const char *why)
{
	struct work_parts *parts = whole->parts;
	int none = TUTTI_OK;
	/* Partner: the last part subtracts from left after this, and then sets is_done. */
	if (atomic_compare_exchange_strong(&parts->status, &none, (int)status))
		snprintf(parts->why, sizeof parts->why, "%s", why);
}

void work_count_down(struct tutti_work *whole)
{
	if (atomic_fetch_sub_explicit(&whole->parts->left, 1, memory_order_acq_rel) != 1)
		return;
	whole->status = (tutti_status)atomic_load(&whole->parts->status);
	work_end(whole->engine, whole);
}

void work_part_ended(struct tutti_work *whole, const struct tutti_work *part)
{
	char text[ERROR_BYTES];
	if (part->status != TUTTI_OK)
		work_note_error(whole, part->status, work_error(part, text));
	work_count_down(whole);
}

void work_finish(struct engine *e, struct tutti_work *work, tutti_status status)
{
	struct tutti_work *whole = work->whole;

	op_release(work->spec.args.op);
	if (status != TUTTI_OK || !trace_ended_at_once(&work->spec.trace, &work->spec.args))
		trace_ended_late(&work->spec.trace, status != TUTTI_OK);
	work_unlink_work(e, work);
	if (work->spec.kind->finish)
		work->spec.kind->finish(e, work);
	bounce_free(e, work);
	if (work->gate.word)
		cuda_gate_open(&work->gate);
	free(work->send_copy);
	work->send_copy = NULL;
	work->status = status;
	if (work->spec.captured)
		e->captured.tasks->ended(e, work);
	work_end(e, work);
	if (whole) /* it holds work */
		work_part_ended(whole, work);
}

void *work_memory(const struct tutti_work *work)
{
	return work_has_begun(work) ? work_window_run(work)->memory : NULL;
}
