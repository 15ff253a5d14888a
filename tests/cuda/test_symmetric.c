/* slow: 30 s */
/* tutti_mem_alloc's memory on GPUs: a part that another rank maps wrongly, a place that is not
 * found, so that bytes go through staging, or a number that is used twice. */
#include "gpu_ranks.h"

#include "collectives/comm/comm.h"
#include "cuda/channels.h"
#include "tests/limit.h"
#include "tests/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define RANKS 3
#define BYTES ((size_t)1 << 20)
#define CALLS 12

/* device_internal.h's, of which the channels are the first member. */
static struct cuda_channels *channels_of(const tutti_comm *comm)
{
	return *(struct cuda_channels **)(void *)comm->device;
}

static void check_place(const tutti_comm *comm, void *ptr, bool is_mapped)
{
	uint64_t place;

	gpu_rank_must(cuda_channels_place(channels_of(comm), ptr, &place), "place");
	if ((place != CHANNEL_NOWHERE) != is_mapped) {
		fprintf(stderr, "%p %s\n", ptr, is_mapped ? "is not mapped" : "is mapped");
		exit(1);
	}
}

static int32_t value(int rank, int call, size_t i)
{
	return (int32_t)((uint32_t)rank * 7919u + (uint32_t)call * 104729u + (uint32_t)i);
}

static int32_t sum(int call, size_t i)
{
	uint32_t s = 0;

	for (int r = 0; r < RANKS; r++)
		s += (uint32_t)value(r, call, i);
	return (int32_t)s;
}

/* A sum from anywhere in one block to anywhere in the other; where is drawn by each rank. */
static void one_call(tutti_comm *comm, int32_t *const blocks[2], int call, uint64_t *own, size_t n)
{
	static int32_t host[BYTES / 4];
	size_t room = BYTES / 4 - n;
	int32_t *send = blocks[call % 2] + random_below(own, room + 1);
	int32_t *recv = blocks[(call + 1) % 2] + random_below(own, room + 1);

	for (size_t i = 0; i < n; i++)
		host[i] = value(tutti_rank(comm), call, i);
	gpu_write(send, host, n * 4);
	gpu_rank_must(tutti_all_reduce(send, recv, n, TUTTI_I32, TUTTI_SUM, comm, NULL), "sum");
	gpu_read(host, recv, n * 4);
	for (size_t i = 0; i < n; i++)
		if (host[i] != sum(call, i)) {
			fprintf(stderr, "rank %d, call %d of %zu: element %zu is %d\n",
				tutti_rank(comm), call, n, i, host[i]);
			exit(1);
		}
}

static void check_zero(const void *ptr)
{
	static char host[BYTES];

	gpu_read(host, ptr, BYTES);
	for (size_t i = 0; i < BYTES; i++)
		if (host[i]) {
			fprintf(stderr, "byte %zu of new memory is %d\n", i, host[i]);
			exit(1);
		}
}

/* Of IPC handles a block serves a little less than its size, and no half of it. */
static void check_reuse(tutti_comm *comm)
{
	void *first, *less, *half;

	gpu_rank_must(tutti_mem_alloc(&first, 3 * BYTES, comm), "mem_alloc");
	gpu_rank_must(tutti_mem_free(first), "mem_free");
	gpu_rank_must(tutti_mem_alloc(&half, 3 * BYTES / 2, comm), "mem_alloc");
	gpu_rank_must(tutti_mem_alloc(&less, 2 * BYTES, comm), "mem_alloc");
	if (less != first || half == first) {
		fprintf(stderr, "of %p, %p took less and %p half\n", first, less, half);
		exit(1);
	}
	gpu_rank_must(tutti_mem_free(less), "mem_free");
	gpu_rank_must(tutti_mem_free(half), "mem_free");
}

/* Device memory that this rank's process has taken, and pieces that it holds or maps. */
struct held {
	size_t bytes;
	unsigned pieces; /* 0: the driver does not say */
};

static struct held held_now(void)
{
	struct held held = {0, 0};
	size_t left, total;

	GPU(mem_get_info, &left, &total);
	held.bytes = total - left;
	gpu_ask_emulated("fake_cuda_pieces", &held.pieces);
	return held;
}

static void check_held(struct held expected, const char *when)
{
	struct held now = held_now();

	if (now.bytes == expected.bytes && now.pieces == expected.pieces)
		return;
	fprintf(stderr, "%s: %zu bytes and %u pieces are held, and should be %zu and %u\n", when,
		now.bytes, now.pieces, expected.bytes, expected.pieces);
	exit(1);
}

/* Blocks come and go; of the others' the latest few stay mapped, until the communicator ends. */
static int come_and_go(int rank, int rounds)
{
	tutti_config config = {.device = rank % gpu_count() + 1};
	tutti_comm *comm;
	void *ptr;

	gpu_rank_must(tutti_init(&comm, &config), "init");
	struct held before = held_now(), with_views = before;
	for (int round = 0; round < rounds; round++) {
		gpu_rank_must(tutti_mem_alloc(&ptr, BYTES, comm), "mem_alloc");
		gpu_rank_must(tutti_mem_free(ptr), "mem_free");
		if (round == 0)
			with_views = held_now();
		check_held(with_views, "after a block");
	}
	if (with_views.bytes != before.bytes || with_views.pieces != before.pieces + RANKS - 1) {
		fprintf(stderr,
			"with others' blocks %zu bytes and %u pieces are held, before %zu and %u\n",
			with_views.bytes, with_views.pieces, before.bytes, before.pieces);
		return 1;
	}
	gpu_rank_must(tutti_barrier(comm, NULL), "barrier"); /* a view may be of a freed block */
	tutti_comm_destroy(comm);
	check_held(before, "after the communicator");
	return 0;
}

static int rank_main(int rank, int seed)
{
	tutti_config config = {.device = rank % gpu_count() + 1};
	uint64_t shared = (uint64_t)seed, own = (uint64_t)seed * 31 + (uint64_t)rank;
	tutti_comm *comm;
	void *blocks[2];

	gpu_rank_must(tutti_init(&comm, &config), "init");
	for (int round = 0; round < 3; round++) {
		for (int b = 0; b < 2; b++) {
			gpu_rank_must(tutti_mem_alloc(&blocks[b], BYTES, comm), "mem_alloc");
			check_zero(blocks[b]);
			check_place(comm, (char *)blocks[b] + BYTES - 1, true);
		}
		for (int call = 0; call < CALLS; call++)
			one_call(comm, (int32_t *const *)(void *)blocks, call, &own,
				 random_below(&shared, call % 2 ? 100 : BYTES / 8));
		/* Not all at once, and in any order. */
		gpu_rank_must(tutti_mem_free(blocks[rank % 2]), "mem_free");
		gpu_rank_must(tutti_mem_free(blocks[(rank + 1) % 2]), "mem_free");
	}
	check_place(comm, gpu_alloc(100), false);
	if (getenv("FAKE_CUDA_VMM"))
		check_reuse(comm);
	gpu_rank_must(tutti_mem_alloc(&blocks[0], 100, comm), "mem_alloc");
	tutti_comm_destroy(comm);
	gpu_rank_must(tutti_mem_free(blocks[0]), "mem_free after the end");
	return 0;
}

/* Ranks ask for different sizes. */
static int differ(int rank, int unused)
{
	tutti_config config = {.device = rank % gpu_count() + 1};
	tutti_comm *comm;
	void *ptr;

	(void)unused;
	gpu_rank_must(tutti_init(&comm, &config), "init");
	tutti_status status = tutti_mem_alloc(&ptr, rank == 1 ? 200 : 100, comm);
	tutti_comm_destroy(comm);
	return status == TUTTI_ERR_MISMATCH ? 0 : 1;
}

/* The settings of the fake driver; real GPUs have what they have. */
static void run_with(const char *const *settings, int (*body)(int rank, int arg), int arg)
{
	for (int i = 0; settings[i]; i += 2)
		setenv(settings[i], settings[i + 1], 1);
	gpu_ranks_run(RANKS, body, arg, 0);
	for (int i = 0; settings[i]; i += 2)
		unsetenv(settings[i]);
}

static void test_calls(void **state)
{
	static const char *const ways[][5] = {
		{NULL},
		{"FAKE_CUDA_VMM", "0", NULL},
		{"FAKE_CUDA_FDS", "0", "FAKE_CUDA_FABRIC", "1", NULL},
		{"FAKE_CUDA_FABRIC", "2", NULL},
		{"FAKE_CUDA_FDS", "0", "FAKE_CUDA_FABRIC", "2", NULL},
		{"FAKE_CUDA_FAULTS", "0:ipc=3", NULL},
		{"FAKE_CUDA_FAULTS", "0:ipc=3", "FAKE_CUDA_FABRIC", "1", NULL},
	};

	print_message("seed 7\n");
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		run_with(ways[i], rank_main, 7);
}

static void test_freed(void **state)
{
	static const char *const by_fd[] = {NULL}, *const by_fabric[] = {"FAKE_CUDA_FDS", "0",
									 "FAKE_CUDA_FABRIC", "1",
									 NULL};

	run_with(by_fd, come_and_go, 1000);
	run_with(by_fabric, come_and_go, 20);
}

static void test_differ(void **state)
{
	gpu_ranks_run(RANKS, differ, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_freed),
		cmocka_unit_test(test_differ),
	};

	test_limit(150);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
