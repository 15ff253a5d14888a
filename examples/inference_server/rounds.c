/* See rounds.h. */
#include "rounds.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ONE_AT_A_TIME, BATCHED, MODES };

struct client {
	int is_dead;
	tutti_rpc_reply *reply; /* of its round_end; NULL: its round goes on */
};

/* All rounds of one mode together. */
struct measured {
	uint32_t *ns; /* how long each request took */
	size_t count, room;
	int64_t requests, batches, refused;
	double seconds;
	double *rates; /* [job->rounds]: requests a second of each round */
};

struct rounds {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a round has ended, or a client is dead */
	const struct job *job;
	struct batcher *batcher;
	int done; /* rounds, of both modes; the next one has mode done % MODES */
	int is_stopped;
	struct client *clients; /* [job_clients] */
	struct measured measured[MODES];
};

/* ---- a round ends ------------------------------------------------------------------------- */
static int all_have_ended(const struct rounds *r)
{
	int waiting = 0;

	for (int c = 0; c < job_clients(r->job); c++) {
		if (!r->clients[c].is_dead && !r->clients[c].reply)
			return 0;
		waiting += r->clients[c].reply != NULL;
	}
	return waiting > 0;
}

static void answer_all(struct rounds *r, tutti_status status)
{
	for (int c = 0; c < job_clients(r->job); c++) {
		if (r->clients[c].reply)
			tutti_rpc_reply_end(r->clients[c].reply, status);
		r->clients[c].reply = NULL;
	}
}

static void begin_next(struct rounds *r)
{
	struct measured *m = &r->measured[r->done % MODES];
	struct batcher_counts counts = batcher_take_counts(r->batcher);
	double seconds = (double)(counts.ended_ns - counts.begun_ns) * 1e-9;

	m->rates[r->done / MODES] = (double)counts.requests / seconds;
	m->requests += counts.requests;
	m->batches += counts.batches;
	m->seconds += seconds;
	r->done++;
	if (r->done % MODES == BATCHED)
		batcher_set_mode(r->batcher, r->job->batch, r->job->delay_us);
	else
		batcher_set_mode(r->batcher, 1, 0);
	answer_all(r, TUTTI_OK);
	pthread_cond_signal(&r->changed);
}

/* The first number is how many tries were refused. */
static tutti_status add_times(struct measured *m, const uint32_t *numbers, size_t count)
{
	size_t room = m->room ? m->room : 1024;

	while (room < m->count + count)
		room *= 2;
	uint32_t *ns = room == m->room ? m->ns : realloc(m->ns, room * sizeof *ns);
	if (!ns)
		return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for the times of a round");
	m->ns = ns;
	m->room = room;
	memcpy(ns + m->count, numbers + 1, (count - 1) * sizeof *ns);
	m->count += count - 1;
	m->refused += numbers[0];
	return TUTTI_OK;
}

static tutti_status end_one(struct rounds *r, const tutti_rpc_request *request,
			    tutti_rpc_reply *reply)
{
	int c = request->rank - job_first_client(r->job);

	if (r->is_stopped)
		return tutti_set_error(TUTTI_ERR_ABORTED, "the server ends");
	if (c < 0 || r->clients[c].reply || r->done == MODES * r->job->rounds)
		return tutti_set_error(TUTTI_ERR_INVALID, "no round of this rank has begun");
	if (r->clients[c].is_dead)
		return TUTTI_OK;
	TRY(add_times(&r->measured[r->done % MODES], request->data,
		      request->bytes / sizeof(uint32_t)));
	r->clients[c].reply = reply;
	if (all_have_ended(r))
		begin_next(r);
	return TUTTI_IN_PROGRESS;
}

tutti_status rounds_end_one(void *rounds, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rounds *r = rounds;
	size_t numbers = request->bytes / sizeof(uint32_t);

	if (request->bytes % sizeof(uint32_t) || numbers != (size_t)r->job->requests + 1)
		return tutti_set_error(TUTTI_ERR_INVALID, "not one time for each request");
	pthread_mutex_lock(&r->lock);
	tutti_status status = end_one(r, request, reply);
	pthread_mutex_unlock(&r->lock);
	return status;
}

void rounds_died(void *rounds, int rank)
{
	struct rounds *r = rounds;
	int c = rank - job_first_client(r->job);

	if (c < 0)
		return;
	pthread_mutex_lock(&r->lock);
	r->clients[c].is_dead = 1;
	if (r->clients[c].reply)
		tutti_rpc_reply_end(r->clients[c].reply, TUTTI_ERR_ABORTED);
	r->clients[c].reply = NULL;
	if (all_have_ended(r))
		begin_next(r);
	pthread_cond_signal(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

static int rounds_is_over(const struct rounds *r)
{
	int living = 0;

	for (int c = 0; c < job_clients(r->job); c++)
		living += !r->clients[c].is_dead;
	return living == 0 || r->done == MODES * r->job->rounds;
}

void rounds_wait(struct rounds *r)
{
	pthread_mutex_lock(&r->lock);
	while (!rounds_is_over(r))
		pthread_cond_wait(&r->changed, &r->lock);
	pthread_mutex_unlock(&r->lock);
}

/* ---- what came out ------------------------------------------------------------------------ */
static int compare_ns(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static int compare_ratios(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print_mode(const char *name, struct measured *m)
{
	qsort(m->ns, m->count, sizeof *m->ns, compare_ns);
	printf("%-14s %9lld %9.0f %6.1f %8lld", name, (long long)m->requests,
	       (double)m->requests / m->seconds, (double)m->requests / (double)m->batches,
	       (long long)m->refused);
	for (int i = 0; i < 4; i++) {
		const double parts[] = {0.5, 0.9, 0.99, 1};
		size_t at = (size_t)(parts[i] * (double)(m->count - 1));
		printf(" %8.0f", m->ns[at] * 1e-3);
	}
	printf("\n");
}

/* Each round beside its neighbour, so that a load of the machine is on both. */
static double median_ratio(const struct rounds *r)
{
	double *ratios = r->measured[BATCHED].rates;

	for (int i = 0; i < r->job->rounds; i++)
		ratios[i] /= r->measured[ONE_AT_A_TIME].rates[i];
	qsort(ratios, (size_t)r->job->rounds, sizeof *ratios, compare_ratios);
	return ratios[r->job->rounds / 2];
}

tutti_status rounds_print(struct rounds *r)
{
	if (r->done < MODES * r->job->rounds)
		return tutti_set_error(TUTTI_ERR_PEER, "no client has come to the end");
	printf("%-14s %9s %9s %6s %8s %8s %8s %8s %8s\n", "", "requests", "a second", "batch",
	       "refused", "p50 us", "p90 us", "p99 us", "max us");
	print_mode("one at a time", &r->measured[ONE_AT_A_TIME]);
	print_mode("batched", &r->measured[BATCHED]);
	printf("batched has x%.2f the requests a second, the median of %d rounds\n",
	       median_ratio(r), r->job->rounds);
	return TUTTI_OK;
}

/* ---- beginning and end -------------------------------------------------------------------- */
tutti_status rounds_create(struct rounds **rounds, const struct job *job, struct batcher *batcher)
{
	struct rounds *r = calloc(1, sizeof *r);

	if (!r)
		return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for rounds");
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	r->job = job;
	r->batcher = batcher;
	r->clients = calloc((size_t)job_clients(job), sizeof *r->clients);
	int is_whole = r->clients != NULL;
	for (int m = 0; m < MODES; m++) {
		r->measured[m].rates = calloc((size_t)job->rounds, sizeof(double));
		is_whole &= r->measured[m].rates != NULL;
	}
	if (!is_whole) {
		rounds_destroy(r);
		return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for rounds");
	}
	*rounds = r;
	return TUTTI_OK;
}

void rounds_stop(struct rounds *r)
{
	pthread_mutex_lock(&r->lock);
	r->is_stopped = 1;
	answer_all(r, TUTTI_ERR_ABORTED);
	pthread_mutex_unlock(&r->lock);
}

void rounds_destroy(struct rounds *rounds)
{
	if (!rounds)
		return;
	pthread_cond_destroy(&rounds->changed);
	pthread_mutex_destroy(&rounds->lock);
	for (int m = 0; m < MODES; m++) {
		free(rounds->measured[m].rates);
		free(rounds->measured[m].ns);
	}
	free(rounds->clients);
	free(rounds);
}
