/* Inside plan/: what is known of a plan while it is built. The operations (plan_steps.c) append
 * steps and say which chunks these read and write; the builder infers which earlier steps each
 * one waits for. */
#ifndef COLLECTIVES_PLAN_BUILDER_H
#define COLLECTIVES_PLAN_BUILDER_H

#include "collectives/plan/plan.h"

/* Which step last wrote a chunk, which have read it since, and in which chunk of TMP the transport
 * finds the same bytes. Numbers are index + 1; 0 is none. */
struct tracked {
	uint32_t writer, readers, staged;
};

struct reader {
	uint32_t step, next;
};

struct edge {
	uint32_t from, to;
};

struct builder {
	struct tracked *chunk[BUF_COUNT];
	struct edge *edge;
	struct reader *reader;
	uint32_t *lane_of[2]; /* [sends][peer] -> lane + 1; local work is peer == size */
	uint32_t *told;       /* [step]: the latest step that waits for it, + 1        */
	uint32_t *scaled_of;  /* [chunk of IN]: its scaled copy in TMP, + 1            */
	uint32_t edges, readers, refs;
	uint32_t edge_cap, reader_cap, ref_cap, step_cap, told_cap, lane_cap, tmp_cap, chunk_cap;
	uint32_t pace_from, pace_to; /* sends wait for the receives among these steps    */
	bool is_partial, failed;
};

/* After a failure (failed) nothing is appended any more, and plan_end says so. */
struct tracked *builder_chunk(struct plan *plan, struct ref r);
/* A fresh chunk of scratch. */
struct ref builder_scratch(struct plan *plan, uint32_t shape, enum tmp_pool pool);
/* Appends a step; callers then say what it reads and, last, what it writes. False: no memory. */
bool builder_append(struct plan *plan, enum step_kind kind, int peer, struct ref dst);
void builder_reads(struct plan *plan, uint32_t step, struct ref r);
void builder_writes(struct plan *plan, uint32_t step, struct ref r);
/* Names r in step, without an order. */
void builder_ref(struct plan *plan, uint32_t step, struct ref r);
/* Step to waits for step from - 1, or for none if from is 0. */
void builder_depend(struct plan *plan, uint32_t from, uint32_t to);

#endif
