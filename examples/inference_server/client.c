/* See client.h. A client waits for its requests in the order in which it has sent them, which is
 * about the order of the answers: the times are what a caller sees. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUESTIONS = 16, RETRY_S = 60 };

struct call { /* one in flight */
	tutti_rpc_future *future;
	tutti_rpc_answer answer;
	int64_t begun_ns;
	int question;
	float output[OUTPUTS];
};

struct client {
	const struct job *job;
	tutti_rpc *rpc;
	float inputs[QUESTIONS][INPUTS], outputs[QUESTIONS][OUTPUTS]; /* with their right answers */
	struct call *calls; /* [job->in_flight], in turn */
	uint32_t *numbers;  /* [1 + job->requests]: the payload of round_end */
};

/* The answers are computed beforehand, one at a time, so that the client does not compute while the
 * server does. */
static tutti_status client_prepare(struct client *c, const struct mlp *mlp)
{
	float *scratch = malloc((size_t)2 * HIDDEN * sizeof *scratch);

	if (!scratch)
		return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for a client");
	for (int q = 0; q < QUESTIONS; q++) {
		const float *input = c->inputs[q];
		float *output = c->outputs[q];
		for (int i = 0; i < INPUTS; i++) {
			uint32_t bits =
				tutti_random(2, (uint64_t)c->job->rank, (uint64_t)q, (uint64_t)i);
			c->inputs[q][i] = (float)(bits >> 8) / (1 << 23) - 1;
		}
		mlp_infer(mlp, &input, &output, 1, scratch);
	}
	free(scratch);
	return TUTTI_OK;
}

static tutti_status client_begin(struct client *c, struct call *call)
{
	tutti_rpc_piece piece = {c->inputs[call->question], sizeof c->inputs[0]};

	call->answer = (tutti_rpc_answer){.data = call->output, .bytes = sizeof call->output};
	return tutti_rpc_call_async(c->rpc, SERVER, INFER, &piece, 1, &call->answer, NULL,
				    &call->future);
}

static tutti_status client_check(const struct client *c, const struct call *call)
{
	const float *right = c->outputs[call->question];
	char why[160];

	if (call->answer.bytes != sizeof call->output)
		return tutti_set_error(TUTTI_ERR_INTERNAL, "an answer has another length");
	for (int o = 0; o < OUTPUTS; o++) {
		if (memcmp(&call->output[o], &right[o], sizeof right[o]) == 0)
			continue;
		snprintf(why, sizeof why,
			 "an answer of rank %d differs in output %d: %a instead of %a", SERVER, o,
			 (double)call->output[o], (double)right[o]);
		return tutti_set_error(TUTTI_ERR_INTERNAL, why);
	}
	return TUTTI_OK;
}

/* A request that the full queue has refused is sent again. */
static tutti_status client_end(struct client *c, struct call *call, int number)
{
	tutti_status status = tutti_rpc_wait(&call->future, 0);
	int64_t most_ns = (int64_t)RETRY_S * 1000000000;

	while (status == TUTTI_ERR_MEMORY && now_ns() - call->begun_ns < most_ns) {
		c->numbers[0]++;
		TRY(client_begin(c, call));
		status = tutti_rpc_wait(&call->future, 0);
	}
	TRY(status);
	int64_t took = now_ns() - call->begun_ns;
	c->numbers[1 + number] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
	return client_check(c, call);
}

static tutti_status run_round(struct client *c)
{
	int in_flight = c->job->in_flight;

	c->numbers[0] = 0;
	for (int n = 0; n < c->job->requests + in_flight; n++) {
		struct call *call = &c->calls[n % in_flight];
		if (n >= in_flight)
			TRY(client_end(c, call, n - in_flight));
		if (n >= c->job->requests)
			continue;
		call->question = n % QUESTIONS;
		call->begun_ns = now_ns();
		TRY(client_begin(c, call));
	}
	tutti_rpc_piece piece = {c->numbers, (size_t)(1 + c->job->requests) * sizeof *c->numbers};
	return tutti_rpc_call(c->rpc, SERVER, ROUND_END, &piece, 1, NULL, NULL);
}

static tutti_status client_run_all(struct client *c)
{
	char why[512];
	tutti_status status = TUTTI_OK;

	for (int r = 0; r < 2 * c->job->rounds && status == TUTTI_OK; r++)
		status = run_round(c);
	snprintf(why, sizeof why, "client rank %d: %.400s", c->job->rank, tutti_comm_error(NULL));
	for (int i = 0; i < c->job->in_flight; i++)
		tutti_rpc_release(&c->calls[i].future);
	return status == TUTTI_OK ? status : tutti_set_error(status, why);
}

tutti_status client_run(tutti_rpc *rpc, const struct job *job, const struct mlp *mlp)
{
	struct client *c = calloc(1, sizeof *c);
	tutti_status status = TUTTI_ERR_MEMORY;

	if (!c)
		return tutti_set_error(status, "no memory for a client");
	c->job = job;
	c->rpc = rpc;
	c->calls = calloc((size_t)job->in_flight, sizeof *c->calls);
	c->numbers = calloc((size_t)job->requests + 1, sizeof *c->numbers);
	if (c->calls && c->numbers)
		status = client_prepare(c, mlp);
	else
		tutti_set_error(status, "no memory for a client");
	if (status == TUTTI_OK)
		status = client_run_all(c);
	free(c->calls);
	free(c->numbers);
	free(c);
	return status;
}
