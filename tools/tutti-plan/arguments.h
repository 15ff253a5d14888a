/* The command line of tutti-plan. */
#ifndef TUTTI_PLAN_ARGUMENTS_H
#define TUTTI_PLAN_ARGUMENTS_H

#include "clock.h"
#include "look.h"

#include "train/pipeline/schedule/schedule.h"

enum verb { VERB_SHOW, VERB_CHECK, VERB_EXPLAIN, VERB_SIMULATE, VERB_PIPELINE };

#define RANGES_MAX 16
struct rank_range {
	int first, last;
};
struct rank_ranges {
	struct rank_range of[RANGES_MAX];
	int count;
};

struct arguments {
	enum verb verb;
	enum collective collective; /* COLL_COUNT: all                                       */
	const struct algorithm *algorithm; /* NULL: all of the collective                    */
	size_t bytes;                      /* explain, simulate: of the call                  */
	struct rank_ranges ranks;          /* how many                                       */
	int rank, root, nodes; /* -1, -1, 0: not given                                  */
	bool in_place;
	struct plan_options options;
	struct machine machine;
	double effort; /* simulate: at most so many steps and slices for a point    */
	const char *svg, *links; /* NULL: not given                                 */
	tutti_op op;
	tutti_dtype dtype;
	bool deterministic;
	struct pipeline_shape shape; /* pipeline: 0 ranks, micro-batches: not given          */
	struct action_times times;
};

/* -1: there is something to do. Else the exit code: 0 after --help, 2 after a bad line and a
 * message. An alpha without an overhead is all overhead, and without nodes there is one kind of link. */
int arguments_parse(struct arguments *arguments, int argc, char **argv);
/* A line, or one for what is between nodes and one for what is inside. */
void arguments_print_machine(const struct arguments *arguments);

/* The verbs; each returns the exit code. */
int plan_show(const struct arguments *arguments);
int plan_check(const struct arguments *arguments);
int plan_explain(const struct arguments *arguments);
int plan_simulate(const struct arguments *arguments);
int plan_pipeline(const struct arguments *arguments);

#endif
