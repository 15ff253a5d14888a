/* Looks into plans: those of all ranks together, what a step reads and writes, which steps it waits
 * for, and how to say so. The rest of the program knows a plan's arrays through this. */
#ifndef TUTTI_PLAN_LOOK_H
#define TUTTI_PLAN_LOOK_H

#include "collectives/plan/plan.h"
#include "collectives/select/select.h"

/* One call's plans, all ranks. */
struct plan_set {
	const struct algorithm *algorithm;
	int size, root;
	int nodes;              /* with equally many ranks each                                */
	bool in_turn;           /* ranks are numbered node after node in turn, not node by node */
	bool in_place;
	struct plan_options options;
	struct plan **of;       /* by rank                                                     */
};

/* The plan of one rank, of a set whose other fields have been filled in; all of them, in set->of.
 * Both end the program when there is no memory. */
struct plan *look_build(const struct plan_set *set, int rank);
void look_build_all(struct plan_set *set);
void look_free_all(struct plan_set *set);
struct nodes look_nodes(const struct plan_set *set);
/* Why there is no plan at this size; NULL: there is. */
const char *look_why_not(const struct algorithm *algorithm, int size, int nodes);

/* The plan's memory: a communicator keeps one for every kind of call that it makes. */
size_t look_bytes(const struct plan *plan);

/* refs[0..n-1], in the order in which they count. */
struct refs {
	const struct ref *at;
	uint32_t n;
};
struct refs look_reads(const struct plan *plan, uint32_t step);
struct refs look_writes(const struct plan *plan, uint32_t step);
/* The bytes on the wire: the chunks as long as those of the message of a step with a peer. */
struct refs look_message(const struct plan *plan, uint32_t step);

/* Where a chunk lies: numbers below look_cells, the same for two chunks in the same memory. */
uint32_t look_cells(const struct plan *plan);
uint32_t look_cell(const struct plan *plan, struct ref ref, bool in_place);

/* The steps that each step waits for: of step s at[first[s]] ... at[first[s + 1] - 1]. */
struct before {
	uint32_t *first, *at;
};
struct before look_before(const struct plan *plan);
void look_before_free(struct before *before);

/* "IN[3]", "scratch[0..2]" */
struct look_refs_text {
	char text[160];
};
struct look_refs_text look_refs_in_words(struct refs refs);
/* "step 7 (receive OUT[3] from rank 1)" */
struct look_step_text {
	char text[512];
};
struct look_step_text look_step_in_words(const struct plan *plan, uint32_t step);

#endif
