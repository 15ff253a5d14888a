/* Ranks that share a window, for the window's tests: as threads on one mapping or as processes;
 * calls with known values; what every element must be. Everything is checked with team_check, which
 * prints and aborts the rank: cmocka's assertions do not work outside the main thread. */
#ifndef TESTS_COLLECTIVES_WINDOW_WINDOW_TEAM_H
#define TESTS_COLLECTIVES_WINDOW_WINDOW_TEAM_H

#include "collectives/window/window.h"
#include "core/memory/ops.h"

#include <stdio.h>
#include <stdlib.h>

#define TEAM_TIMEOUT_NS 600000000000u /* more than any limit of a test */

#define team_check(condition, ...)                                                                 \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);            \
			fprintf(stderr, __VA_ARGS__);                                              \
			fprintf(stderr, "\n");                                                     \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct team {
	int size;
	bool are_processes;
	size_t window_bytes;    /* 0: 8 MiB */
	size_t read_bytes;      /* 0: never */
	bool is_oversubscribed; /* the policy for more ranks than cores, whatever is true */
	bool has_cores;         /* not oversubscribed, but spread                       */
	void (*member)(struct window *window, int rank, void *arg);
	void *arg;
};

/* Runs member on every rank; returns how many ended badly (only processes can). */
int team_run(const struct team *team);
/* The windows of a team of threads, without the threads: begin and advance let one thread play them
 * all. */
void team_open(const struct team *team, struct window **windows);
void team_close(struct window **windows, int size);
/* One process of the team is killed in the middle of its calls, each round another: the others name
 * it in a PEER error, soon, and fail the next call too. */
struct team_kill {
	struct team team;                               /* member and arg are not used */
	struct call_args (*call)(uint64_t i, int rank); /* the i-th */
	int rounds, most_calls;                         /* killed after 1 to so many calls */
};
void team_kill(const struct team_kill *plan, uint64_t seed);
/* A seed: TEST_SEED, or a new one. Printed. */
uint64_t team_seed(void);

/* A hash of the three. */
static inline uint64_t team_random(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t h = a * 0x9e3779b97f4a7c15u + b * 0xd6e8feb86659fd93u + c * 0xa0761d6478bd642fu;

	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	return h ^ h >> 31;
}

/* Beside the built-in ones, of struct call: every rank has one of its own, made for the call. */
#define TEAM_SCALED ((tutti_op)1000000)
#define TEAM_USER   ((tutti_op)1000001) /* a sum; of i32 only */
/* One that fits, drawn from random. */
#define TEAM_OPS (OPS_BUILT_IN + 2)
tutti_op team_op(uint64_t random, tutti_dtype dtype);

struct call {
	enum collective collective;
	tutti_dtype dtype;
	tutti_op op;
	int root;
	size_t count;  /* v-variants: the most of a block; the counts are drawn from seed */
	uint64_t seed; /* of the values and counts */
};

/* How one rank makes the call. Ranks may differ. */
struct manner {
	bool is_in_place, is_async;
	size_t send_shift, recv_shift;    /* bytes off alignment */
	uint8_t *send_arena, *recv_arena; /* or NULL: ordinary memory */
};

/* window_values.c. What rank contributes at index of its block for a rank (block 0, when it has
 * one), small enough to be exact in dtype, and what all ranks' make together; a value as an
 * element; rank's own scalar, small too, and op. */
bool call_reduces(enum collective collective);
int64_t call_value(const struct call *call, int rank, int block, size_t index);
int64_t call_reduced(const struct call *call, int size, int block, size_t index);
void call_put(uint8_t *at, tutti_dtype dtype, int64_t value);
int64_t call_scalar(const struct call *call, int rank);
tutti_op call_op(const struct call *call, int rank); /* in window_calls.c */

bool call_is_v(enum collective collective);
/* The longest that a rank's buffer is. */
size_t call_send_bytes(const struct call *call, int size);
size_t call_recv_bytes(const struct call *call, int size);
/* Elements that rank from sends to rank to, in an all_to_allv; else of rank to's block. */
size_t call_block(const struct call *call, int from, int to);

#define TEAM_RANKS 16

/* One side of a rank's call: its blocks, for v-variants with gaps and in any order. */
struct side {
	int blocks; /* 0: no buffer; 1: one block, the first */
	size_t count[TEAM_RANKS], first[TEAM_RANKS];
	size_t end;
};

/* A call in flight on one rank. */
struct made {
	struct call call;
	struct manner manner;
	struct window *window;
	struct window_run run;
	int rank, size;
	struct side send, recv;
	tutti_op op; /* this rank's own, if the call's is none that is built in */
	size_t counts[2][TEAM_RANKS], offsets[2][TEAM_RANKS];
	uint8_t *rooms[2], *before[2], *buffers[2];
	size_t room_bytes[2];
};
/* Puts the elements of one side's blocks where they belong in before, which nobody else sees:
 * window_values.c. */
void made_fill(const struct made *made, int which);
/* Fills buffers and begins. */
void made_begin(struct made *made, struct window *window, int rank, const struct call *call,
		const struct manner *manner);
/* When the run is done: checks every byte of the result and around it. */
void made_check(struct made *made);
/* Both, and all between. */
void call_make(struct window *window, int rank, int size, const struct call *call,
	       const struct manner *manner);
/* Of a collective that has one count. */
struct call_args call_args_for(const struct call *call, const void *send, void *recv);

/* Shared memory of this rank, through COLL_MEM_ALLOC. */
uint8_t *team_alloc(struct window *window, size_t bytes);
/* begin and drive. */
tutti_status team_drive(struct window *window, const struct call_args *args);

#endif
