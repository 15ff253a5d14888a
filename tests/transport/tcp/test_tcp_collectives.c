/* slow: 3 s */
/* Would break: that collectives do not notice resets. Ranks that are threads make random calls over
 * tcp, in a network of their own in which connections are reset all the time, those of the control
 * ring too: a few one after the other, also while others are made again, then none until some call
 * has come to its end. On a slow machine nothing would ever be made again else. */
#include "tests/transport/network.h"

#include "core/clock.h"

#include <tutti/tutti.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MOST 4
#define CALLS      60 /* of a round */
#define RESETS     150
#define BURST      8
#define COUNT_MOST 60000

struct rank {
	tutti_comm *comm;
	int rank, size;
	uint64_t seed;
	uint32_t *send, *recv;
};

static uint64_t seed;
static atomic_int running, ended_calls;

static uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static uint32_t value(uint64_t call, int rank, size_t i)
{
	return (uint32_t)mix(call + (uint64_t)rank * 1000003u + i);
}

static void give_up(const struct rank *r, const char *what, size_t i)
{
	fprintf(stderr, "rank %d of %d, seed %llu: %s at %zu: %s\n", r->rank, r->size,
		(unsigned long long)seed, what, i, tutti_comm_error(r->comm));
	_exit(1);
}

static void check_sum(const struct rank *r, uint64_t call, size_t first, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t sum = 0;
		for (int p = 0; p < r->size; p++)
			sum += value(call, p, first + i);
		if (r->recv[i] != sum)
			give_up(r, "wrong sum", i);
	}
}

/* Element i is that which rank (from >= 0 ? from : i / block) had at at + i % block. */
static void check_copy(const struct rank *r, uint64_t call, int from, size_t at, size_t block)
{
	size_t count = from >= 0 ? block : block * (size_t)r->size;

	for (size_t i = 0; i < count; i++) {
		int source = from >= 0 ? from : (int)(i / block);
		if (r->recv[i] != value(call, source, at + i % block))
			give_up(r, "wrong copy", i);
	}
}

static void one_call(struct rank *r, uint64_t call)
{
	size_t count = mix(call) % (mix(call + 1) % 3 ? 100 : COUNT_MOST) + 1;
	int kind = (int)(mix(call + 2) % 5), root = (int)(mix(call + 3) % (uint64_t)r->size);
	size_t all = count * (size_t)r->size;
	tutti_status status;

	for (size_t i = 0; i < all; i++)
		r->send[i] = value(call, r->rank, i);
	memset(r->recv, 0, all * sizeof *r->recv);
	if (kind == 0)
		status = tutti_all_reduce(r->send, r->recv, count, TUTTI_U32, TUTTI_SUM, r->comm,
					  NULL);
	else if (kind == 1)
		status = tutti_broadcast(r->send, r->recv, count, TUTTI_U32, root, r->comm, NULL);
	else if (kind == 2)
		status = tutti_all_gather(r->send, r->recv, count, TUTTI_U32, r->comm, NULL);
	else if (kind == 3)
		status = tutti_all_to_all(r->send, r->recv, count, TUTTI_U32, r->comm, NULL);
	else
		status = tutti_reduce_scatter(r->send, r->recv, count, TUTTI_U32, TUTTI_SUM,
					      r->comm, NULL);
	if (status != TUTTI_OK)
		give_up(r, tutti_status_string(status), count);
	if (kind == 0)
		check_sum(r, call, 0, count);
	else if (kind == 1)
		check_copy(r, call, root, 0, count);
	else if (kind == 2)
		check_copy(r, call, -1, 0, count);
	else if (kind == 3)
		check_copy(r, call, -1, count * (size_t)r->rank, count);
	else
		check_sum(r, call, count * (size_t)r->rank, count);
}

static void *run(void *arg)
{
	struct rank *r = arg;

	for (uint64_t i = 0; i < CALLS; i++) {
		one_call(r, mix(r->seed + i));
		atomic_fetch_add(&ended_calls, 1);
	}
	atomic_fetch_sub(&running, 1);
	return NULL;
}

/* Returns how often a connection was reset while the calls were made. */
static int run_round(struct rank *ranks, int n)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	pthread_t threads[RANKS_MOST];
	int resets = 0, burst = 0, seen = 0;

	atomic_store(&running, n);
	for (int r = 0; r < n; r++)
		if (pthread_create(&threads[r], NULL, run, &ranks[r]) != 0)
			exit(1);
	for (uint64_t i = 0; atomic_load(&running) == n; i++, nanosleep(&pause, NULL)) {
		int now = atomic_load(&ended_calls);
		if (now != seen)
			burst = 0;
		seen = now;
		if (burst < BURST && network_reset_any(mix(ranks[0].seed + i))) {
			burst++;
			resets++;
		}
	}
	for (int r = 0; r < n; r++)
		pthread_join(threads[r], NULL);
	return resets;
}

static void run_ranks(int n)
{
	const tutti_config config = {.transports = "tcp", .timeout_ms = 60000};
	struct rank ranks[RANKS_MOST];
	tutti_comm *comms[RANKS_MOST];
	int resets = 0;

	if (tutti_init_all(comms, n, &config) != TUTTI_OK) {
		fprintf(stderr, "%s\n", tutti_comm_error(NULL));
		exit(1);
	}
	for (int r = 0; r < n; r++)
		ranks[r] = (struct rank){
			.comm = comms[r],
			.rank = r,
			.size = n,
			.send = malloc((size_t)n * (COUNT_MOST + 1) * sizeof(uint32_t)),
			.recv = malloc((size_t)n * (COUNT_MOST + 1) * sizeof(uint32_t))};
	for (uint64_t round = 0; resets < RESETS; round++) {
		for (int r = 0; r < n; r++)
			ranks[r].seed = mix(seed + round * 16 + (uint64_t)n);
		resets += run_round(ranks, n);
	}
	printf("%d ranks: %d resets\n", n, resets);
	for (int r = 0; r < n; r++) {
		tutti_comm_destroy(comms[r]);
		free(ranks[r].send);
		free(ranks[r].recv);
	}
}

int main(void)
{
	const char *given = getenv("TEST_SEED");
	int descriptors;

	if (!network_enter())
		return 77;
	seed = given ? strtoull(given, NULL, 0) : clock_now_ns();
	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	setenv("TUTTI_WINDOW", "0", 1);
	setenv("TUTTI_RECONNECT", "2", 1);
	run_ranks(2);
	descriptors = network_descriptors(); /* the helper's are there to stay */
	run_ranks(3);
	run_ranks(4);
	if (network_descriptors() != descriptors) {
		fprintf(stderr, "%d descriptors became %d\n", descriptors, network_descriptors());
		return 1;
	}
	return 0;
}
