/* Which calls of an algorithm there are to check: roots, in place and not, staged, scaled, nodes. */
#ifndef TUTTI_PLAN_CASES_H
#define TUTTI_PLAN_CASES_H

#include "check.h"
#include "damage.h"

struct cases {
	const struct algorithm *algorithm;
	int size;
	int root, nodes;                   /* -1 and 0 stand for several                         */
	bool thorough;                     /* in place, staged and scaled plans too             */
	const struct damage_order *damage; /* or NULL                                           */
	int checked;                       /* how many calls there were, so far                 */
	struct plan_set last;              /* the one that went wrong, without its plans        */
};

/* Checks them until something is wrong. */
bool check_cases(struct cases *cases, struct finding *finding);
/* Why there is no plan at this size; NULL: there is. */
const char *cases_why_not(const struct algorithm *algorithm, int size, int nodes);

#endif
