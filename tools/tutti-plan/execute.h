/* Inside check_execution: execute.c moves lanes on, contents.c knows what steps do to what chunks
 * hold, promise.c what they hold before and after. */
#ifndef TUTTI_PLAN_EXECUTE_H
#define TUTTI_PLAN_EXECUTE_H

#include "check.h"
#include "lane_map.h"
#include "value.h"

#define NONE UINT32_MAX

/* A lane on its way: posted and retired count its steps, matched its messages. */
struct moving {
	uint32_t posted, retired, matched;
	bool is_queued;
};

/* Of one rank. */
struct rank_state {
	const struct plan *plan;
	struct moving *lanes;
	uint32_t *pending; /* by step: edges still to come                                */
	bool *is_done;     /* by step                                                     */
	uint32_t *holds;   /* by cell: its value                                          */
	uint32_t *writer;  /* by cell: the step that wrote it last, or NONE                */
	uint32_t *carried; /* by ref: what an early send has taken with it                */
};

struct place_in_queue {
	int rank;
	uint32_t lane;
};

struct execution {
	const struct plan_set *set;
	bool rendezvous;
	struct rank_state *ranks;
	struct lane_map map;
	struct values values;
	struct place_in_queue *queue; /* a stack of lanes that may go on                      */
	size_t queued, room;
	uint32_t *operands; /* room for the values of one step                      */
	struct finding *finding;
	bool failed;
};

/* contents.c. Rank's chunks before the call. */
void contents_fill(struct execution *x, int rank);
uint32_t contents_read(struct execution *x, int rank, uint32_t step, struct ref ref);
void contents_write(struct execution *x, int rank, uint32_t step, struct ref ref, uint32_t value);
/* The effect of a step that sends and receives nothing, or RECV_REDUCE with what has come; its n
 * operands are in x->operands. */
void contents_compute(struct execution *x, int rank, uint32_t step, uint32_t n);
/* Rank's chunks after the call: are they what was promised? */
void contents_check(struct execution *x, int rank);

/* promise.c: what a collective promises, block by block. */
enum holder { HOLDS_NOTHING, HOLDS_ONE_RANK, HOLDS_ALL_RANKS };

/* A block of one rank, or of all of them, added up. NOTHING: the buffer may not be there at all. */
struct content {
	enum holder holder;
	uint32_t block;
	int rank;
};

/* BUF_IN before the call; BUF_OUT after it. */
struct content promise_of(const struct plan_set *set, int rank, struct ref ref);

#endif
