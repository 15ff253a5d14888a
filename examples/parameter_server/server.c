/* See server.h. One lock guards all of a server, so that a pull is a moment between two updates.
 *
 * Of a push the answer says that the worker may begin its next step. With a staleness of 0 a push
 * waits, where it has arrived, until those of all living workers are there; then they are applied
 * in the order of the workers, so that every run has the same bits. */
#include "server.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the shard: a range of the dense parameters, and every servers-th row of the embedding table
 */
struct shard {
	const struct job *job;
	struct share range; /* of the dense parameters        */
	float *dense;       /* [range.end - range.begin]      */
	float (*rows)[DIM]; /* row r is at r / job->servers   */
};

static size_t shard_dense_bytes(const struct shard *shard)
{
	return (size_t)(shard->range.end - shard->range.begin) * sizeof(float);
}

/* INVALID, with two numbers in its message. */
static tutti_status refuse(const char *format, long long got, long long wanted)
{
	char why[160];

	snprintf(why, sizeof why, format, got, wanted);
	return tutti_set_error(TUTTI_ERR_INVALID, why);
}

/* INVALID: a row that this server does not have. Needs no lock. */
static tutti_status shard_check_rows(const struct shard *shard, const int32_t *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (rows[i] < 0 || rows[i] >= ROWS ||
		    job_server_of_row(shard->job, rows[i]) != shard->job->rank)
			return refuse("row %lld is not of server rank %lld", rows[i],
				      shard->job->rank);
	}
	return TUTTI_OK;
}

/* INVALID: the bytes are not those of a push. Needs no lock. */
static tutti_status shard_check_push(const struct shard *shard, const void *data, size_t bytes)
{
	const struct push_header *push = data;
	size_t before_rows = sizeof *push + shard_dense_bytes(shard);

	if (bytes < before_rows)
		return refuse("a push of %lld bytes, of at least %lld", (long long)bytes,
			      (long long)before_rows);
	if (push->num_rows < 0 || push->num_rows > ROWS)
		return refuse("a push of %lld rows, of %lld", push->num_rows, ROWS);
	const int32_t *rows = (const int32_t *)((const char *)data + before_rows);
	size_t num_rows = (size_t)push->num_rows;
	size_t wanted = before_rows + num_rows * (sizeof *rows + sizeof *shard->rows);
	if (bytes != wanted)
		return refuse("a push of %lld bytes instead of %lld", (long long)bytes,
			      (long long)wanted);
	return shard_check_rows(shard, rows, num_rows);
}

static void shard_read_rows(const struct shard *shard, const int32_t *rows, size_t count,
			    float (*values)[DIM])
{
	for (size_t i = 0; i < count; i++)
		memcpy(values[i], shard->rows[rows[i] / shard->job->servers], sizeof *values);
}

/* A step of SGD by a push that was checked. */
static void shard_apply(struct shard *shard, const struct push_header *push, float rate)
{
	int count = shard->range.end - shard->range.begin;
	const float *dense_grad = (const float *)(push + 1);
	const int32_t *rows = (const int32_t *)(dense_grad + count);
	const float(*rows_grad)[DIM] = (const float(*)[DIM])(rows + push->num_rows);

	for (int i = 0; i < count; i++)
		shard->dense[i] -= rate * dense_grad[i];
	for (int r = 0; r < push->num_rows; r++) {
		float *row = shard->rows[rows[r] / shard->job->servers];
		for (int i = 0; i < DIM; i++)
			row[i] -= rate * ROW_RATE * rows_grad[r][i];
	}
}

/* With first values. MEMORY: finish it, too. */
static tutti_status shard_init(struct shard *shard, const struct job *job)
{
	*shard = (struct shard){.job = job, .range = job_dense(job, job->rank)};
	shard->dense = malloc(shard_dense_bytes(shard));
	shard->rows = calloc((size_t)(ROWS / job->servers + 1), sizeof *shard->rows);
	if (!shard->dense || !shard->rows)
		return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for a server's shard");
	for (int i = shard->range.begin; i < shard->range.end; i++)
		shard->dense[i - shard->range.begin] = dense_init(i);
	for (int row = job->rank; row < ROWS; row += job->servers) {
		for (int i = 0; i < DIM; i++)
			shard->rows[row / job->servers][i] = row_init(row, i);
	}
	return TUTTI_OK;
}

static void shard_finish(struct shard *shard)
{
	free(shard->dense);
	free(shard->rows);
}

/* ---- a server ----------------------------------------------------------------------------- */
/* A push without its answer. The request's data stays until then. */
struct held {
	const tutti_rpc_request *request;
	tutti_rpc_reply *reply; /* NULL: there is none */
};

struct member { /* a worker, as a server sees it */
	int is_dead;
	int is_done;   /* has reported */
	int64_t clock; /* steps whose pushes have come */
	struct held held;
};

/* The losses of one step, of the workers that have pushed it. */
struct step_loss {
	double sum;
	int samples;
};

struct server {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a worker is done or dead, or a server dead */
	const struct job *job;
	struct shard shard;
	struct member *members;   /* [job_workers] */
	struct step_loss *losses; /* [job->steps], of server 0 */
	int64_t printed;          /* the next step whose loss is to be printed */
	int is_stopped;
	int dead_server; /* its rank, or -1 */
	double final_loss;
};

/* ---- what workers pull -------------------------------------------------------------------- */
static tutti_status pull_dense(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct server *s = arg;
	size_t bytes = shard_dense_bytes(&s->shard);
	float *room = tutti_rpc_reply_room(reply, bytes);

	(void)request;
	if (!room)
		return TUTTI_ERR_MEMORY;
	pthread_mutex_lock(&s->lock);
	memcpy(room, s->shard.dense, bytes);
	pthread_mutex_unlock(&s->lock);
	return TUTTI_OK;
}

static tutti_status pull_rows(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct server *s = arg;
	const int32_t *rows = request->data;
	size_t count = request->bytes / sizeof *rows;

	if (count == 0)
		return TUTTI_OK;
	TRY(shard_check_rows(&s->shard, rows, count));
	float(*room)[DIM] = tutti_rpc_reply_room(reply, count * sizeof *room);
	if (!room)
		return TUTTI_ERR_MEMORY;
	pthread_mutex_lock(&s->lock);
	shard_read_rows(&s->shard, rows, count, room);
	pthread_mutex_unlock(&s->lock);
	return TUTTI_OK;
}

/* ---- what workers push -------------------------------------------------------------------- */
/* The samples of a step of those workers that live. */
static int living_samples(const struct server *s)
{
	int samples = 0, workers = job_workers(s->job);

	for (int w = 0; w < workers; w++) {
		struct share share = share_of(BATCH, w, workers);
		if (!s->members[w].is_dead)
			samples += share.end - share.begin;
	}
	return samples;
}

/* Straight from where the request has arrived. The gradients of a step are sums over samples. */
static void server_apply(struct server *s, const tutti_rpc_request *request)
{
	shard_apply(&s->shard, request->data, s->job->lr / (float)living_samples(s));
}

/* The steps that all living workers have pushed: all of them where none lives. */
static int64_t slowest_clock(const struct server *s)
{
	int64_t slowest = s->job->steps;

	for (int w = 0; w < job_workers(s->job); w++) {
		if (!s->members[w].is_dead && s->members[w].clock < slowest)
			slowest = s->members[w].clock;
	}
	return slowest;
}

/* In the order of steps, each when no more of its losses can come. */
static void print_losses(struct server *s, int64_t end)
{
	for (; s->losses && s->printed < end; s->printed++) {
		const struct step_loss *loss = &s->losses[s->printed];
		if (s->printed % s->job->print_every == 0 && loss->samples > 0)
			job_print_loss(s->printed, loss->sum / loss->samples);
	}
}

/* Answers the pushes of workers that may go on. The last push of a worker is answered when all are
 * at the end, so that afterwards nobody changes what it evaluates. */
static void release_workers(struct server *s)
{
	int64_t slowest = slowest_clock(s);

	for (int w = 0; w < job_workers(s->job); w++) {
		struct member *m = &s->members[w];
		int ahead = m->clock < s->job->steps ? s->job->staleness : 0;
		if (!m->held.reply || m->clock > slowest + ahead)
			continue;
		if (s->job->staleness == 0)
			server_apply(s, m->held.request);
		tutti_rpc_reply_end(m->held.reply, TUTTI_OK);
		m->held = (struct held){NULL, NULL};
	}
	print_losses(s, slowest);
}

static void add_loss(struct server *s, int worker, const struct push_header *header)
{
	struct share share = share_of(BATCH, worker, job_workers(s->job));

	if (!s->losses)
		return;
	s->losses[header->step].sum += header->loss;
	s->losses[header->step].samples += share.end - share.begin;
}

static tutti_status say_dead_server(const struct server *s)
{
	char why[160];

	snprintf(why, sizeof why,
		 "server rank %d has died, or left, and its shard of the parameters with it",
		 s->dead_server);
	return tutti_set_error(TUTTI_ERR_PEER, why);
}

static tutti_status push_locked(struct server *s, const tutti_rpc_request *request,
				tutti_rpc_reply *reply)
{
	const struct push_header *header = request->data;
	int worker = request->rank - job_first_worker(s->job);

	if (worker < 0)
		return refuse("rank %lld is no worker: the first one is rank %lld", request->rank,
			      job_first_worker(s->job));
	struct member *m = &s->members[worker];
	if (m->is_dead || s->is_stopped)
		return tutti_set_error(TUTTI_ERR_ABORTED, "the server has ended");
	if (s->dead_server >= 0)
		return say_dead_server(s);
	if (header->step != m->clock || m->clock == s->job->steps || m->held.reply)
		return refuse("a push of step %lld, when step %lld was due",
			      (long long)header->step, (long long)m->clock);
	m->clock++;
	m->held = (struct held){request, reply};
	add_loss(s, worker, header);
	if (s->job->staleness > 0)
		server_apply(s, request);
	release_workers(s);
	return TUTTI_IN_PROGRESS;
}

static tutti_status server_push(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct server *s = arg;

	TRY(shard_check_push(&s->shard, request->data, request->bytes));
	pthread_mutex_lock(&s->lock);
	tutti_status status = push_locked(s, request, reply);
	pthread_mutex_unlock(&s->lock);
	return status;
}

/* ---- deaths and the end ------------------------------------------------------------------- */
static tutti_status server_report(void *arg, const tutti_rpc_request *request,
				  tutti_rpc_reply *reply)
{
	struct server *s = arg;
	int worker = request->rank - job_first_worker(s->job);

	(void)reply;
	if (worker < 0 || request->bytes != sizeof s->final_loss)
		return refuse("a report of %lld bytes from rank %lld", (long long)request->bytes,
			      request->rank);
	pthread_mutex_lock(&s->lock);
	memcpy(&s->final_loss, request->data, sizeof s->final_loss);
	s->members[worker].is_done = 1;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return TUTTI_OK;
}

static void end_push(struct member *m, tutti_status status)
{
	if (m->held.reply)
		tutti_rpc_reply_end(m->held.reply, status);
	m->held = (struct held){NULL, NULL};
}

static void end_all_pushes(struct server *s, tutti_status status)
{
	for (int w = 0; w < job_workers(s->job); w++)
		end_push(&s->members[w], status);
}

static int count_done(const struct server *s)
{
	int done = 0;

	for (int w = 0; w < job_workers(s->job); w++)
		done += s->members[w].is_done;
	return done;
}

/* No worker goes on. */
static int server_is_over(const struct server *s)
{
	for (int w = 0; w < job_workers(s->job); w++) {
		if (!s->members[w].is_done && !s->members[w].is_dead)
			return 0;
	}
	return 1;
}

/* A dead worker counts no more. Its push that still waits is not applied; another server may have
 * applied the same step's, which is as if the worker had died a moment later there. A dead server
 * ends the job: workers that wait here are told. After the end ranks leave, and have not died. */
void server_died(void *server, int rank)
{
	struct server *s = server;
	int worker = rank - job_first_worker(s->job);

	pthread_mutex_lock(&s->lock);
	if (rank < s->job->servers && s->dead_server < 0 && !server_is_over(s)) {
		s->dead_server = rank;
		end_all_pushes(s, say_dead_server(s));
	}
	if (worker >= 0) {
		s->members[worker].is_dead = 1;
		end_push(&s->members[worker], TUTTI_ERR_ABORTED);
		release_workers(s);
	}
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

void server_wait(struct server *s)
{
	pthread_mutex_lock(&s->lock);
	while (!server_is_over(s) && s->dead_server < 0)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

void server_stop(struct server *s)
{
	pthread_mutex_lock(&s->lock);
	s->is_stopped = 1;
	end_all_pushes(s, tutti_set_error(TUTTI_ERR_ABORTED, "the server has ended"));
	pthread_mutex_unlock(&s->lock);
}

tutti_status server_end(struct server *s)
{
	if (s->dead_server >= 0)
		return say_dead_server(s);
	if (count_done(s) == 0)
		return tutti_set_error(TUTTI_ERR_PEER, "no worker has come to the end");
	if (s->job->rank == 0)
		job_print_final(s->final_loss);
	return TUTTI_OK;
}

void server_functions(struct server *server, tutti_rpc_function functions[SERVER_FUNCTIONS])
{
	functions[0] = (tutti_rpc_function){.name = PULL_DENSE, .fn = pull_dense, .arg = server};
	functions[1] = (tutti_rpc_function){.name = PULL_ROWS, .fn = pull_rows, .arg = server};
	functions[2] = (tutti_rpc_function){.name = PUSH, .fn = server_push, .arg = server};
	functions[3] = (tutti_rpc_function){.name = REPORT, .fn = server_report, .arg = server};
}

tutti_status server_create(struct server **server, const struct job *job)
{
	struct server *s = calloc(1, sizeof *s);

	if (!s)
		return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for a server");
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	s->job = job;
	s->dead_server = -1;
	s->members = calloc((size_t)job_workers(job), sizeof *s->members);
	if (job->rank == 0)
		s->losses = calloc((size_t)job->steps, sizeof *s->losses);
	tutti_status status = shard_init(&s->shard, job);
	if (status == TUTTI_OK && (!s->members || (job->rank == 0 && !s->losses)))
		status = tutti_set_error(TUTTI_ERR_MEMORY, "no memory for a server");
	if (status != TUTTI_OK) {
		server_destroy(s);
		return status;
	}
	*server = s;
	return TUTTI_OK;
}

void server_destroy(struct server *server)
{
	if (!server)
		return;
	pthread_cond_destroy(&server->changed);
	pthread_mutex_destroy(&server->lock);
	shard_finish(&server->shard);
	free(server->members);
	free(server->losses);
	free(server);
}
