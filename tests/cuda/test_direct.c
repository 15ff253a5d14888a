/* slow: 15 s */
/* Messages from one GPU's memory to another's, over a fake of RDMA devices that reach it by
 * dma-bufs: bytes that go astray, or that go through host memory after all; a rank whose driver or
 * adapter refuses; memory that was freed and handed out again; an adapter that still writes into
 * memory which the library has given back. The ranks are threads, on two emulated nodes.
 *
 * test_direct [calls|refused|flushed|adapter]: every call alone, as the environment has it; where
 * one rank's driver gives no dma-buf; where what adapters write has to be flushed; where the
 * adapter takes no dma-buf. */
#include "direct_calls.h"
#include "gpu.h"

#include "tests/cuda/driver/dma_buf.h"
#include "tests/limit.h"
#include "tests/ports.h"
#include "tests/random.h"
#include "tests/verbs/fake/fake_verbs.h"

#include "core/clock.h"
#include "core/env.h"

#include <tutti/tutti.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit.h"

static bool has_no_dma_buf; /* the adapter */
static struct fake_cuda_counts (*count_cuda)(void);

/* Which node the thread that makes a communicator is on: the environment is the process's. */
static _Thread_local int node;
tutti_status __real_env_load(struct env *env);
tutti_status __wrap_env_load(struct env *env);
tutti_status __wrap_env_load(struct env *env)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	char name[16];

	snprintf(name, sizeof name, "node%d", node);
	pthread_mutex_lock(&lock);
	setenv("TUTTI_HOST_ID", name, 1);
	tutti_status status = __real_env_load(env);
	pthread_mutex_unlock(&lock);
	return status;
}

static void meet(const struct one *r)
{
	pthread_barrier_wait(&r->w->barrier);
}

static void open_one(struct one *r)
{
	size_t bytes = (size_t)r->w->size * MOST + SLACK;

	gpu_use(r->rank % gpu_count());
	r->host = malloc(bytes);
	r->send = gpu_alloc(bytes);
	r->recv = gpu_alloc(bytes);
	r->stream = gpu_stream();
}

static void close_one(struct one *r)
{
	gpu_stream_free(r->stream);
	gpu_free(r->send);
	gpu_free(r->recv);
	free(r->host);
}

static void *run_one(void *arg)
{
	struct one *r = arg;
	tutti_config config = {.rank = r->rank,
			       .world_size = r->w->size,
			       .rendezvous = r->w->meeting,
			       .device = r->rank % gpu_count() + 1,
			       .timeout_ms = 60000};

	node = r->rank * r->w->nodes / r->w->size;
	open_one(r);
	direct_well(r, tutti_init(&r->comm, &config), "init", 0);
	r->w->body(r);
	tutti_comm_destroy(r->comm);
	close_one(r);
	return NULL;
}

static void run(int size, void (*body)(struct one *))
{
	static int runs;
	struct world w = {.size = size, .nodes = 2, .body = body};
	struct one ones[RANKS_MOST];
	struct fake_config config;

	fake_config_roce(&config, direct_seed);
	config.delays = 4;
	config.device[0].has_no_dma_buf = has_no_dma_buf;
	fake_start(&config);
	snprintf(w.meeting, sizeof w.meeting, "tcp://127.0.0.1:%d", test_ports() + runs++);
	pthread_barrier_init(&w.barrier, NULL, (unsigned)size);
	for (int r = 0; r < size; r++) {
		ones[r] = (struct one){.w = &w, .rank = r};
		assert_int_equal(pthread_create(&ones[r].thread, NULL, run_one, &ones[r]), 0);
	}
	for (int r = 0; r < size; r++)
		pthread_join(ones[r].thread, NULL);
	pthread_barrier_destroy(&w.barrier);
	assert_true(fake_is_clean());
}

/* A call by all ranks. Returns how many bytes went between host and device memory meanwhile. */
static unsigned long long make_call(const struct one *r, enum what what, size_t bytes, size_t at,
				    bool in_stream)
{
	tutti_call call = {.stream = r->stream};

	direct_fill(r, what, bytes, at);
	meet(r);
	unsigned long long before = count_cuda().host_copies;
	meet(r);
	direct_well(r, direct_issue(r, what, bytes, at, in_stream ? &call : NULL),
		    direct_names[what], bytes);
	gpu_sync(r->stream);
	meet(r);
	unsigned long long after = count_cuda().host_copies;
	meet(r);
	direct_check(r, what, bytes, at);
	return after - before;
}

static size_t place_of(enum what what, uint64_t *random)
{
	size_t at = random_below(random, 64);

	return what < COPYING ? at | 1 : at / 4 * 4;
}

/* The same sizes and places on all ranks. */
static void every_call(struct one *r)
{
	static const size_t sizes[] = {0, 1, 3, 100, 4097, 70001, MOST - 3};
	uint64_t random = direct_seed;

	for (int what = 0; what < WHATS; what++)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
			make_call(r, (enum what)what, sizes[i], place_of((enum what)what, &random),
				  i % 2);
}

/* Algorithms whose messages are of chunks that lie side by side take nothing through host memory.
 */
static void no_copies(struct one *r)
{
	static const enum what whats[] = {ALL_GATHER, BROADCAST,  ALL_TO_ALL,
					  MESSAGES,   ALL_REDUCE, REDUCE_SCATTER};

	for (size_t i = 0; i < sizeof whats / sizeof *whats; i++) {
		unsigned long long copied = make_call(r, whats[i], 70001, 4, i % 2);
		if (copied)
			fprintf(stderr, "%s: %llu bytes went through host memory\n",
				direct_names[whats[i]], copied);
		direct_must(r, copied == 0, "no byte goes through host memory", 70001);
	}
}

/* A recv behind its stream's earlier work, which is held until all has moved that does not wait for
 * it. The message has been sent. */
static void held_recv(struct one *r, size_t bytes)
{
	int size = r->w->size, next = (r->rank + 1) % size, before = (r->rank + size - 1) % size;
	CUstream other = gpu_stream();
	tutti_work *work = NULL;
	tutti_call call = {.stream = r->stream}, handled = {.stream = other, .work = &work};
	size_t all = (size_t)size * bytes + SLACK;
	uint8_t *garbage = gpu_alloc_pinned(all);
	_Atomic uint32_t *gate = gpu_alloc_pinned(sizeof *gate);
	CUdeviceptr word;

	direct_fill(r, MESSAGES, bytes, 0);
	memset(garbage, DIRECT_GARBAGE, all);
	atomic_store(gate, 0);
	GPU(mem_host_get_device_pointer, &word, (void *)(uintptr_t)gate, 0);
	GPU(stream_wait_value32, r->stream, word, 1, CU_STREAM_WAIT_VALUE_EQ);
	gpu_copy_in(r->stream, r->recv, garbage, all);
	direct_well(r, tutti_send(r->send, bytes, TUTTI_U8, next, r->comm, &handled), "send",
		    bytes);
	direct_well(r, tutti_recv(r->recv, bytes, TUTTI_U8, before, r->comm, &call), "recv", bytes);
	for (int i = 0; i < 3; i++)
		direct_well(r, tutti_barrier(r->comm, NULL), "barrier", 0);
	if (r->rank == 0)
		fake_settle();
	meet(r);
	atomic_store(gate, 1);
	gpu_sync(r->stream);
	direct_well(r, tutti_work_wait(&work, 0), "the send", bytes);
	direct_check(r, MESSAGES, bytes, 0);
	meet(r);
	gpu_stream_free(other);
	gpu_free_pinned(garbage);
	gpu_free_pinned((void *)(uintptr_t)gate);
}

static void held(struct one *r)
{
	make_call(r, ALL_REDUCE, 4096, 0, false); /* loads kernels */
	for (int i = 0; i < 5; i++)
		held_recv(r, 70000);
}

/* What is freed may be handed out again at the same address: its mapping is of no use then. */
static void freed(struct one *r)
{
	uint8_t *kept[2] = {r->send, r->recv};
	const size_t bytes = 70000, all = (size_t)r->w->size * bytes + SLACK;
	CUdeviceptr last[2] = {0}, now[2];

	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 2; i++)
			GPU(mem_alloc, &now[i], all);
		for (int i = 0; i < 2; i++)
			direct_must(r, round == 0 || now[i] == last[i], "the address is the same",
				    all);
		r->send = (uint8_t *)(uintptr_t)now[0];
		r->recv = (uint8_t *)(uintptr_t)now[1];
		make_call(r, ALL_GATHER, bytes, 0, false);
		make_call(r, MESSAGES, bytes, 0, false);
		make_call(r, ALL_REDUCE, bytes, 0, false);
		for (int i = 0; i < 2; i++) {
			GPU(mem_free, now[i]);
			last[i] = now[i];
		}
	}
	r->send = kept[0];
	r->recv = kept[1];
}

/* More allocations than stay mapped; and those that were freed go when others come. */
static void many(struct one *r)
{
	enum { BUFFERS = 100 };
	uint8_t *kept = r->recv;
	CUdeviceptr buffers[BUFFERS];
	const size_t bytes = 20000, all = (size_t)r->w->size * bytes + SLACK;

	for (int i = 0; i < BUFFERS; i++) {
		GPU(mem_alloc, &buffers[i], all);
		r->recv = (uint8_t *)(uintptr_t)buffers[i];
		make_call(r, ALL_GATHER, bytes, 0, false);
	}
	meet(r);
	int most = r->w->size * (64 + 8 * r->w->size);
	direct_must(r, fake_count().regions <= most, "so many are mapped and no more", all);
	for (int i = 0; i < BUFFERS; i++)
		GPU(mem_free, buffers[i]);
	meet(r);
	int before = fake_count().regions;
	r->recv = kept;
	for (int i = 0; i < 80; i++)
		make_call(r, ALL_GATHER, bytes, 0, false);
	direct_must(r, fake_count().regions < before - r->w->size * 30, "what was freed goes", all);
	meet(r);
}

/* Rank 1 does not take part in a call, and aborts at some moment of it: afterwards no adapter
 * writes into any buffer of the call. */
static void aborted(struct one *r)
{
	const size_t bytes = MOST / 4, all = (size_t)r->w->size * bytes + SLACK;
	uint64_t random = direct_seed + (uint64_t)r->rank;

	make_call(r, ALL_GATHER, bytes, 0, false);
	direct_fill(r, ALL_GATHER, bytes, 0);
	meet(r);
	if (r->rank == 1) {
		for (uint64_t i = random_below(&random, 200); i > 0; i--)
			fake_count(); /* which takes a moment */
		tutti_comm_abort(r->comm);
	} else {
		tutti_status status = direct_issue(r, ALL_GATHER, bytes, 0, NULL);
		direct_must(r, status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_PEER, "it fails",
			    bytes);
	}
	memset(r->host, 0x33, all);
	gpu_write(r->recv, r->host, all);
	meet(r);
	if (r->rank == 0)
		fake_settle();
	meet(r);
	gpu_read(r->host, r->recv, all);
	for (size_t i = 0; i < all; i++)
		direct_must(r, r->host[i] == 0x33, "nothing is written any more", i);
}

/* How often a text stands in what this process has logged since begin. */
static int log_file, old_stderr;

static void log_begin(void)
{
	setenv("TUTTI_LOG", "info", 1);
	log_file = memfd_create("log", MFD_CLOEXEC);
	fflush(stderr);
	old_stderr = dup(2);
	assert_true(log_file >= 0 && old_stderr >= 0 && dup2(log_file, 2) == 2);
}

static int log_end(const char *text)
{
	off_t bytes = lseek(log_file, 0, SEEK_END);
	char *all = calloc(1, (size_t)bytes + 1);
	int count = 0;

	fflush(stderr);
	dup2(old_stderr, 2);
	close(old_stderr);
	unsetenv("TUTTI_LOG");
	assert_int_equal(pread(log_file, all, (size_t)bytes, 0), bytes);
	close(log_file);
	for (const char *at = all; (at = strstr(at, text)); at++)
		count++;
	free(all);
	return count;
}

/* Rank 1 copies through host memory, and says so once; the others need not. */
static void test_refused(void **state)
{
	log_begin();
	run(3, every_call);
	long from = fake_count().from_device, into = fake_count().into_device;
	int said = log_end("copies in host memory");
	assert_true(from > 0 && into > 0);
	assert_int_equal(said, 1);
	run(8, every_call);
	run(3, held);
}

/* What tutti-info says of long messages is what they do. */
static void ways(struct one *r)
{
	const char *cuda = getenv("TUTTI_CUDA");
	const char *far = has_no_dma_buf ? "copies" : "adapters";

	for (int peer = 0; peer < r->w->size; peer++) {
		const char *way = direct_way(r->comm, peer);
		bool is_far = peer * r->w->nodes / r->w->size != node;
		bool is_right = !is_far || strcmp(way, far) == 0;

		if (!is_far && peer != r->rank && strcmp(cuda, "2") == 0)
			is_right = strcmp(way, "stages") == 0;
		direct_must(r, is_right, "the way of long messages", (size_t)peer);
	}
}

static void test_adapter(void **state)
{
	has_no_dma_buf = true;
	run(4, ways);
	log_begin();
	run(3, every_call);
	assert_int_equal(log_end("registers no dma-buf"), 3);
	assert_int_equal(fake_count().from_device + fake_count().into_device, 0);
}

static void flushed(struct one *r)
{
	meet(r);
	unsigned before = count_cuda().flushes;
	make_call(r, MESSAGES, 70001, 1, false);
	unsigned after = count_cuda().flushes;
	direct_must(r, after - before == (unsigned)r->w->size, "each receive is flushed", 70001);
	meet(r);
	make_call(r, BROADCAST, 70001, 1, false);
	direct_must(r, count_cuda().flushes - after >= (unsigned)r->w->size - 1,
		    "and so are those of a plan", 70001);
}

static void test_flushed(void **state)
{
	run(4, flushed);
	run(3, every_call);
}

static void test_held(void **state)
{
	run(2, held);
	run(5, held);
}

static void test_freed(void **state)
{
	run(2, freed);
	run(4, freed);
}

static void test_many(void **state)
{
	run(2, many);
}

static void test_aborted(void **state)
{
	for (int round = 0; round < 10; round++, direct_seed++)
		run(3 + round % 3, aborted);
}

static void test_every_call(void **state)
{
	run(4, ways);
	run(2, every_call);
	run(3, every_call);
	run(8, every_call);
	assert_true(fake_count().into_device > 0);
}

static void test_no_copies(void **state)
{
	setenv("TUTTI_ALGO",
	       "all_gather=ring,broadcast=tree,all_to_all=pairwise,all_reduce=ring,"
	       "reduce_scatter=ring",
	       1);
	run(2, no_copies);
	run(4, no_copies);
	run(8, no_copies);
	setenv("TUTTI_ALGO",
	       "all_gather=direct,broadcast=knomial,all_to_all=direct,all_reduce=direct,"
	       "reduce_scatter=direct",
	       1);
	run(3, no_copies);
	unsetenv("TUTTI_ALGO");
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest calls[] = {cmocka_unit_test(test_every_call)};
	static const struct CMUnitTest refused[] = {cmocka_unit_test(test_refused)};
	static const struct CMUnitTest adapter[] = {cmocka_unit_test(test_adapter)};
	static const struct CMUnitTest flushes[] = {cmocka_unit_test(test_flushed)};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_call), cmocka_unit_test(test_no_copies),
		cmocka_unit_test(test_held),       cmocka_unit_test(test_freed),
		cmocka_unit_test(test_many),       cmocka_unit_test(test_aborted),
	};
	const char *given = getenv("TEST_SEED");
	void *symbol;

	test_limit(300);
	direct_seed = given ? strtoull(given, NULL, 0) : clock_now_ns() % 1000000;
	printf("TEST_SEED=%llu\n", (unsigned long long)direct_seed);
	if (!gpu_open()) {
		puts("there is no CUDA driver, or no device");
		return 77;
	}
	symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_cuda_count");
	if (!symbol)
		return 1;
	memcpy(&count_cuda, &symbol, sizeof symbol);
	setenv("TUTTI_WINDOW", "0", 1);
	setenv("TUTTI_TRANSPORTS", "verbs", 0);
	setenv("TUTTI_CUDA", "1", 0);
	const char *only = argc > 1 ? argv[1] : "";
	if (strcmp(only, "calls") == 0)
		return cmocka_run_group_tests(calls, NULL, NULL);
	if (strcmp(only, "refused") == 0)
		return cmocka_run_group_tests(refused, NULL, NULL);
	if (strcmp(only, "adapter") == 0)
		return cmocka_run_group_tests(adapter, NULL, NULL);
	if (strcmp(only, "flushed") == 0)
		return cmocka_run_group_tests(flushes, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
