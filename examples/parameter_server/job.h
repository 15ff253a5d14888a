/* The options of a job, who holds which parameters, and the functions of a server. */
#ifndef EXAMPLES_PARAMETER_SERVER_JOB_H
#define EXAMPLES_PARAMETER_SERVER_JOB_H

#include "model.h"

#include <stddef.h>
#include <tutti/rpc.h>

#define TRY(expression)                                                                            \
	do {                                                                                       \
		tutti_status try_status_ = (expression);                                           \
		if (try_status_ != TUTTI_OK)                                                       \
			return try_status_;                                                        \
	} while (0)

enum {
	MOST_SERVERS = 16,
	MOST_STEPS = 1000000,
	ROW_RATE = 64,  /* times the rate of the dense parameters: most batches do not use a row */
	EVALUATED = 512 /* samples of the loss at the end                                        */
};

struct job {
	int rank, size; /* set when the rank has joined                                */
	int servers;    /* ranks 0 .. servers - 1; the others are workers              */
	int staleness;  /* steps that a worker may be ahead of the slowest living one  */
	int64_t steps;
	int64_t print_every;
	float lr;
	int ddp;   /* no servers: all ranks train by a tutti_trainer              */
};

/* With no rank left for workers each server is a worker, too. */
static inline int job_first_worker(const struct job *job)
{
	return job->size > job->servers ? job->servers : 0;
}

static inline int job_workers(const struct job *job)
{
	return job->size - job_first_worker(job);
}

/* A server has a range of the dense parameters, and every servers-th row. */
static inline struct share job_dense(const struct job *job, int server)
{
	return share_of(DENSE, server, job->servers);
}

static inline int job_server_of_row(const struct job *job, int row)
{
	return row % job->servers;
}

/* The functions of a server, by their names.
 *
 *   pull_dense   nothing -> its dense parameters: floats
 *   pull_rows    numbers of rows, int32 -> their values, DIM floats each
 *   push         a push_header, the gradients of its dense parameters, the numbers of num_rows
 * rows, and their gradients -> nothing, when the worker may begin its next step report       the
 * loss at the end, a double, to server 0 -> nothing
 */
#define PULL_DENSE "pull_dense"
#define PULL_ROWS  "pull_rows"
#define PUSH       "push"
#define REPORT     "report"

struct push_header {
	int64_t step;
	double loss; /* the sum over the worker's samples of the step */
	int32_t num_rows, reserved;
};

/* "step 20   loss 0.125" on stdout. */
void job_print_loss(int64_t step, double loss);
void job_print_final(double loss);

#endif
