/* See batcher.h. A request stays where it has arrived and is answered by the thread, so the threads
 * of the rpc do not wait: infer returns IN_PROGRESS at once. */
#include "batcher.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct waiting {
	const tutti_rpc_request *request;
	tutti_rpc_reply *reply;
	int64_t since_ns;
};

struct batcher {
	const struct job *job;
	const struct mlp *mlp;
	pthread_t thread;
	pthread_mutex_t lock; /* of all below but scratch */
	pthread_cond_t work;
	struct waiting *queue; /* a ring of job->queue places */
	int first, count;
	int batch, delay_us;
	int is_stopping;
	struct batcher_counts counts;
	float *scratch; /* the thread's */
};

/* ---- requests come ------------------------------------------------------------------------ */
static tutti_status batcher_put(struct batcher *b, const tutti_rpc_request *request,
				tutti_rpc_reply *reply)
{
	char why[80];
	int64_t now = now_ns();

	if (b->is_stopping)
		return tutti_set_error(TUTTI_ERR_ABORTED, "the server ends");
	if (b->count == b->job->queue) {
		snprintf(why, sizeof why, "the queue is full: %d requests wait", b->count);
		return tutti_set_error(TUTTI_ERR_MEMORY, why);
	}
	b->queue[(b->first + b->count++) % b->job->queue] = (struct waiting){request, reply, now};
	if (b->counts.begun_ns == 0)
		b->counts.begun_ns = now;
	/* The thread waits for the first one, or for a batch. */
	if (b->count == 1 || b->count == b->batch)
		pthread_cond_signal(&b->work);
	return TUTTI_IN_PROGRESS;
}

tutti_status batcher_infer(void *batcher, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct batcher *b = batcher;
	char why[80];

	if (request->bytes != sizeof(float[INPUTS])) {
		snprintf(why, sizeof why, "a request of %zu bytes instead of %zu", request->bytes,
			 sizeof(float[INPUTS]));
		return tutti_set_error(TUTTI_ERR_INVALID, why);
	}
	pthread_mutex_lock(&b->lock);
	tutti_status status = batcher_put(b, request, reply);
	pthread_mutex_unlock(&b->lock);
	return status;
}

/* ---- batches go --------------------------------------------------------------------------- */
/* Until a batch is there, the oldest request has waited for long enough, or the server ends. */
static void wait_for_batch(struct batcher *b)
{
	while (b->count == 0 && !b->is_stopping)
		pthread_cond_wait(&b->work, &b->lock);
	while (b->count < b->batch && !b->is_stopping) {
		int64_t due = b->queue[b->first].since_ns + (int64_t)b->delay_us * 1000;
		struct timespec until = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000};
		if (now_ns() >= due)
			return;
		pthread_cond_clockwait(&b->work, &b->lock, CLOCK_MONOTONIC, &until);
	}
}

static int batcher_take(struct batcher *b, struct waiting *batch)
{
	int count = b->count < b->batch ? b->count : b->batch;

	for (int i = 0; i < count; i++)
		batch[i] = b->queue[(b->first + i) % b->job->queue];
	b->first = (b->first + count) % b->job->queue;
	b->count -= count;
	return count;
}

/* Drops the requests whose callers do not wait any more. The others get room for their answers. */
static int batcher_prepare(struct waiting *batch, int count, const float **inputs, float **outputs)
{
	int kept = 0;

	for (int i = 0; i < count; i++) {
		float *room = NULL;
		tutti_status status = TUTTI_ERR_ABORTED;
		if (!tutti_rpc_reply_is_cancelled(batch[i].reply)) {
			room = tutti_rpc_reply_room(batch[i].reply, sizeof(float[OUTPUTS]));
			status = TUTTI_ERR_MEMORY;
		}
		if (!room) {
			tutti_rpc_reply_end(batch[i].reply, status);
			continue;
		}
		inputs[kept] = batch[i].request->data;
		outputs[kept] = room;
		batch[kept++] = batch[i];
	}
	return kept;
}

static void batcher_compute(struct batcher *b, struct waiting *batch, int count)
{
	const float *inputs[MOST_BATCH];
	float *outputs[MOST_BATCH];

	count = batcher_prepare(batch, count, inputs, outputs);
	mlp_infer(b->mlp, inputs, outputs, count, b->scratch);
	/* Counted first: the last answer ends the round, which takes the counts. */
	pthread_mutex_lock(&b->lock);
	b->counts.requests += count;
	b->counts.batches++;
	b->counts.ended_ns = now_ns();
	pthread_mutex_unlock(&b->lock);
	for (int i = 0; i < count; i++)
		tutti_rpc_reply_end(batch[i].reply, TUTTI_OK);
}

static void *batcher_run(void *batcher)
{
	struct batcher *b = batcher;
	struct waiting batch[MOST_BATCH];
	int count;

	do {
		pthread_mutex_lock(&b->lock);
		wait_for_batch(b);
		count = batcher_take(b, batch);
		pthread_mutex_unlock(&b->lock);
		if (count > 0)
			batcher_compute(b, batch, count);
	} while (count > 0); /* with none the server ends */
	return NULL;
}

/* ---- modes, beginning and end ------------------------------------------------------------- */
void batcher_set_mode(struct batcher *b, int batch, int delay_us)
{
	pthread_mutex_lock(&b->lock);
	b->batch = batch;
	b->delay_us = delay_us;
	pthread_mutex_unlock(&b->lock);
}

struct batcher_counts batcher_take_counts(struct batcher *b)
{
	pthread_mutex_lock(&b->lock);
	struct batcher_counts counts = b->counts;
	b->counts = (struct batcher_counts){0};
	pthread_mutex_unlock(&b->lock);
	return counts;
}

tutti_status batcher_create(struct batcher **batcher, const struct job *job, const struct mlp *mlp)
{
	struct batcher *b = calloc(1, sizeof *b);

	if (!b)
		return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for a batcher");
	b->job = job;
	b->mlp = mlp;
	b->batch = 1;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->work, NULL);
	b->queue = calloc((size_t)job->queue, sizeof *b->queue);
	b->scratch = calloc((size_t)2 * MOST_BATCH * HIDDEN, sizeof *b->scratch);
	if (!b->queue || !b->scratch) {
		batcher_destroy(b);
		return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for a queue");
	}
	if (pthread_create(&b->thread, NULL, batcher_run, b) != 0) {
		batcher_destroy(b);
		return tutti_set_error(TUTTI_ERR_SYSTEM, "the batcher's thread did not start");
	}
	*batcher = b;
	return TUTTI_OK;
}

void batcher_stop(struct batcher *b)
{
	pthread_mutex_lock(&b->lock);
	b->is_stopping = 1;
	pthread_cond_signal(&b->work);
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL);
}

void batcher_destroy(struct batcher *batcher)
{
	if (!batcher)
		return;
	pthread_cond_destroy(&batcher->work);
	pthread_mutex_destroy(&batcher->lock);
	free(batcher->queue);
	free(batcher->scratch);
	free(batcher);
}
