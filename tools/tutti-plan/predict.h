/* How long a call should take: by running its plans in virtual time, or by an algorithm's cost formula. */
#ifndef TUTTI_PLAN_PREDICT_H
#define TUTTI_PLAN_PREDICT_H

#include "clock.h"

enum how {
	HOW_NOT,       /* not at all: why says so                                              */
	HOW_SIMULATED, /* all ranks, or one that stands for all                                */
	HOW_FORMULA,   /* it would have been more than steps_max                               */
};

struct point {
	int ranks;
	double seconds;
	double plan_bytes; /* of the plan of the root, or rank 0 */
	enum how how;
	const char *why;
};

/* One call on one machine. */
struct question {
	const struct algorithm *algorithm;
	int ranks, nodes, root;
	double bytes; /* of the call, as the API counts them */
	const struct machine *machine;
	double steps_max; /* times slices */
};

/* By the plans where that is at most steps_max, else HOW_FORMULA without seconds. */
struct point plan_predict(const struct question *question);
/* By the cost formula. */
double predict_formula(const struct question *question);
/* A point for each number of ranks, ascending; behind the last that could be simulated the formula goes on
 * from there. */
void predict_curve(struct question question, int local, struct point *points, int n);

#endif
