/* How long a step of a candidate takes. */
#ifndef TUTTI_PLAN_LAYOUT_TIMES_H
#define TUTTI_PLAN_LAYOUT_TIMES_H

#include "layout_links.h"

/* One stage and micro-batch. compute, tensor and data make up forward, inputs and weights. */
struct stage_time {
	struct action_times times;
	double compute; /* without any communication */
	double tensor;  /* of "tp" and "cp" */
	double data;    /* gathers of values that computing does not hide */
};

/* One rank of "pp". */
struct rank_time {
	double busy;   /* in the schedule's actions */
	double tail;   /* from its last action to the end of its step */
	double cores;  /* how long it keeps a core busy, if ranks share cores */
};

/* All that is known of a step before its schedule is executed. */
struct step_time {
	struct stage_time *stages;
	struct rank_time *ranks;
	double transfer; /* of a message between stages */
	double shared;   /* what the cores of a node need for its ranks; 0: each has its own */
	double least;    /* no schedule makes the step shorter */
};
struct step_time step_time_open(const struct layout_question *question,
				const struct candidate *candidate);
void step_time_close(struct step_time *time);

/* Of a step, by the schedule in virtual time. compute to data are shares of it on the average rank,
 * bubble is the rest. */
struct step_found {
	double seconds;
	double compute, tensor, bubble, data;
};
struct step_found step_time_run(const struct step_time *time,
				const struct layout_question *question,
				const struct candidate *candidate);
/* The most buffers of a rank of "pp". */
struct schedule_buffers candidate_buffers(const struct candidate *candidate);

#endif
