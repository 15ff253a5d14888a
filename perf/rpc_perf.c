/* rpc_perf: calls of rank 0 on rank 1 through tutti_rpc_call beside a send and its answer by
 * tutti_send and tutti_recv, UCX's active messages and gRPC, where these were found at build time;
 * all in turns, round by round. Every answer is compared. */
#include "rpc_ours.h"

#include "load.h"

#include "core/program/line.h"
#include "core/program/output.h"

#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEBI = 1 << 20, CONTENDERS_MAX = 5 };

struct setting {
	int ranks, rounds, calls, mib, load;
};
static struct setting setting = {.rounds = 8, .calls = 2000, .mib = 64};

#define AT(member) .at = offsetof(struct setting, member)

static const struct line_option rpc_perf_options[] = {
	{"ranks", 0, "2", AT(ranks), 2, 2, NULL,
	 "starts 2 ranks of itself; without it a launcher has"},
	{"rounds", 0, "N", AT(rounds), 1, MEASURE_ROUNDS, NULL,
	 "counted ones, 1 to 1000 (8); one before them is not"},
	{"calls", 0, "N", AT(calls), 64, 1000000, NULL,
	 "short calls of each round and contender, 64 to 1000000 (2000)"},
	{"mib", 0, "N", AT(mib), 1, 1024, NULL, "of the longest payload, 1 to 1024 (64)"},
	{"load", 0, "N", AT(load), 0, LOAD_MAX, NULL, "N busy processes beside the ranks (0)"},
	{0},
};
static const char rpc_perf_about[] =
	"Rank 0 calls rank 1: round trips of 64 bytes, calls a second with 1 to 64 in flight, and\n"
	"MB/s of long payloads, as medians of the rounds.\n"
	"Exit code: 0; 1 for a wrong answer; 2 for a line that cannot be understood; 3 when a\n"
	"call failed.";
static const struct line_table rpc_perf_line = {.options = rpc_perf_options,
						.about = rpc_perf_about};

/* A short payload, which differs from call to call. */
static void rpc_perf_fill(uint8_t *data, uint64_t number)
{
	for (size_t i = 0; i < RPC_PERF_SHORT; i += sizeof number, number = number * 5 + 1)
		memcpy(data + i, &number, sizeof number);
}

static void rpc_perf_change(uint8_t *data, size_t bytes, uint64_t number)
{
	size_t step = bytes / RPC_PERF_SAMPLES;

	for (size_t i = 0; i < RPC_PERF_SAMPLES; i++)
		memcpy(data + i * step, &number, sizeof number);
}

/* Rank 1's next job. */
static sem_t has_job;
static struct job {
	int contender, calls;
	size_t bytes;
} job;

static tutti_status rpc_perf_next(void *arg, const tutti_rpc_request *request,
				  tutti_rpc_reply *reply)
{
	(void)arg;
	(void)reply;
	memcpy(&job, request->data, sizeof job);
	sem_post(&has_job);
	return TUTTI_OK;
}

static const struct rpc_contender *contenders[CONTENDERS_MAX] = {
	&rpc_perf_messages, &rpc_perf_calls, &rpc_perf_pool,
#ifdef PERF_UCX
	&rpc_perf_ucx,
#endif
#ifdef PERF_GRPC
	&rpc_perf_grpc,
#endif
};

/* ---- rounds ---- */

static void rpc_perf_give_job(int contender, int calls, size_t bytes)
{
	struct job given = {contender, calls, bytes};
	tutti_rpc_piece piece = {&given, sizeof given};

	if (contender < 0 || contenders[contender]->serve)
		MUST(tutti_rpc_call(rpc_perf_rpc, 1, "next", &piece, 1, NULL, NULL));
}

static void rpc_perf_fail_if(bool failed, const char *who)
{
	if (!failed)
		return;
	fprintf(stderr, "rpc_perf: %s has failed\n", who);
	exit(3);
}

/* What is called: short calls, so many of them in flight, or long ones. */
struct kind {
	int calls, in_flight;
	uint8_t *data; /* NULL: short */
	size_t bytes;
};

/* The program ends if it is wrong. data: what call number i sent. */
static void rpc_perf_check(const char *who, const void *answer, const uint8_t *data,
			   const struct kind *k, int i)
{
	uint64_t digest = k->data ? rpc_perf_digest(data, k->bytes) : 0;

	if (memcmp(answer, k->data ? (void *)&digest : data, rpc_perf_answer_bytes(k->bytes)) == 0)
		return;
	fprintf(stderr, "rpc_perf: %s: the answer of call %d, with %zu bytes, is wrong\n", who, i,
		k->bytes);
	exit(1);
}

static int rpc_perf_call_each(const struct rpc_contender *c, const struct kind *k)
{
	static uint8_t out[RPC_PERF_IN_FLIGHT][RPC_PERF_SHORT];
	uint8_t answer[RPC_PERF_SHORT];
	bool is_plain = k->in_flight == 1 && c->call;

	for (int i = 0; i < k->calls + k->in_flight; i++) {
		int slot = i % k->in_flight, ended = i - k->in_flight;
		const uint8_t *data = k->data ? k->data : out[slot];
		if (ended >= 0 && !is_plain && c->end(slot, answer))
			return -1;
		if (ended >= 0)
			rpc_perf_check(c->name, answer, data, k, ended);
		if (i >= k->calls)
			continue;
		if (!k->data)
			rpc_perf_fill(out[slot], (uint64_t)i);
		if (is_plain ? c->call(data, k->bytes, answer) : c->begin(slot, data, k->bytes))
			return -1;
	}
	return 0;
}

/* Seconds of a call; 0: the contender has no such calls. */
static double rpc_perf_time(int contender, const struct kind *k, uint64_t number)
{
	const struct rpc_contender *c = contenders[contender];
	bool has = k->data ? !c->is_short_only : k->in_flight == 1 || c->begin;

	if (!has)
		return 0;
	if (k->data)
		rpc_perf_change(k->data, k->bytes, number);
	rpc_perf_give_job(contender, k->calls, k->bytes);
	double begin = measure_seconds(CLOCK_MONOTONIC);
	rpc_perf_fail_if(rpc_perf_call_each(c, k), c->name);
	return (measure_seconds(CLOCK_MONOTONIC) - begin) / k->calls;
}

static double times[CONTENDERS_MAX][MEASURE_ROUNDS];

static void rpc_perf_measure(const struct kind *k)
{
	for (int round = -1; round < setting.rounds; round++)
		for (int c = 0; c < CONTENDERS_MAX && contenders[c]; c++)
			times[c][round < 0 ? 0 : round] =
				rpc_perf_time(c, k, (uint64_t)(round + 2) * 1000 + (uint64_t)c);
}

/* Of what each call is worth; 0: in microseconds. */
static void rpc_perf_print_row(const char *what, double of)
{
	printf("%-20s", what);
	for (int c = 0; c < CONTENDERS_MAX && contenders[c]; c++) {
		double m = measure_median(times[c], setting.rounds);
		if (m > 0)
			printf(" %12.2f", of > 0 ? of / m : m * 1e6);
		else
			printf(" %12s", "-");
	}
	printf("\n");
	output_flush();
}

static void rpc_perf_measure_short(int in_flight)
{
	char what[32];

	rpc_perf_measure(&(struct kind){setting.calls, in_flight, NULL, RPC_PERF_SHORT});
	if (in_flight == 1)
		rpc_perf_print_row("round trip, us", 0);
	snprintf(what, sizeof what, "calls/s, %d in flight", in_flight);
	rpc_perf_print_row(what, 1);
}

static void rpc_perf_measure_long(size_t bytes)
{
	struct kind k = {bytes > 8 * MEBI ? 1 : 8, 1, calloc(1, bytes), bytes};
	char what[32];

	rpc_perf_fail_if(!k.data, "the memory of a payload");
	rpc_perf_measure(&k);
	snprintf(what, sizeof what, "MB/s, %zu MiB", bytes / MEBI);
	rpc_perf_print_row(what, (double)bytes / 1e6);
	free(k.data);
}

static void rpc_perf_print_head(void)
{
	printf("# rpc_perf of Tutti %s, %s; %d rounds of %d calls, %d busy processes\n",
	       tutti_version(), tutti_revision(), setting.rounds, setting.calls, setting.load);
#ifdef PERF_UCX
	printf("# ucx: active messages of %s\n", rpc_perf_ucx.version());
#else
	printf("# no ucx: libucx-dev was not found when this was built\n");
#endif
#ifdef PERF_GRPC
	printf("# grpc: %s\n", rpc_perf_grpc.version());
#else
	printf("# no grpc: libgrpc++-dev was not found when this was built\n");
#endif
	printf("# messages: tutti_send and tutti_recv; rpc: TUTTI_RPC_SHORT; rpc_pool: a thread "
	       "runs it\n%-20s",
	       "#");
	for (int c = 0; c < CONTENDERS_MAX && contenders[c]; c++)
		printf(" %12s", contenders[c]->name);
	printf("\n");
}

static void rpc_perf_call_all(void)
{
	rpc_perf_print_head();
	for (int in_flight = 1; in_flight <= RPC_PERF_IN_FLIGHT; in_flight *= 2)
		rpc_perf_measure_short(in_flight);
	rpc_perf_measure_long(MEBI);
	if (setting.mib > 1)
		rpc_perf_measure_long((size_t)setting.mib * MEBI);
	rpc_perf_give_job(-1, 0, 0);
}

static void rpc_perf_serve_all(void)
{
	for (;;) {
		while (sem_wait(&has_job) != 0)
			;
		struct job now = job;
		if (now.contender < 0)
			return;
		rpc_perf_fail_if(contenders[now.contender]->serve(now.calls, now.bytes),
				 contenders[now.contender]->name);
	}
}

static void rpc_perf_connect_peers(int rank)
{
	static uint8_t address[RPC_PERF_ADDRESS];

	for (int c = 0; c < CONTENDERS_MAX && contenders[c]; c++) {
		if (!contenders[c]->listen)
			continue;
		if (rank == 1)
			rpc_perf_fail_if(contenders[c]->listen(address), contenders[c]->name);
		MUST(tutti_broadcast(address, address, sizeof address, TUTTI_U8, 1, rpc_perf_comm,
				     NULL));
		if (rank == 0)
			rpc_perf_fail_if(contenders[c]->connect(address), contenders[c]->name);
	}
}

static void rpc_perf_run(void)
{
	tutti_rpc_function functions[RPC_PERF_FUNCTIONS + 1] = {
		{.name = "next", .fn = rpc_perf_next, .flags = TUTTI_RPC_SHORT}};
	const tutti_rpc_config config = {.functions = functions,
					 .num_functions = RPC_PERF_FUNCTIONS + 1};
	struct load load = {0};
	int rank = tutti_rank(rpc_perf_comm);

	memcpy(functions + 1, rpc_perf_functions, sizeof rpc_perf_functions);
	MUST(tutti_rpc_create(&rpc_perf_rpc, rpc_perf_comm, &config));
	rpc_perf_connect_peers(rank);
	rpc_perf_fail_if(rank == 0 && setting.load && !load_start(&load, setting.load), "--load");
	if (rank == 0)
		rpc_perf_call_all();
	else
		rpc_perf_serve_all();
	load_stop(&load);
	MUST(tutti_rpc_shutdown(rpc_perf_rpc, 0));
	for (int c = 0; c < CONTENDERS_MAX && contenders[c]; c++)
		if (contenders[c]->close)
			contenders[c]->close();
	tutti_rpc_destroy(rpc_perf_rpc);
}

static int rpc_perf_take_part(int argc, char **argv)
{
	int code = line_parse(&rpc_perf_line, &setting, argc, argv);

	if (code >= 0)
		return code;
	sem_init(&has_job, 0, 0);
	MUST(tutti_init(&rpc_perf_comm, NULL));
	if (tutti_size(rpc_perf_comm) != 2)
		return line_wrong("it needs 2 ranks, not %d", tutti_size(rpc_perf_comm));
	rpc_perf_run();
	tutti_comm_destroy(rpc_perf_comm);
	output_flush();
	return output_is_well() ? 0 : 3;
}

int main(int argc, char **argv)
{
	return output_open() ? tutti_main(argc, argv, rpc_perf_take_part) : 3;
}
