/* Inside comm/: how children are made over their parent, by internal all_gathers in its order of
 * calls; or, of a child that its members alone make, by messages among them (create_from.c). Round
 * by round
 *
 *     asks      what each rank wants; so each rank knows all groups and whether they are valid
 *     members   the addresses of the ranks of the children: their endpoints are open
 *     routes    whether each rank can reach the others: none waits at a window for one that cannot
 *     windows   whether each rank shares memory: a child has a window on all its ranks, or on none
 *     reports   whether each rank has started
 *
 * After a round in which a rank failed there is one more, in which it says why. So all ranks of the
 * parent get their child, or all get the same error and nothing is left of any child. */
#ifndef COLLECTIVES_COMM_SPLIT_H
#define COLLECTIVES_COMM_SPLIT_H

#include "collectives/comm/join.h"
#include "collectives/engine/engine.h"
#include "core/long_wait.h"
#include "core/outcome.h"

struct ask {
	int32_t color, key, place, deterministic, status;
	char transports[60];
};

struct split {
	struct tutti_comm *parent;
	enum collective collective;
	const tutti_config *config; /* the caller's, or the parent's                      */
	const int *list;            /* the ranks of the parent that take part; NULL: all  */
	int count, me;              /* how many; this rank's place among them             */
	int tag;                    /* with a list: of the call                           */
	uint64_t sequence, deadline_ns; /* with a list: a random number                  */
	int round;
	struct long_wait wait;  /* with a list */
	int rank, size;         /* of this rank in its child; size 0 so far             */
	struct outcome own;     /* this rank's status so far                        */
	struct ask *asks;       /* of all that take part: by color, key, rank       */
	const struct ask *ours; /* ... and there the first of our child             */
	void *gathered;         /* a round's answers, by place                      */
	struct member *members; /* of the child, in its order                       */
	struct tutti_comm *child;
};

/* The rank of the parent at a place among those that take part. */
static inline int split_rank(const struct split *split, int place)
{
	return split->list ? split->list[place] : place;
}
/* The call, for messages. */
struct split_name {
	char text[48];
};
struct split_name split_name(const struct split *split);
/* Makes the child, or fails. The parent was entered, or there is a list. */
tutti_status split_run(struct split *split, int color, int key, struct tutti_comm **child);

/* Where there is a list: the place of the lowest rank; */
int split_list_leader(const struct split *split);
/* one message; or one to or from each other rank, whose buffers are stride bytes apart. */
tutti_status split_list_exchange(struct split *split, enum p2p_side side, void *buf, size_t bytes,
			   int place);
tutti_status split_list_exchange_all(struct split *split, enum p2p_side side, void *buf, size_t bytes,
			       size_t stride);

#endif
