/* What tests of turns share: a rank with buffers and a stream on a GPU that all have, and sums that
 * are checked. */
#ifndef TESTS_CUDA_TURN_RANKS_H
#define TESTS_CUDA_TURN_RANKS_H

#include "gpu_ranks.h"

#include "collectives/comm/comm.h"
#include "cuda/channels_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N   ((size_t)500000) /* floats: several turns, with the smallest window */
#define FEW ((size_t)100)

struct gpu_rank {
	tutti_comm *comm;
	float *host, *send, *recv;
	CUstream stream;
};

/* device_internal.h's, of which the channels are the first member. */
static inline struct cuda_channels *channels_of(const tutti_comm *comm)
{
	return *(struct cuda_channels **)(void *)comm->device;
}

static inline void must(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "not so: %s\n", what);
	_exit(1);
}

static inline void open_rank(struct gpu_rank *r, const tutti_config *like)
{
	tutti_config config = *like;

	config.device = 1; /* all have the same */
	gpu_use(0);
	gpu_rank_must(tutti_init(&r->comm, &config), "init");
	must(r->comm->device && cuda_channels_take_turns(channels_of(r->comm)),
	     "the ranks take turns");
	r->host = malloc(N * sizeof *r->host);
	r->send = gpu_alloc(N * sizeof *r->send);
	r->recv = gpu_alloc(N * sizeof *r->recv);
	r->stream = gpu_stream();
}

static inline void close_rank(struct gpu_rank *r)
{
	tutti_comm_destroy(r->comm);
	free(r->host);
}

static inline uint64_t ended_on_device(const struct gpu_rank *r)
{
	uint64_t ended;

	cuda_channels_is_running(channels_of(r->comm), &ended);
	return ended;
}

static inline void fill(const struct gpu_rank *r, size_t n, int round)
{
	for (size_t i = 0; i < n; i++)
		r->host[i] = (float)(tutti_rank(r->comm) + round) + (float)(i % 7);
	gpu_write(r->send, r->host, n * sizeof *r->host);
}

static inline void check(const struct gpu_rank *r, size_t n, int round)
{
	int size = tutti_size(r->comm);
	float sum = (float)(size * (size - 1) / 2 + size * round);

	gpu_read(r->host, r->recv, n * sizeof *r->host);
	for (size_t i = 0; i < n; i++)
		if (r->host[i] != sum + (float)(i % 7) * (float)size) {
			fprintf(stderr, "rank %d, round %d: element %zu is %g\n",
				tutti_rank(r->comm), round, i, (double)r->host[i]);
			_exit(1);
		}
}

static inline tutti_status sum_up(const struct gpu_rank *r, size_t n, const tutti_call *call)
{
	return tutti_all_reduce(r->send, r->recv, n, TUTTI_F32, TUTTI_SUM, r->comm, call);
}

#endif
