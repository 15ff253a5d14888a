/* The options of a job, and the functions of the server. */
#ifndef EXAMPLES_INFERENCE_SERVER_JOB_H
#define EXAMPLES_INFERENCE_SERVER_JOB_H

#include "mlp.h"

#include <time.h>
#include <tutti/rpc.h>

enum { SERVER = 0, MOST_QUEUE = 4096, MOST_IN_FLIGHT = 256, MOST_REQUESTS = 1000000 };

struct job {
	int rank, size; /* set when the rank has joined                                       */
	int batch;      /* requests that are computed together, at most                       */
	int delay_us;   /* that the oldest request waits for others, at most                  */
	int queue;      /* requests that wait, at most; others are refused                    */
	int in_flight;  /* requests of one client at once                                     */
	int requests;   /* of one client in one round                                         */
	int rounds;     /* of each of two modes, which take turns: one at a time, and batched */
	const char *model, *export; /* safetensors files, or NULL                             */
};

/* Alone the server is its own client. */
static inline int job_first_client(const struct job *job)
{
	return job->size > 1 ? 1 : 0;
}

static inline int job_clients(const struct job *job)
{
	return job->size - job_first_client(job);
}

/* The functions of the server.
 *
 *   infer      INPUTS floats -> OUTPUTS floats. MEMORY: the queue is full, so try again
 *   round_end  how long the client's requests took, in ns, uint32; the first of them is how many
 *              tries were refused -> nothing, when all clients have ended their round
 */
#define INFER     "infer"
#define ROUND_END "round_end"

static inline int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
