/* The end of a rank's step, after its last action: reductions that its backward did not hide, sums
 * over other axes, the update, values on their way. */
#ifndef TUTTI_PLAN_LAYOUT_TAIL_H
#define TUTTI_PLAN_LAYOUT_TAIL_H

#include "layout_links.h"

/* The axes of a candidate. */
struct mesh_links {
	struct axis_ranks tp, pp, cp, all;
	struct axis_ranks ends;     /* first and last of "pp" */
	struct axis_ranks shards;   /* that divide values or gradients; DDP: all replicas */
	struct axis_ranks groups;   /* of HSDP: one rank of each group */
};
struct mesh_links mesh_links_of(const struct layout_question *question,
				const struct candidate *candidate);

/* The time of a rank's stages for one micro-batch, with all communication that is not hidden. */
struct rank_turn {
	double forward, backward;
};
struct spent tail_spent(const struct layout_question *question, const struct candidate *candidate,
			const struct mesh_links *links, int rank, struct rank_turn turn);

/* Whether values are gathered for each unit and micro-batch (FSDP, HSDP). */
bool strategy_gathers(tutti_strategy strategy);
struct spent gather_spent(const struct layout_question *question, const struct mesh_links *links,
			  double elements);

#endif
