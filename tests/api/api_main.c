/* The program: api [--threads N | --local-ranks N] [--simd K|mixed] [--proof|--cuda] [--forced]
 * [--exact] [--quick] pass ...
 *
 * Without --threads it is one rank of a job that the environment describes, with --local-ranks it
 * is one of that job's processes, of N ranks each. */
#include "api.h"

#include "buffer.h"
#include "data.h"

#include "../cuda/gpu.h"

#ifdef API_PROOF
#include "../core/memory/proof_kind.h"
#endif

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARENA_BYTES ((size_t)24 << 20)
#define SMALL_ARENA ((size_t)2 << 20)

static const struct {
	const char *name;
	void (*run)(struct api *api);
} passes[] = {
	{"world", pass_world},
	{"small", pass_small},
	{"large", pass_large},
	{"bits", pass_bits},
	{"flight", pass_flight},
	{"zero_copy", pass_zero_copy},
	{"errors", pass_errors},
	{"survivors", pass_survivors},
	{"split", pass_split},
	{"messages", pass_messages},
	{"programs", pass_programs},
	{"gone_peer", pass_gone_peer},
	{"leave", pass_leave},
	{"death", pass_death},
	{"late", pass_late},
	{"differ", pass_differ},
	{"abort", pass_abort},
	{"split_nodes", pass_split_nodes},
	{"split_death", pass_split_death},
};
#define PASSES ((int)(sizeof passes / sizeof passes[0]))

/* The command line, for all ranks of this process. */
struct options {
	int threads;
	bool has_others; /* the job has other processes with as many threads */
	struct api api;  /* the flags and the seed */
	bool wanted[PASSES];
};

void api_fail(const struct api *api, const char *file, int line, const char *format, ...)
{
	char text[1000];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	fprintf(stderr, "%s:%d: rank %d of %d, SEED=%llu: %s\n", file, line, api->rank, api->size,
		(unsigned long long)api->seed, text);
	_exit(1);
}

void pass_world(struct api *api)
{
	tutti_comm *comm = api->comm;
	tutti_stats before = {0}, after = {0};
	float x = 1;

	CHECK(api, tutti_rank(comm) == api->rank && tutti_size(comm) == api->size,
	      "rank %d, size %d", tutti_rank(comm), tutti_size(comm));
	CHECK(api, tutti_local_size(comm) >= 1 && tutti_local_size(comm) <= api->size,
	      "local size %d", tutti_local_size(comm));
	CHECK(api, tutti_local_rank(comm) >= 0 && tutti_local_rank(comm) < tutti_local_size(comm),
	      "local rank %d", tutti_local_rank(comm));
	CHECK(api, tutti_node_rank(comm) >= 0 && tutti_node_rank(comm) < tutti_num_nodes(comm),
	      "node %d of %d", tutti_node_rank(comm), tutti_num_nodes(comm));
	CHECK(api, tutti_comm_status(comm) == TUTTI_OK, "status %d", (int)tutti_comm_status(comm));
	CHECK(api, tutti_comm_failed(comm, NULL, 0) == 0, "failed ranks");
	CHECK(api, strlen(tutti_version()) >= 5, "version '%s'", tutti_version());
	CHECK_OK(api, tutti_comm_stats(comm, &before));
	CHECK_OK(api, tutti_all_reduce(&x, &x, 1, TUTTI_F32, TUTTI_SUM, comm, NULL));
	CHECK(api, x == (float)api->size, "%d ones are %g", api->size, (double)x);
	CHECK_OK(api, tutti_comm_stats(comm, &after));
	CHECK(api, after.collectives == before.collectives + 1, "%llu collectives, then %llu",
	      (unsigned long long)before.collectives, (unsigned long long)after.collectives);
}

/* Without the large calls ThreadSanitizer, which marks every byte of it, gets a smaller one. */
static size_t arena_bytes(const struct options *options)
{
#if defined(__SANITIZE_THREAD__)
	for (int i = 0; i < PASSES; i++)
		if (options->wanted[i] && passes[i].run == pass_large)
			return ARENA_BYTES;
	return SMALL_ARENA;
#else
	(void)options;
	return ARENA_BYTES;
#endif
}

/* Of each thread they have a dozen streams, which a GPU's queues do not hold for many. */
static bool is_too_much(const struct options *options, int pass)
{
	int n = options->threads;

	return passes[pass].run == pass_programs && options->api.device == BUFFER_CUDA && n > 0 &&
	       gpu_threads(n, 7) < n;
}

static void leave_out(const struct api *api, const char *pass)
{
	if (api->rank == 0)
		printf("left out: the pass %s, of %d threads: their streams are more than the "
		       "GPUs' "
		       "queues\n",
		       pass, api->size);
}

static void run_passes(const struct options *options, tutti_comm *comm)
{
	struct api api = options->api;

	api.comm = comm;
	api.rank = tutti_rank(comm);
	api.size = tutti_size(comm);
	api.local_ranks = options->threads ? options->threads : 1;
	api.shared = api.seed;
	api.own = api.seed + 1000003 * ((uint64_t)api.rank + 1);
	CHECK(&api, api.size <= API_RANKS, "at most %d ranks", API_RANKS);
	if (api.device == BUFFER_CUDA) {
		api.gpu = api.rank % gpu_count(); /* tutti_init_all's, too */
		gpu_use(api.gpu);
		api.stream = gpu_stream();
	}
	buffer_arena_open(&api, arena_bytes(options));
	for (int i = 0; i < PASSES; i++)
		if (options->wanted[i] && is_too_much(options, i))
			leave_out(&api, passes[i].name);
		else if (options->wanted[i])
			passes[i].run(&api);
	if (api.comm == NULL)
		return; /* the last pass has ended it */
	CHECK_OK(&api, tutti_barrier(comm, NULL));
	if (api.arena)
		buffer_arena_close(&api);
	if (api.stream)
		gpu_stream_free(api.stream);
	tutti_comm_destroy(comm);
}

struct thread {
	const struct options *options;
	tutti_comm *comm;
	pthread_t id;
};

static void *thread_main(void *arg)
{
	struct thread *thread = arg;
	run_passes(thread->options, thread->comm);
	return NULL;
}

static void run_threads(const struct options *options)
{
	struct thread threads[API_RANKS];
	tutti_comm *comms[API_RANKS];
	int n = options->threads;
	tutti_config config = {.local_ranks = options->has_others ? n : 0};

	CHECK(&options->api, n >= 1 && n <= API_RANKS, "--threads %d", n);
	if (options->api.device == BUFFER_CUDA)
		gpu_use(options->has_others ? atoi(getenv("RANK")) * n % gpu_count() : 0);
	CHECK_OK(&options->api, tutti_init_all(comms, n, &config));
	for (int i = 0; i < n; i++) {
		int rank = options->has_others ? atoi(getenv("RANK")) * n + i : i;
		CHECK(&options->api, tutti_rank(comms[i]) == rank, "communicator %d is rank %d", i,
		      tutti_rank(comms[i]));
		threads[i] = (struct thread){.options = options, .comm = comms[i]};
		int error = pthread_create(&threads[i].id, NULL, thread_main, &threads[i]);
		CHECK(&options->api, error == 0, "pthread_create: %s", strerror(error));
	}
	for (int i = 0; i < n; i++)
		pthread_join(threads[i].id, NULL);
}

static void usage(const char *argument)
{
	fprintf(stderr,
		"'%s'? api [--threads N | --local-ranks N] [--proof|--cuda] [--forced] [--exact] "
		"[--quick] pass "
		"...\n",
		argument);
	exit(2);
}

static void use_proof(struct options *options)
{
#ifdef API_PROOF
	options->api.device = BUFFER_PROOF;
	CHECK_OK(&options->api, proof_kind_use(options->api.seed));
#else
	(void)options;
	usage("--proof without the objects");
#endif
}

static void use_cuda(struct options *options)
{
	if (gpu_open()) {
		options->api.device = BUFFER_CUDA;
		return;
	}
	fprintf(stderr, "there is no CUDA driver, or no device\n");
	exit(77);
}

/* The set of that number among the CPU's; in turn, by ranks and sets, where it is "mixed". */
static void use_simd(struct options *options, const char *which)
{
	static const char *const all[] = {"base", "avx2", "avx512", "avx512_bf16", "avx512_fp16"};
	const char *sets[5], *rank = getenv("RANK");
	size_t n = 0, at = (size_t)atoi(strcmp(which, "mixed") == 0 && rank ? rank : which);
	tutti_comm *alone;

	for (size_t i = 0; i < 5; i++) {
		setenv("TUTTI_SIMD", all[i], 1);
		if (tutti_init_all(&alone, 1, NULL) == TUTTI_OK) {
			tutti_comm_destroy(alone);
			sets[n++] = all[i];
		}
	}
	CHECK(&options->api, n > 0, "no instructions: %s", tutti_comm_error(NULL));
	setenv("TUTTI_SIMD", sets[at % n], 1);
	fprintf(stderr, "TUTTI_SIMD=%s\n", sets[at % n]);
}

static void parse_pass(struct options *options, const char *name)
{
	for (int i = 0; i < PASSES; i++) {
		if (strcmp(passes[i].name, name) == 0) {
			options->wanted[i] = true;
			return;
		}
	}
	usage(name);
}

static void parse(struct options *options, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
			options->threads = atoi(argv[++i]);
		else if (strcmp(argv[i], "--local-ranks") == 0 && i + 1 < argc) {
			options->threads = atoi(argv[++i]);
			options->has_others = true;
		} else if (strcmp(argv[i], "--simd") == 0 && i + 1 < argc)
			use_simd(options, argv[++i]);
		else if (strcmp(argv[i], "--proof") == 0)
			use_proof(options);
		else if (strcmp(argv[i], "--cuda") == 0)
			use_cuda(options);
		else if (strcmp(argv[i], "--forced") == 0)
			options->api.forced = true;
		else if (strcmp(argv[i], "--exact") == 0)
			options->api.exact = true;
		else if (strcmp(argv[i], "--quick") == 0)
			options->api.quick = true;
		else
			parse_pass(options, argv[i]);
	}
}

int main(int argc, char **argv)
{
	struct options options = {.api = {.rank = -1}};
	const char *seed = getenv("SEED"), *rank = getenv("RANK");
	tutti_comm *comm;

	data_init();
	options.api.seed = seed ? strtoull(seed, NULL, 0) : 1;
	parse(&options, argc, argv);
	if (options.threads) {
		run_threads(&options);
		return 0;
	}
	if (options.api.device == BUFFER_CUDA)
		gpu_use(rank ? atoi(rank) % gpu_count() : 0);
	CHECK_OK(&options.api, tutti_init(&comm, NULL));
	run_passes(&options, comm);
	return 0;
}
