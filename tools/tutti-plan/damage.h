/* Damages a plan in one place, to show that the checks see it. */
#ifndef TUTTI_PLAN_DAMAGE_H
#define TUTTI_PLAN_DAMAGE_H

#include "look.h"

enum damage {
	DAMAGE_DROP,   /* the step is not there                                                 */
	DAMAGE_SHIFT,  /* it names the neighbour of its which-th chunk: of a message or an operand */
	DAMAGE_DOUBLE, /* a reduction that adds its which-th operand twice, in place of another */
	DAMAGE_EDGE,   /* it does not wait for the which-th step that it should wait for         */
};

/* False: this step cannot be damaged this way, and the plan is as it was. */
bool damage_plan(struct plan *plan, enum damage damage, uint32_t step, uint32_t which);
/* "drop:RANK:STEP", "edge:RANK:STEP:WHICH" ...; false: it is not like that. */
struct damage_order {
	enum damage damage;
	int rank;
	uint32_t step, which;
};
bool damage_parse(const char *text, struct damage_order *order);

#endif
