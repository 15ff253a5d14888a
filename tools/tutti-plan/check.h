/* Checks the plans of all ranks of a call together: whether their messages match, no steps race, and all
 * end, whatever the order in which things happen. No byte is moved: that results are right is shown by
 * tests/collectives/plan, where the engine runs the plans. */
#ifndef TUTTI_PLAN_CHECK_H
#define TUTTI_PLAN_CHECK_H

#include "look.h"

/* The first thing that is wrong, as a message that names rank and step. */
struct finding {
	char text[1024];
};

/* True: nothing is wrong with the plans of set. */
bool check_plans(const struct plan_set *set, struct finding *finding);

/* Which calls of an algorithm there are to check: roots, in place and not, staged, scaled, nodes. */
struct cases {
	const struct algorithm *algorithm;
	int size;
	int root, nodes;      /* -1 and 0 stand for several                         */
	bool thorough;        /* in place, staged and scaled plans too              */
	int checked;          /* how many calls there were, so far                  */
	struct plan_set last; /* the one that went wrong, without its plans         */
};

/* Checks them until something is wrong. */
bool check_cases(struct cases *cases, struct finding *finding);

#endif
