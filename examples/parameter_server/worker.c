/* See worker.h. Rows are sorted by their servers, so that those of one server are one block, which
 * the calls fill and read in its place. */
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls that are in flight at once: two to each server at most. */
struct calls {
	tutti_rpc_future *futures[2 * MOST_SERVERS];
	tutti_rpc_answer answers[2 * MOST_SERVERS];
	size_t wanted[2 * MOST_SERVERS]; /* bytes of each answer */
	int count;
};

struct worker {
	const struct job *job;
	tutti_rpc *rpc;
	struct calls calls;
	struct model model;
	struct sample samples[EVALUATED];
	int num_samples;
	int32_t row_numbers[ROWS]; /* that the samples use: those of server k from rows_at[k] on */
	int rows_at[MOST_SERVERS + 1];
	int32_t slot_of[ROWS];
	float rows[ROWS][DIM], rows_grad[ROWS][DIM];
};

/* ---- calls -------------------------------------------------------------------------------- */
/* Begins a call whose answer has exactly these bytes. */
static tutti_status worker_begin_call(struct worker *w, int server, const char *name,
				      const tutti_rpc_piece *pieces, int num_pieces, void *room,
				      size_t bytes)
{
	struct calls *c = &w->calls;
	int n = c->count;

	c->wanted[n] = bytes;
	c->answers[n] = (tutti_rpc_answer){.data = room, .bytes = bytes};
	TRY(tutti_rpc_call_async(w->rpc, server, name, pieces, num_pieces,
				 bytes ? &c->answers[n] : NULL, NULL, &c->futures[n]));
	c->count++;
	return TUTTI_OK;
}

/* Waits for all; after the first error the others are cancelled. */
static tutti_status end_calls(struct worker *w, tutti_status status)
{
	char why[512];
	struct calls *c = &w->calls;

	for (int i = 0; i < c->count && status == TUTTI_OK; i++) {
		status = tutti_rpc_wait(&c->futures[i], 0);
		if (status == TUTTI_OK && c->wanted[i] && c->answers[i].bytes != c->wanted[i])
			status = tutti_set_error(TUTTI_ERR_MISMATCH,
						 "a server's answer is too short");
	}
	snprintf(why, sizeof why, "%s", tutti_comm_error(NULL));
	for (int i = 0; i < c->count; i++)
		tutti_rpc_release(&c->futures[i]);
	c->count = 0;
	return status == TUTTI_OK ? status : tutti_set_error(status, why);
}

/* ---- which rows --------------------------------------------------------------------------- */
static void note_row(struct worker *w, int row)
{
	if (w->slot_of[row] >= 0)
		return;
	w->slot_of[row] = 0;
	w->rows_at[job_server_of_row(w->job, row) + 1]++;
}

static void place_row(struct worker *w, int row, int *next)
{
	w->slot_of[row] = next[job_server_of_row(w->job, row)]++;
	w->row_numbers[w->slot_of[row]] = row;
}

/* Gives each row that the samples use a place beside the others of its server. */
static void find_rows(struct worker *w)
{
	int next[MOST_SERVERS];

	memset(w->rows_at, 0, sizeof w->rows_at);
	for (int row = 0; row < ROWS; row++)
		w->slot_of[row] = -1;
	for (int i = 0; i < w->num_samples; i++) {
		note_row(w, w->samples[i].user);
		note_row(w, w->samples[i].thing);
	}
	for (int k = 0; k < w->job->servers; k++) {
		w->rows_at[k + 1] += w->rows_at[k];
		next[k] = w->rows_at[k];
	}
	for (int row = 0; row < ROWS; row++) {
		if (w->slot_of[row] == 0)
			place_row(w, row, next);
	}
}

/* ---- pull and push ------------------------------------------------------------------------ */
static tutti_status begin_pull(struct worker *w, int server)
{
	struct share dense = job_dense(w->job, server);
	int at = w->rows_at[server];
	size_t num_rows = (size_t)(w->rows_at[server + 1] - at);
	tutti_rpc_piece numbers = {&w->row_numbers[at], num_rows * sizeof *w->row_numbers};

	TRY(worker_begin_call(w, server, PULL_DENSE, NULL, 0, &w->model.dense[dense.begin],
			      (size_t)(dense.end - dense.begin) * sizeof(float)));
	if (num_rows == 0)
		return TUTTI_OK;
	return worker_begin_call(w, server, PULL_ROWS, &numbers, 1, w->rows[at],
				 num_rows * sizeof *w->rows);
}

static tutti_status worker_pull(struct worker *w)
{
	tutti_status status = TUTTI_OK;

	for (int k = 0; k < w->job->servers && status == TUTTI_OK; k++)
		status = begin_pull(w, k);
	return end_calls(w, status);
}

static tutti_status begin_push(struct worker *w, int server, struct push_header *header)
{
	struct share dense = job_dense(w->job, server);
	int at = w->rows_at[server];
	size_t num_rows = (size_t)(w->rows_at[server + 1] - at);
	tutti_rpc_piece pieces[] = {
		{header, sizeof *header},
		{&w->model.dense_grad[dense.begin],
		 (size_t)(dense.end - dense.begin) * sizeof(float)},
		{&w->row_numbers[at], num_rows * sizeof *w->row_numbers},
		{w->rows_grad[at], num_rows * sizeof *w->rows_grad},
	};

	header->num_rows = (int32_t)num_rows;
	return worker_begin_call(w, server, PUSH, pieces, 4, NULL, 0);
}

/* Returns when this worker may begin its next step. */
static tutti_status worker_push(struct worker *w, int64_t step, double loss)
{
	struct push_header headers[MOST_SERVERS];
	tutti_status status = TUTTI_OK;

	for (int k = 0; k < w->job->servers && status == TUTTI_OK; k++) {
		headers[k] = (struct push_header){.step = step, .loss = loss};
		status = begin_push(w, k, &headers[k]);
	}
	return end_calls(w, status);
}

/* ---- steps -------------------------------------------------------------------------------- */
static void worker_load(struct worker *w, int64_t step, struct share share)
{
	w->num_samples = share.end - share.begin;
	for (int i = 0; i < w->num_samples; i++)
		w->samples[i] = sample_of(step, share.begin + i);
	find_rows(w);
}

static tutti_status worker_step_once(struct worker *w, int64_t step)
{
	int number = w->job->rank - job_first_worker(w->job);

	worker_load(w, step, share_of(BATCH, number, job_workers(w->job)));
	TRY(worker_pull(w));
	double loss =
		model_gradients(&w->model, w->samples, w->num_samples, w->rows_at[w->job->servers]);
	return worker_push(w, step, loss);
}

/* Each worker evaluates the same samples: then any of them may die. */
static tutti_status worker_evaluate(struct worker *w)
{
	tutti_status status = TUTTI_OK;

	worker_load(w, -1, (struct share){0, EVALUATED});
	TRY(worker_pull(w));
	double loss = model_loss(&w->model, w->samples, EVALUATED) / EVALUATED;
	tutti_rpc_piece piece = {&loss, sizeof loss};
	for (int k = 0; k < w->job->servers && status == TUTTI_OK; k++)
		status = worker_begin_call(w, k, REPORT, &piece, 1, NULL, 0);
	return end_calls(w, status);
}

static tutti_status run_steps(struct worker *w)
{
	char why[512];
	tutti_status status = TUTTI_OK;
	int64_t step = 0;

	while (step < w->job->steps && status == TUTTI_OK)
		status = worker_step_once(w, step++);
	if (status == TUTTI_OK)
		status = worker_evaluate(w);
	if (status == TUTTI_OK)
		return status;
	snprintf(why, sizeof why, "worker rank %d, step %lld: %.400s", w->job->rank,
		 (long long)step - 1, tutti_comm_error(NULL));
	return tutti_set_error(status, why);
}

tutti_status worker_run(tutti_rpc *rpc, const struct job *job)
{
	struct worker *w = calloc(1, sizeof *w);

	if (!w)
		return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for a worker");
	w->job = job;
	w->rpc = rpc;
	w->model.rows = w->rows;
	w->model.rows_grad = w->rows_grad;
	w->model.slot_of = w->slot_of;
	tutti_status status = run_steps(w);
	free(w);
	return status;
}
