/* no_tsan: its ranks are processes */
/* Long messages between GPUs that reach each other: bytes that are lost, on others' places or there
 * before the caller's stream has come to the recv; bytes that go by the host; a stage that is given
 * to two messages, or to none again; messages that keep each other out for ever. */
#include "gpu_ranks.h"

#include "collectives/comm/comm.h"
#include "collectives/p2p/p2p_internal.h"
#include "tests/limit.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

#define MOST     ((size_t)3 << 20) /* three times the stages of a rank */
#define PAST_END 64
#define GUARD    0xa5

static void must(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "not so: %s\n", what);
	exit(1);
}

static tutti_comm *join(int timeout_ms)
{
	tutti_config config = {.timeout_ms = timeout_ms};
	tutti_comm *comm;

	gpu_rank_must(tutti_init(&comm, &config), "init");
	return comm;
}

static uint64_t staged_by(const tutti_comm *comm)
{
	return comm->engine->p2p ? comm->engine->p2p->staged_bytes : 0;
}

static uint8_t value(int from, int to, int number, size_t i)
{
	return (uint8_t)(i * 7 + (i >> 8) * 13 + (i >> 16) * 29 + (size_t)from * 101 +
			 (size_t)to * 57 + (size_t)number * 31);
}

static void fill(uint8_t *host, int from, int to, int number, size_t n)
{
	for (size_t i = 0; i < n; i++)
		host[i] = value(from, to, number, i);
}

static void check(const uint8_t *host, int from, int to, int number, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (host[i] != value(from, to, number, i)) {
			fprintf(stderr, "message %d of rank %d to %d: byte %zu of %zu is %d\n",
				number, from, to, i, n, host[i]);
			exit(1);
		}
}

/* A buffer that begins at an odd address, with bytes behind it that nobody may write. */
struct buffer {
	uint8_t *base, *at, *host;
};

static struct buffer new_buffer(int shift)
{
	struct buffer b = {.base = gpu_alloc(MOST + 2 * PAST_END), .host = malloc(MOST + PAST_END)};

	b.at = b.base + shift;
	memset(b.host, GUARD, MOST + PAST_END);
	gpu_write(b.at, b.host, MOST + PAST_END);
	return b;
}

static void free_buffer(struct buffer *b)
{
	gpu_free(b->base);
	free(b->host);
}

static void check_buffer(const struct buffer *b, int from, int to, int number, size_t n)
{
	gpu_read(b->host, b->at, n + PAST_END);
	check(b->host, from, to, number, n);
	for (size_t i = n; i < n + PAST_END; i++)
		must(b->host[i] == GUARD, "bytes behind a message stay as they were");
}

static const size_t sizes[] = {16384, 16385, 70001, 262144, 1048577, MOST - 5};
#define N_SIZES (sizeof sizes / sizeof *sizes)

/* Every rank sends to every other one, all at once, with the receives of one half posted late. */
static int all_with_all(int rank, int n)
{
	tutti_comm *comm = join(50000);
	struct buffer out[N_SIZES], in[8][N_SIZES];
	tutti_work *works[2 * 8 * N_SIZES];
	size_t count = 0;
	uint64_t expected = 0;

	for (size_t k = 0; k < N_SIZES; k++) {
		out[k] = new_buffer((int)k % 3);
		fill(out[k].host, rank, 0, (int)k, sizes[k]);
		gpu_write(out[k].at, out[k].host, sizes[k]);
		for (int p = 0; p < n; p++)
			in[p][k] = new_buffer(((int)k + p) % 5);
	}
	for (int part = 0; part < 2; part++)
		for (int p = 0; p < n; p++)
			for (size_t k = 0; k < N_SIZES; k++) {
				tutti_call call = {.work = &works[count]};
				if (p == rank)
					continue;
				gpu_rank_must(part ^ (rank % 2)
						      ? tutti_recv(in[p][k].at, sizes[k], TUTTI_U8,
								   p, comm, &call)
						      : tutti_send(out[k].at, sizes[k], TUTTI_U8, p,
								   comm, &call),
					      "a message");
				expected += part == 0 && sizes[k] > P2P_EAGER_BYTES ? sizes[k] : 0;
				count++;
			}
	for (size_t i = 0; i < count; i++) {
		gpu_rank_must(tutti_work_wait(&works[i], 0), "wait");
	}
	for (int p = 0; p < n; p++)
		for (size_t k = 0; k < N_SIZES; k++)
			if (p != rank)
				check_buffer(&in[p][k], p, 0, (int)k, sizes[k]);
	must(staged_by(comm) == expected, "all long messages go from GPU to GPU");
	for (size_t k = 0; k < N_SIZES; k++) {
		free_buffer(&out[k]);
		for (int p = 0; p < n; p++)
			free_buffer(&in[p][k]);
	}
	tutti_comm_destroy(comm);
	return 0;
}

static void test_all_with_all(void **state)
{
	for (int n = 2; n <= 4; n++)
		gpu_ranks_run(n, all_with_all, n, 0);
}

/* One side on the host, in both directions; and messages of a rank to itself. */
static int mixed(int rank, int unused)
{
	size_t n = 700001;
	tutti_comm *comm = join(50000);
	struct buffer own = new_buffer(1);
	uint8_t *host = malloc(n);
	tutti_work *work, *received;
	tutti_call call = {.work = &work};
	int source = -1;
	tutti_call any = {.source = &source, .work = &received};

	(void)unused;
	fill(own.host, rank, 0, 9, n);
	gpu_write(own.at, own.host, n);
	gpu_rank_must(tutti_send(own.at, n, TUTTI_U8, 1 - rank, comm, &call), "from the GPU");
	gpu_rank_must(tutti_recv(host, n, TUTTI_U8, 1 - rank, comm, NULL), "to the host");
	gpu_rank_must(tutti_work_wait(&work, 0), "wait");
	check(host, 1 - rank, 0, 9, n);
	must(staged_by(comm) == 0, "what goes to the host is not staged");

	fill(host, rank, 0, 10, n);
	gpu_rank_must(tutti_send(host, n, TUTTI_U8, 1 - rank, comm, &call), "from the host");
	gpu_rank_must(tutti_recv(own.at, n, TUTTI_U8, TUTTI_ANY, comm, &any), "to the GPU");
	gpu_rank_must(tutti_work_wait(&received, 0), "wait");
	gpu_rank_must(tutti_work_wait(&work, 0), "wait");
	must(source == 1 - rank, "the source is named");
	gpu_read(host, own.at, n);
	check(host, 1 - rank, 0, 10, n);

	fill(own.host, rank, 0, 11, n);
	gpu_write(own.at, own.host, n);
	struct buffer other = new_buffer(2);
	gpu_rank_must(tutti_send(own.at, n, TUTTI_U8, rank, comm, &call), "to itself");
	gpu_rank_must(tutti_recv(other.at, n, TUTTI_U8, TUTTI_ANY, comm, &any), "from itself");
	gpu_rank_must(tutti_work_wait(&received, 0), "wait");
	gpu_rank_must(tutti_work_wait(&work, 0), "wait");
	must(source == rank, "it came from itself");
	check_buffer(&other, rank, 0, 11, n);
	gpu_rank_must(tutti_barrier(comm, NULL), "a recv from anybody needs somebody");
	free_buffer(&own);
	free_buffer(&other);
	free(host);
	tutti_comm_destroy(comm);
	return 0;
}

static void test_mixed(void **state)
{
	gpu_ranks_run(2, mixed, 0, 0);
}

enum { TOKENS = 200 };

/* The recv's stream is held: what its earlier work writes must come before the message. */
static int held(int rank, int unused)
{
	size_t n = 600007;
	tutti_comm *comm = join(50000);
	struct buffer b = new_buffer(0);
	CUstream stream = gpu_stream();
	tutti_call call = {.stream = stream}, short_call = {.tag = 1};
	_Atomic uint32_t *gate = gpu_alloc_pinned(sizeof *gate);
	uint8_t *pinned = gpu_alloc_pinned(n);
	CUdeviceptr word;
	int32_t token = 0;

	(void)unused;
	atomic_store(gate, 0);
	GPU(mem_host_get_device_pointer, &word, (void *)(uintptr_t)gate, 0);
	fill(pinned, rank, 0, 3, n);
	GPU(stream_wait_value32, stream, word, 1, CU_STREAM_WAIT_VALUE_EQ);
	gpu_copy_in(stream, b.at, pinned, n);
	if (rank == 0)
		gpu_rank_must(tutti_send(b.at, n, TUTTI_U8, 1, comm, &call), "send");
	else
		gpu_rank_must(tutti_recv(b.at, n, TUTTI_U8, 0, comm, &call), "recv");
	/* The sender opens first. A short message that has come says that the request has, too;
	 * further ones to and fro give the receiver time to copy too early. */
	if (rank == 0)
		atomic_store(gate, 1);
	while (rank == 0 && staged_by(comm) == 0)
		sched_yield();
	for (int i = 0; i < 2 * TOKENS + 1; i++)
		gpu_rank_must(
			i % 2 == rank
				? tutti_send(&token, 1, TUTTI_I32, 1 - rank, comm, &short_call)
				: tutti_recv(&token, 1, TUTTI_I32, 1 - rank, comm, &short_call),
			"token");
	if (rank == 1)
		atomic_store(gate, 1);
	gpu_sync(stream);
	check_buffer(&b, 0, 0, 3, n);
	gpu_stream_free(stream);
	gpu_free_pinned((void *)(uintptr_t)gate);
	gpu_free_pinned(pinned);
	free_buffer(&b);
	tutti_comm_destroy(comm);
	return 0;
}

static void test_held(void **state)
{
	gpu_ranks_run(2, held, 0, 0);
}

/* Another count: both are told, and the next message is as well as ever. */
static int misfit(int rank, int unused)
{
	size_t n = 500000;
	tutti_comm *comm = join(50000);
	struct buffer b = new_buffer(0);

	(void)unused;
	for (int round = 0; round < 2; round++) {
		size_t m = n - (rank == 1 && round == 0);
		tutti_status status = rank == 0 ? tutti_send(b.at, m, TUTTI_U8, 1, comm, NULL)
						: tutti_recv(b.at, m, TUTTI_U8, 0, comm, NULL);
		must(status == (round ? TUTTI_OK : TUTTI_ERR_MISMATCH), "counts are compared");
	}
	free_buffer(&b);
	tutti_comm_destroy(comm);
	return 0;
}

static void test_misfit(void **state)
{
	gpu_ranks_run(2, misfit, 0, 0);
}

/* The sender is killed between two stages, or the receiver is. */
static int killed(int rank, int victim)
{
	tutti_comm *comm = join(50000);
	struct buffer b = new_buffer(0);
	tutti_work *work;
	tutti_call call = {.work = &work}, short_call = {.tag = 1};
	int32_t token = 0;

	if (rank == 1 && victim == 1) { /* asks for the first, and for no more */
		gpu_rank_must(tutti_recv(&token, 1, TUTTI_I32, 0, comm, &short_call), "token");
		kill(getpid(), SIGKILL);
	}
	if (rank == 1) {
		/* The sender may run on for so long that all of it has come. */
		tutti_status status = tutti_recv(b.at, MOST, TUTTI_U8, 0, comm, NULL);
		must(status == TUTTI_ERR_PEER || status == TUTTI_OK, "PEER");
		must(tutti_recv(b.at, 1, TUTTI_U8, 0, comm, NULL) == TUTTI_ERR_PEER, "PEER next");
	} else {
		gpu_rank_must(tutti_send(b.at, MOST, TUTTI_U8, 1, comm, &call), "send");
		if (victim == 0) {
			while (staged_by(comm) == 0)
				sched_yield();
			kill(getpid(), SIGKILL);
		}
		gpu_rank_must(tutti_send(&token, 1, TUTTI_I32, 1, comm, &short_call), "token");
		must(tutti_work_wait(&work, 0) == TUTTI_ERR_PEER, "PEER");
	}
	must(strstr(tutti_comm_error(comm), victim ? "rank 1" : "rank 0") != NULL, "it is named");
	free_buffer(&b);
	tutti_comm_destroy(comm);
	return 0;
}

static void test_killed(void **state)
{
	gpu_ranks_run(2, killed, 0, 1u << 0);
	gpu_ranks_run(2, killed, 1, 1u << 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_with_all), cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_held),         cmocka_unit_test(test_misfit),
		cmocka_unit_test(test_killed),
	};

	test_limit(250);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
