/* The command line. */
#ifndef TUTTI_PLAN_ARGUMENTS_H
#define TUTTI_PLAN_ARGUMENTS_H

#include "clock.h"
#include "damage.h"
#include "look.h"

enum verb { VERB_SHOW, VERB_CHECK, VERB_EXPLAIN, VERB_SIMULATE };

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
	bool has_damage;
	struct damage_order damage;
	struct machine machine;
	double effort; /* simulate: at most so many steps and slices for a point    */
	const char *svg, *links; /* NULL: not given                                       */
	tutti_op op;
	tutti_dtype dtype;
	bool deterministic;
};

#define RANKS_MAX       65536
#define CHECK_RANKS_MAX 1024

/* Returns -1 when there is something to do, else the exit code: 0 after --help, 2 after a bad line, which was
 * then explained on stderr. */
int arguments_parse(struct arguments *arguments, int argc, char **argv);

/* What the verbs do; each returns the exit code. */
int show(const struct arguments *arguments);
int check(const struct arguments *arguments);
int explain(const struct arguments *arguments);
int simulate(const struct arguments *arguments);

#endif
