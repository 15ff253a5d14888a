/* Works: the handles of calls in flight, and how they end. The work of a group ends when its last
 * part ends. How threads wait is in progress.c. */
#include "collectives/engine/engine_internal.h"

#include "core/poison.h"
#include "memory/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tutti_work *work_new(struct engine *e)
{
	pthread_mutex_lock(&e->lists.lock);
	struct tutti_work *work = e->lists.free;
	if (work)
		e->lists.free = work->next;
	pthread_mutex_unlock(&e->lists.lock);
	if (!work && !(work = calloc(1, sizeof *work)))
		return NULL;
	size_t *tables = work->tables, room = work->table_room;
	memset(work, 0, sizeof *work);
	work->tables = tables;
	work->table_room = room;
	work->engine = e;
	poison(&work->window, sizeof work->window); /* window_begin writes it */
	work->refs = 2; /* one for the engine until the work ends, one for the caller */
	atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
	return work;
}

void engine_unref(struct engine *e)
{
	if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
		return;
	while (e->lists.free) {
		struct tutti_work *work = e->lists.free;
		e->lists.free = work->next;
		free(work->tables);
		free(work);
	}
	pthread_mutex_destroy(&e->lock);
	pthread_mutex_destroy(&e->failure.lock);
	pthread_mutex_destroy(&e->lists.lock);
	free(e->failure.trace_dir);
	free(e);
}

static void free_whole(struct tutti_work *whole)
{
	for (size_t i = 0; i < whole->parts->count; i++)
		work_release(whole->parts->part[i]);
	engine_unref(whole->engine);
	free(whole); /* its parts' tables are in the same block */
}

/* Works stay on a list of free ones until the engine ends. */
static void recycle(struct engine *e, struct tutti_work *work)
{
	size_t *tables = work->tables, room = work->table_room;

	poison(work, sizeof *work);
	work->tables = tables;
	work->table_room = room;
	pthread_mutex_lock(&e->lists.lock);
	work->next = e->lists.free;
	e->lists.free = work;
	pthread_mutex_unlock(&e->lists.lock);
}

static void unref(struct tutti_work *work)
{
	struct engine *e = work->engine;
	if (atomic_fetch_sub_explicit(&work->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (work->parts) {
		free_whole(work);
		return;
	}
	recycle(e, work);
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
		e->works.newest = work->next;
	if (work->next)
		work->next->prev = work->prev;
	e->works.count--;
}

/* The helper thread calls done functions, without any lock. */
static void hand_to_helper(struct engine *e, struct tutti_work *work)
{
	pthread_mutex_lock(&e->lists.lock);
	work->next = NULL;
	*e->lists.called_tail = work;
	e->lists.called_tail = &work->next;
	pthread_mutex_unlock(&e->lists.lock);
	if (!e->config.now_ns)
		helper_wake();
}

static void no_longer_async(struct engine *e, struct tutti_work *work)
{
	if (work->is_async)
		atomic_fetch_sub(&e->help.async_works, 1);
	unref(work);
}

static _Thread_local bool is_calling_back;

bool engine_in_callback(void)
{
	return is_calling_back;
}

bool engine_call_back(struct engine *e)
{
	pthread_mutex_lock(&e->lists.lock);
	struct tutti_work *work = e->lists.called;
	if (work && !(e->lists.called = work->next))
		e->lists.called_tail = &e->lists.called;
	pthread_mutex_unlock(&e->lists.lock);
	if (!work)
		return false;
	engine_show_failure(e);
	is_calling_back = true;
	work->spec.done(work->spec.done_arg, work->status);
	is_calling_back = false;
	no_longer_async(e, work);
	return true;
}

/* Publishes its status. */
static void end(struct engine *e, struct tutti_work *work)
{
	bool calls = work->spec.done != NULL;
	/* Partner: work_test and work_wait. */
	atomic_store_explicit(&work->is_done, 1, memory_order_release);
	if (calls)
		hand_to_helper(e, work); /* the helper releases the work after the callback */
	else
		no_longer_async(e, work);
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
	end(whole->engine, whole);
}

void work_part_ended(struct engine *e, struct tutti_work *whole, tutti_status status)
{
	if (status != TUTTI_OK)
		work_note_error(whole, status, engine_error(e));
	work_count_down(whole);
}

void work_finish(struct engine *e, struct tutti_work *work, tutti_status status)
{
	struct tutti_work *whole = work->whole;

	op_release(work->spec.args.op);
	trace_ended_late(&work->spec.trace, status != TUTTI_OK);
	unlink_work(e, work);
	if (work->spec.kind->finish)
		work->spec.kind->finish(e, work);
	free(work->bounce.send);
	work->bounce.send = NULL;
	work->status = status;
	end(e, work);
	if (whole)
		work_part_ended(e, whole, status);
}

void *work_memory(const struct tutti_work *work)
{
	return work->window.memory;
}
