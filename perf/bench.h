/* One measurement: a collective at one size, verified. Knows nothing of sweeps and tables. */
#ifndef PERF_BENCH_H
#define PERF_BENCH_H

#include "gpu_rank.h"
#include "options.h"
#include "stamps.h"

struct area {
	unsigned char *host; /* with a GPU an image of what is there */
	unsigned char *gpu;
};

struct bench {
	const struct options *options;
	const struct collective *collective;
	tutti_comm *comm;
	int rank, ranks;
	struct gpu_rank *gpu;        /* NULL: the buffers are in host memory                     */
	size_t area_bytes;           /* of each of these                                         */
	struct area send, recv;
	bool is_captured;            /* the calls of the burst that runs are gpu's graph         */
	tutti_work **works;          /* one for each call of an iteration                        */
	struct values values;        /* of the dtype and op that are measured now                */
	struct stamps stamps;        /* of the burst that runs, where calls are timed singly     */
	struct latencies latencies;  /* of the measurement that runs, with --percentiles         */
	uint64_t iteration;          /* so many calls were made; every one has data of its own   */
};

struct sample {
	tutti_dtype dtype;
	tutti_op op;
	int root;
	bool in_place, is_left_out;
	struct shape shape;
	double seconds;              /* out: of one call, over all ranks as -a says              */
	uint64_t wrong;              /* out: elements on all ranks; of barriers, returns         */
	struct percentiles percentiles; /* out, with --percentiles                               */
};

/* Bytes of memory that the whole sweep takes for each rank. */
double bench_needs(const struct options *options, const struct collective *collective, int ranks);
/* "58.6 TiB". Returns text. */
#define BENCH_TEXT 24
const char *bench_text(double bytes, char text[BENCH_TEXT]);
/* Takes that memory. With -g there is a GPU. */
tutti_status bench_init(struct bench *bench, const struct options *options,
                        const struct collective *collective, tutti_comm *comm);
/* The values that samples of that type and operation are made of, instead of those before. */
tutti_status bench_values(struct bench *bench, const struct sample *sample);
void bench_finish(struct bench *bench);
/* Whether every call is timed by itself: for percentiles, and to verify a barrier. */
bool bench_is_stamped(const struct bench *bench);
/* Whether what is measured can be verified, and -c asks for it. */
bool bench_is_checked(const struct bench *bench);
/* Collective. Fills in the result. */
tutti_status bench_measure(struct bench *bench, struct sample *sample);

#endif
