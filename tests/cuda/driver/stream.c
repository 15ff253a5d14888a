/* Tasks, the threads of streams, and the order that the legacy default stream makes. */
#include "tests/cuda/driver/stream.h"

#include "tests/cuda/driver/capture.h"
#include "tests/cuda/driver/region.h"

#include <stdlib.h>

struct task *task_hold(struct task *task)
{
	task->holders++;
	return task;
}

void task_drop(struct task *task)
{
	if (task == NULL || --task->holders > 0)
		return;
	op_finish(&task->op);
	pthread_cond_destroy(&task->done);
	free(task->after);
	free(task);
}

void task_wait(struct task *task)
{
	while (!task->is_done)
		pthread_cond_wait(&task->done, &driver_lock);
}

void task_after(struct task *task, struct task *other)
{
	if (other == NULL || other->is_done)
		return;
	struct task **more = must_alloc((task->n_after + 1) * sizeof *more);
	for (size_t i = 0; i < task->n_after; i++)
		more[i] = task->after[i];
	more[task->n_after++] = task_hold(other);
	free(task->after);
	task->after = more;
}

static void end_task(CUstream s)
{
	struct task *task = s->head;

	task->is_done = true;
	clock_gettime(CLOCK_MONOTONIC, &task->ended);
	for (size_t i = 0; i < task->n_after; i++)
		task_drop(task->after[i]);
	task->n_after = 0;
	s->head = task->next;
	if (s->head == NULL)
		s->tail = NULL;
	pthread_cond_broadcast(&task->done);
	task_drop(task);
}

static void run_task(CUstream s)
{
	struct task *task = s->head;
	CUresult error = CUDA_SUCCESS;

	for (size_t i = 0; i < task->n_after; i++)
		task_wait(task->after[i]);
	if (s->context->error == CUDA_SUCCESS && task->op.kind != OP_NOTHING) {
		region_work_begins();
		pthread_mutex_unlock(&driver_lock);
		driver_delay();
		error = op_run(&task->op, s->context);
		pthread_mutex_lock(&driver_lock);
		region_work_ends();
	}
	if (error != CUDA_SUCCESS)
		context_fail(s->context, error);
	end_task(s);
}

static void unlink_stream(CUstream s)
{
	CUstream *at = &s->context->streams;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
}

static void free_stream(CUstream s)
{
	pthread_cond_destroy(&s->added);
	free(s->last);
	free(s);
}

static void *stream_thread(void *argument)
{
	CUstream s = argument;

	pthread_mutex_lock(&driver_lock);
	while (s->head || !s->is_destroyed) {
		if (s->head)
			run_task(s);
		else
			pthread_cond_wait(&s->added, &driver_lock);
	}
	unlink_stream(s);
	pthread_mutex_unlock(&driver_lock);
	free_stream(s);
	return NULL;
}

static CUstream make_stream(CUcontext context, unsigned flags)
{
	CUstream s = must_alloc(sizeof *s);

	s->context = context;
	s->flags = flags;
	pthread_cond_init(&s->added, NULL);
	s->next = context->streams;
	context->streams = s;
	return s;
}

CUstream stream_create(CUcontext context, unsigned flags)
{
	CUstream s = make_stream(context, flags);

	s->connection = context->n_streams++;
	return s;
}

CUstream stream_create_branch(CUcontext context, unsigned branch)
{
	CUstream s = make_stream(context, CU_STREAM_NON_BLOCKING);

	s->branch = branch;
	return s;
}

void stream_join_connection(CUstream branch, const struct CUstream_st *launch)
{
	branch->connection = launch->connection + branch->branch;
}

void stream_destroy(CUstream s)
{
	s->is_destroyed = true;
	if (s->has_thread) {
		pthread_cond_signal(&s->added);
		return;
	}
	unlink_stream(s);
	free_stream(s);
}

static void start_thread(CUstream s)
{
	pthread_attr_t detached;
	pthread_t thread;

	if (s->has_thread)
		return;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	if (driver_thread(&thread, &detached, stream_thread, s) != 0)
		abort();
	pthread_attr_destroy(&detached);
	s->has_thread = true;
}

/* The legacy default stream and streams that are not non-blocking wait for each other. */
static void order(CUstream s, struct task *task)
{
	if (s->flags & CU_STREAM_NON_BLOCKING)
		return;
	if (s != s->context->legacy) {
		task_after(task, s->context->legacy->tail);
		return;
	}
	for (CUstream other = s->context->streams; other; other = other->next)
		if (other != s && !(other->flags & CU_STREAM_NON_BLOCKING))
			task_after(task, other->tail);
}

/* Streams that share a connection to the device run what was enqueued first first: a device has a
 * few (CUDA_DEVICE_MAX_CONNECTIONS), and the program does not know which streams share one. */
static void share_connection(CUstream s, struct task *task)
{
	struct task **last;

	if (settings.connections == 0)
		return;
	last = &s->context->connections[s->connection % settings.connections];
	task_after(task, *last);
	task_drop(*last);
	*last = task_hold(task);
}

struct task *stream_add(CUstream s, const struct op *op, struct task *after)
{
	struct task *task = must_alloc(sizeof *task);

	task->op = *op;
	task->holders = 1;
	pthread_cond_init(&task->done, NULL);
	task_after(task, after);
	order(s, task);
	share_connection(s, task);
	if (s->tail)
		s->tail->next = task;
	else
		s->head = task;
	s->tail = task;
	start_thread(s);
	pthread_cond_signal(&s->added);
	return task;
}
