/* The test of the public API from the outside: one rank's context, checks, and the passes. The
 * program knows <tutti/tutti.h> and nothing else of the library, but for the proof kind of memory,
 * which is there when the program is linked with the objects (API_PROOF), and for GPUs' memory,
 * where there is a CUDA driver.
 *
 * Every rank runs the same passes with the same seed: what a call is comes from the shared random
 * numbers, how this rank makes it (in place, alignment, memory, waiting) from its own. */
#ifndef TESTS_API_API_H
#define TESTS_API_API_H

#include "../random.h"

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stdint.h>

#define API_RANKS 8 /* data.c's sums of narrow floats are exact up to here */
#define API_WAIT_S                                                                                 \
	100 /* no single wait of a healthy test takes that long, even under sanitizers             \
	     */

struct api {
	tutti_comm *comm;
	int rank, size;
	int local_ranks; /* in a process that has several: so many, else 1 */
	uint64_t seed;
	uint64_t shared, own; /* states of the random numbers */
	char *arena;          /* of tutti_mem_alloc; NULL: not supported here */
	size_t arena_bytes, arena_used;
	int device;   /* the kind of buffer in play that the CPU may not touch; or 0 */
	int gpu;      /* this rank's, where that is a GPU's                          */
	void *stream; /* likewise, else NULL                                         */
	bool forced; /* TUTTI_ALGO is set: what it cannot do is UNSUPPORTED */
	bool exact;  /* sums of floats follow the fixed tree, rounded once */
	bool quick;  /* a sample instead of everything */
};

/* Says where and why on stderr and ends the process. */
_Noreturn void api_fail(const struct api *api, const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
#define CHECK(api, condition, ...)                                                                 \
	do {                                                                                       \
		if (!(condition))                                                                  \
			api_fail(api, __FILE__, __LINE__, __VA_ARGS__);                            \
	} while (0)
#define CHECK_OK(api, call)                                                                        \
	do {                                                                                       \
		tutti_status status_ = (call);                                                     \
		CHECK(api, status_ == TUTTI_OK, "%s: %s: %s", #call, tutti_status_string(status_), \
		      tutti_comm_error(NULL));                                                     \
	} while (0)

/* The passes. Each is collective. */
void pass_world(struct api *api);       /* who is there, sequence numbers, statistics */
void pass_small(struct api *api);       /* every collective x dtype x op x small counts */
void pass_large(struct api *api);       /* the same with a few large counts */
void pass_bits(struct api *api);        /* rounded sums: the same bits on every rank */
void pass_flight(struct api *api);      /* many works in flight, calls out of callbacks */
void pass_zero_copy(struct api *api);   /* the window's: shared memory is not staged */
void pass_errors(struct api *api);      /* bad arguments: said, nothing sent, life goes on */
void pass_messages(struct api *api);    /* sends, receives, groups, between all pairs */
void pass_split(struct api *api);       /* children of communicators, and theirs */
void pass_split_nodes(struct api *api); /* ... who share memory or not */
void pass_programs(struct api *api);    /* random programs of everything */
void pass_survivors(struct api *api);   /* agree and shrink, where nobody has died */
/* These end the communicator. */
void pass_leave(struct api *api);
void pass_death(struct api *api);
void pass_gone_peer(struct api *api);
void pass_late(struct api *api);
void pass_differ(struct api *api);
void pass_abort(struct api *api);
void pass_split_death(struct api *api);

#endif
