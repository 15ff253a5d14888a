/* call_layers: where the time of one blocking all_reduce of 16 bytes goes, from the inside: the
 * window alone, with the engine around it, with the API around both. Run it with tuttirun -n 2 on
 * two quiet cores. The ranks are timed in turns, so that all layers see the same machine. */
#include "collectives/comm.h"
#include "collectives/run.h"
#include "core/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS     301
#define CALLS      1000
#define TIMEOUT_NS 60000000000u

enum { WINDOW, ENGINE, API, LAYERS };

/* Sequence and fingerprint are the API's work; below it any will do that are the same on all ranks.
 */
static struct call_args arguments(float *data)
{
	return (struct call_args){
		.collective = COLL_ALL_REDUCE,
		.dtype = TUTTI_F32,
		.op = TUTTI_SUM,
		.count = 4,
		.send = data,
		.recv = data,
		.fingerprint = 1,
	};
}

static tutti_status call_window(struct tutti_comm *comm, float *data)
{
	struct engine *engine = comm->engine;
	struct call_args args = arguments(data);
	struct window_run run;

	window_begin(engine->config.window, &run, &args);
	return window_drive(engine->config.window, &run, TIMEOUT_NS, &engine->stop, NULL, NULL);
}

static tutti_status call_engine(struct tutti_comm *comm, float *data)
{
	struct call_args args = arguments(data);

	return engine_run_window(comm->engine, &args, 60000);
}

static tutti_status call_api(struct tutti_comm *comm, float *data)
{
	return tutti_all_reduce(data, data, 4, TUTTI_F32, TUTTI_SUM, comm, NULL);
}

static tutti_status time_calls(struct tutti_comm *comm, int layer, double *ns)
{
	static tutti_status (*const calls[LAYERS])(struct tutti_comm * comm, float *data) = {
		[WINDOW] = call_window,
		[ENGINE] = call_engine,
		[API] = call_api,
	};
	float data[4] = {0};
	uint64_t start;

	TRY(tutti_barrier(comm, NULL));
	start = clock_now_ns();
	for (int i = 0; i < CALLS; i++)
		TRY(calls[layer](comm, data));
	*ns = (double)(clock_now_ns() - start) / CALLS;
	return TUTTI_OK;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static tutti_status measure(struct tutti_comm *comm, double median[LAYERS])
{
	static double ns[LAYERS][ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		for (int layer = 0; layer < LAYERS; layer++)
			TRY(time_calls(comm, layer, &ns[layer][round]));
	}
	for (int layer = 0; layer < LAYERS; layer++) {
		qsort(ns[layer], ROUNDS, sizeof ns[layer][0], by_value);
		median[layer] = ns[layer][ROUNDS / 2];
	}
	return TUTTI_OK;
}

int main(void)
{
	double median[LAYERS];
	tutti_comm *comm;

	if (tutti_init(&comm, NULL) != TUTTI_OK) {
		fprintf(stderr, "call_layers: %s\n", tutti_comm_error(NULL));
		return 1;
	}
	if (!comm->engine->config.window) {
		fprintf(stderr, "call_layers: these ranks share no window\n");
		return 1;
	}
	if (measure(comm, median) != TUTTI_OK) {
		fprintf(stderr, "call_layers: %s\n", tutti_comm_error(NULL));
		return 1;
	}
	if (tutti_rank(comm) == 0)
		printf("all_reduce of 16 B: window %.0f ns, engine + %.0f ns, API + %.0f ns\n",
		       median[WINDOW], median[ENGINE] - median[WINDOW],
		       median[API] - median[ENGINE]);
	tutti_comm_destroy(comm);
	return 0;
}
