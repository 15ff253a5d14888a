/* call_layers: where the time of one blocking all_reduce of 16 bytes goes, from the inside: the
 * window alone, with the engine around it, with the API around both; and what one of 8 bytes pays
 * for being remembered: recorder and fingerprint, and the trace, within the call and by themselves.
 * Run it with tuttirun -n 2 on two quiet cores. The ranks are timed in turns, so that all layers
 * see the same machine. */
#include "collectives/comm/comm.h"
#include "collectives/engine/run.h"
#include "core/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS     301
#define CALLS      1000
#define TIMEOUT_NS 60000000000u

/* Those from LOOP on make no call. */
enum {
	WINDOW,
	ENGINE,
	API,
	BARE,
	TRACED,
	RECORDED,
	LOOP,
	LOOP_RECORD,
	LOOP_TRACE,
	LOOP_BOTH,
	LAYERS
};

/* Where calls are recorded, as the communicator makes them on its own. */
static struct recorder *recorder;
static struct trace *trace;
static uint64_t sequence;
static uint32_t fingerprint;

/* Sequence and fingerprint are the API's work; below it any will do that are the same on all ranks.
 * Not inline, so that the compiler does not know what is in it. */
static __attribute__((noinline)) void call_layers_fill(struct call_args *args, float *data,
						       size_t count)
{
	*args = (struct call_args){
		.collective = COLL_ALL_REDUCE,
		.dtype = TUTTI_F32,
		.op = TUTTI_SUM,
		.count = count,
		.send = data,
		.recv = data,
		.sequence = sequence++,
		.fingerprint = 1,
	};
}

/* As comm_call makes it. */
static void call_layers_record(const struct tutti_comm *comm, struct call_args *args)
{
	struct call_record made = call_record_of(args, comm->size, fingerprint);

	args->fingerprint = fingerprint = made.fingerprint;
	recorder_add(recorder, args->sequence, &made);
}

/* As the engine does it for a call that does not wait. */
static void call_layers_remember(const struct call_args *args)
{
	if (!trace_is_timed(args)) {
		trace_short(trace, args);
		return;
	}
	struct trace_mark mark = trace_call(trace, args, TRACE_BY_WINDOW, 0);
	trace_began(&mark);
	trace_ended(&mark, false);
}

static tutti_status call_layers_call(struct tutti_comm *comm, float *data, int layer)
{
	struct engine *engine = comm->engine;
	struct call_args args;
	struct window_run run;

	if (layer == API)
		return tutti_all_reduce(data, data, 4, TUTTI_F32, TUTTI_SUM, comm, NULL);
	call_layers_fill(&args, data, layer < API ? 4 : 2);
	if (layer == RECORDED || layer == LOOP_RECORD || layer == LOOP_BOTH)
		call_layers_record(comm, &args);
	if (layer == LOOP_TRACE || layer == LOOP_BOTH)
		call_layers_remember(&args);
	if (layer >= LOOP)
		return TUTTI_OK;
	if (layer != WINDOW)
		return engine_run_window(engine, &args, 60000);
	window_begin(engine->config.window, &run, &args);
	return window_drive(engine->config.window, &run, TIMEOUT_NS, &engine->failure.stop, NULL,
			    NULL);
}

static tutti_status call_layers_time_calls(struct tutti_comm *comm, int layer, double *ns)
{
	float data[4] = {0};
	uint64_t start;

	TRY(tutti_barrier(comm, NULL));
	comm->engine->config.trace = layer == BARE ? NULL : comm->calls.trace;
	start = clock_now_ns();
	for (int i = 0; i < CALLS; i++)
		TRY(call_layers_call(comm, data, layer));
	*ns = (double)(clock_now_ns() - start) / CALLS;
	return TUTTI_OK;
}

static int call_layers_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static tutti_status call_layers_measure(struct tutti_comm *comm, double median[LAYERS])
{
	static double ns[LAYERS][ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		for (int layer = 0; layer < LAYERS; layer++)
			TRY(call_layers_time_calls(comm, layer, &ns[layer][round]));
	}
	for (int layer = 0; layer < LAYERS; layer++) {
		qsort(ns[layer], ROUNDS, sizeof ns[layer][0], call_layers_by_value);
		median[layer] = ns[layer][ROUNDS / 2];
	}
	return TUTTI_OK;
}

static void call_layers_print(const double ns[LAYERS])
{
	printf("all_reduce of 16 B: window %.0f ns, engine + %.0f ns, API + %.0f ns\n", ns[WINDOW],
	       ns[ENGINE] - ns[WINDOW], ns[API] - ns[ENGINE]);
	printf("all_reduce of 8 B: engine %.0f ns, trace %+.1f ns, recorder and fingerprint %+.1f "
	       "ns, together %+.1f ns\n",
	       ns[BARE], ns[TRACED] - ns[BARE], ns[RECORDED] - ns[TRACED], ns[RECORDED] - ns[BARE]);
	printf("by themselves, in a loop: trace %.1f ns, recorder and fingerprint %.1f ns, "
	       "together %.1f ns\n",
	       ns[LOOP_TRACE] - ns[LOOP], ns[LOOP_RECORD] - ns[LOOP], ns[LOOP_BOTH] - ns[LOOP]);
}

static int call_layers_failed(const char *why)
{
	fprintf(stderr, "call_layers: %s\n", why);
	return 1;
}

int main(void)
{
	struct trace_about about = {.name = 1, .size = 1, .way = "call_layers"};
	double median[LAYERS];
	tutti_comm *comm;

	if (tutti_init(&comm, NULL) != TUTTI_OK)
		return call_layers_failed(tutti_comm_error(NULL));
	if (!comm->engine->config.window)
		return call_layers_failed("these ranks share no window");
	recorder = recorder_new();
	if (!recorder || trace_open(&trace, &about, algorithm_name) != TUTTI_OK)
		return call_layers_failed("there is not enough memory");
	if (call_layers_measure(comm, median) != TUTTI_OK)
		return call_layers_failed(tutti_comm_error(NULL));
	if (tutti_rank(comm) == 0)
		call_layers_print(median);
	trace_close(trace);
	recorder_free(recorder);
	tutti_comm_destroy(comm);
	return 0;
}
