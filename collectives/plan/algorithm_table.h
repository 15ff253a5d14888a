/* The algorithms: a line for each, and nothing else has to know a new one. plan.h declares from it
 * the functions NAME_PATTERN (appends a rank's steps) and NAME_PATTERN_cost (seconds, see struct
 * cost); select/algorithm.c makes its table of it. */
#ifndef COLLECTIVES_PLAN_ALGORITHM_TABLE_H
#define COLLECTIVES_PLAN_ALGORITHM_TABLE_H

/* Into how many chunks a block is cut; of a vector (all_reduce, reduce, broadcast) there is one
 * block. */
enum cut { CUT_NONE, CUT_HALVES, CUT_RANKS, CUT_RANKS_TWICE };

/* How an algorithm adds: all contributions at once in the fixed association, rounding once; two at
 * a time in that association, which is the same bits unless partial sums are rounded to a narrow
 * type (for powers of two of ranks only, or for all); or in an order of its own. */
enum adds { ADDS_ONCE, ADDS_FIXED, ADDS_FIXED_POW2, ADDS_ANYHOW };

/* An algorithm's conditions. */
enum {
	NEEDS_NODES = 1,        /* several nodes of equally many ranks */
	NEEDS_EQUAL_BLOCKS = 2, /* no v-variants                       */
	NEEDS_FEW_RANKS = 4,
};

/* How many scratch chunks a rank needs at the most, the same on all ranks, by the number of ranks:
 * blocks that rest, and in each round those that arrive. */
enum width {
	WIDTH_ONE,
	WIDTH_TREE, /* 4 */
	WIDTH_LOG,  /* 2 and one a round */
	WIDTH_SIZE,
	WIDTH_HALF_MORE, /* half the blocks' sums, and all that arrive */
	WIDTH_TWO_SIZES,
	WIDTH_SIZES_LOG, /* the sums of all blocks, and those that arrive in each round */
	WIDTH_SQUARE,
};

/* X(the collective, in large letters and in small ones, name, cut, adds, needs, width). WINDOW: the
 * window serves it too, where the ranks share memory. */
#define ALGORITHM_TABLE(X, WINDOW) \
	X(ALL_REDUCE, all_reduce, ring, CUT_RANKS, ADDS_ANYHOW, 0, WIDTH_ONE) \
	X(ALL_REDUCE, all_reduce, doubling, CUT_NONE, ADDS_FIXED_POW2, 0, WIDTH_LOG) \
	X(ALL_REDUCE, all_reduce, direct, CUT_RANKS, ADDS_ONCE, 0, WIDTH_SIZE) \
	X(ALL_REDUCE, all_reduce, two_level, CUT_RANKS, ADDS_ANYHOW, NEEDS_NODES, WIDTH_SIZE) \
	X(ALL_REDUCE, all_reduce, circulant, CUT_RANKS, ADDS_ANYHOW, 0, WIDTH_SIZE) \
	X(ALL_REDUCE, all_reduce, knomial, CUT_NONE, ADDS_FIXED, 0, WIDTH_LOG) \
	X(ALL_REDUCE, all_reduce, star, CUT_NONE, ADDS_ONCE, 0, WIDTH_SIZE) \
	X(ALL_REDUCE, all_reduce, tree, CUT_HALVES, ADDS_ANYHOW, 0, WIDTH_TREE) \
	X(ALL_REDUCE, all_reduce, rings, CUT_RANKS_TWICE, ADDS_ANYHOW, 0, WIDTH_ONE) \
	WINDOW(ALL_REDUCE) \
	X(REDUCE_SCATTER, reduce_scatter, ring, CUT_NONE, ADDS_ANYHOW, 0, WIDTH_SIZE) \
	X(REDUCE_SCATTER, reduce_scatter, direct, CUT_NONE, ADDS_ONCE, 0, WIDTH_SIZE) \
	X(REDUCE_SCATTER, reduce_scatter, two_level, CUT_NONE, ADDS_ANYHOW, NEEDS_NODES, \
	  WIDTH_TWO_SIZES) \
	X(REDUCE_SCATTER, reduce_scatter, circulant, CUT_NONE, ADDS_ANYHOW, 0, WIDTH_HALF_MORE) \
	X(REDUCE_SCATTER, reduce_scatter, knomial, CUT_NONE, ADDS_FIXED, 0, WIDTH_SIZES_LOG) \
	X(REDUCE_SCATTER, reduce_scatter, rings, CUT_HALVES, ADDS_ANYHOW, 0, WIDTH_TWO_SIZES) \
	WINDOW(REDUCE_SCATTER) \
	X(ALL_GATHER, all_gather, ring, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE) \
	X(ALL_GATHER, all_gather, direct, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE) \
	X(ALL_GATHER, all_gather, two_level, CUT_NONE, ADDS_ONCE, NEEDS_NODES, WIDTH_ONE) \
	X(ALL_GATHER, all_gather, circulant, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE) \
	X(ALL_GATHER, all_gather, knomial, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE) \
	X(ALL_GATHER, all_gather, rings, CUT_HALVES, ADDS_ONCE, 0, WIDTH_ONE) \
	WINDOW(ALL_GATHER) \
	X(BROADCAST, broadcast, ring, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE) \
	X(BROADCAST, broadcast, doubling, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE) \
	X(BROADCAST, broadcast, direct, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE) \
	X(BROADCAST, broadcast, two_level, CUT_RANKS, ADDS_ONCE, NEEDS_NODES, WIDTH_ONE) \
	X(BROADCAST, broadcast, knomial, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE) \
	X(BROADCAST, broadcast, tree, CUT_HALVES, ADDS_ONCE, 0, WIDTH_ONE) \
	X(BROADCAST, broadcast, spread, CUT_RANKS, ADDS_ONCE, 0, WIDTH_ONE) \
	WINDOW(BROADCAST) \
	X(REDUCE, reduce, direct, CUT_NONE, ADDS_ONCE, 0, WIDTH_SIZE) \
	X(REDUCE, reduce, ring, CUT_NONE, ADDS_ANYHOW, 0, WIDTH_ONE) \
	X(REDUCE, reduce, knomial, CUT_NONE, ADDS_FIXED, 0, WIDTH_LOG) \
	X(REDUCE, reduce, tree, CUT_HALVES, ADDS_ANYHOW, 0, WIDTH_TREE) \
	WINDOW(REDUCE) \
	X(GATHER, gather, direct, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE) \
	X(GATHER, gather, knomial, CUT_NONE, ADDS_ONCE, 0, WIDTH_SIZE) \
	WINDOW(GATHER) \
	X(SCATTER, scatter, direct, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE) \
	X(SCATTER, scatter, knomial, CUT_NONE, ADDS_ONCE, 0, WIDTH_SIZE) \
	WINDOW(SCATTER) \
	X(ALL_TO_ALL, all_to_all, direct, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE) \
	X(ALL_TO_ALL, all_to_all, bruck, CUT_NONE, ADDS_ONCE, NEEDS_EQUAL_BLOCKS, WIDTH_TWO_SIZES) \
	X(ALL_TO_ALL, all_to_all, pairwise, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE) \
	X(ALL_TO_ALL, all_to_all, knomial, CUT_NONE, ADDS_ONCE, \
	  NEEDS_EQUAL_BLOCKS | NEEDS_FEW_RANKS, WIDTH_SQUARE) \
	WINDOW(ALL_TO_ALL) \
	X(BARRIER, barrier, doubling, CUT_NONE, ADDS_ANYHOW, 0, WIDTH_LOG) \
	X(BARRIER, barrier, knomial, CUT_NONE, ADDS_ANYHOW, 0, WIDTH_LOG) \
	WINDOW(BARRIER)

/* How many rows there are; algorithms are numbered from 0. */
#define ALGORITHM_TABLE_ONE(...) +1
enum { ALGORITHMS = 0 ALGORITHM_TABLE(ALGORITHM_TABLE_ONE, ALGORITHM_TABLE_ONE) };

#endif
