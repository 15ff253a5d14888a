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

struct arguments {
	enum verb verb;
	enum collective collective; /* COLL_COUNT: all                                       */
	const struct algorithm *algorithm; /* NULL: all of the collective                    */
	size_t bytes;                      /* explain, simulate: of the call                  */
	struct rank_range ranges[RANGES_MAX]; /* how many ranks                               */
	int range_count;
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

#define RANKS_MAX       65536
#define CHECK_RANKS_MAX 1024
#define PIPELINE_MAX    4096 /* ranks, micro-batches, chunks */
#define PIPELINE_TASKS_MAX 1000000

/* -1: there is something to do. Else the exit code: 0 after --help, 2 after a bad line and a
 * message. */
int arguments_parse(struct arguments *arguments, int argc, char **argv);
extern const char arguments_help[]; /* help.c */

/* words.c: the n words that are no options, after these; returns as arguments_parse. "8" or
 * "1-64,100": how many ranks; false: it is not like that. */
int arguments_words(struct arguments *arguments, int n, char **words);
bool arguments_ranges(struct arguments *arguments, const char *text);

/* machine.c: what was not given is as it was measured, or as the library assumes where nothing was;
 * an alpha without an overhead is all overhead, and without nodes there is one kind of link.
 * Returns as arguments_parse. */
int machine_complete(struct arguments *arguments);
/* A line, or one for what is between nodes and one for what is inside; else the second is "". */
void machine_in_words(const struct arguments *arguments, char text[2][200]);

/* The verbs; each returns the exit code. */
int plan_show(const struct arguments *arguments);
int plan_check(const struct arguments *arguments);
int plan_explain(const struct arguments *arguments);
int plan_simulate(const struct arguments *arguments);
int plan_pipeline(const struct arguments *arguments);

#endif
