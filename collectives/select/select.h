/* Which algorithm serves a call: the user's override, else the cheapest of the table. */
#ifndef COLLECTIVES_SELECT_SELECT_H
#define COLLECTIVES_SELECT_SELECT_H

#include "collectives/plan/plan.h"
#include "collectives/select/links.h"

/* A row of the table in plan/algorithm_table.h. */
struct algorithm {
	enum collective collective; /* a pattern                                                */
	const char *name;
	algorithm_fn *build; /* NULL: the window                                          */
	cost_fn *cost;
	enum cut cut;
	enum adds adds;
	unsigned needs;
	enum width width;
};

/* NULL when there is none of that name. */
const struct algorithm *algorithm_find(enum collective collective, const char *name);
const struct algorithm *algorithm_at(int i); /* for tools and tests: NULL past the last one */
const char *algorithm_name(int i); /* its name */
uint32_t algorithm_split(const struct algorithm *a, int size);

/* All that the plan of one rank depends on. nodes: NULL for an algorithm that needs none. */
struct plan_key {
	int rank, size, root;
	bool in_place;
	struct plan_options options;
	const struct nodes *nodes;
};
/* NULL when out of memory. */
struct plan *algorithm_plan(const struct algorithm *a, const struct plan_key *key);
/* Scratch chunks at the most, for the options too. */
uint32_t algorithm_width(const struct algorithm *a, int size, struct plan_options options);

/* TUTTI_ALGO, parsed: "all_reduce:64K-1M=ring,broadcast=direct". Sizes are count * bytes of the
 * call; the first rule that fits is taken. */
#define SELECT_RULES_MAX 16
#define SELECT_SIZES     48 /* powers of two of bytes */
struct select_rule {
	enum collective collective;
	size_t first, last; /* bytes, both included */
	const struct algorithm *algorithm;
};
struct select {
	int size;
	int num_nodes;
	const struct nodes *nodes; /* NULL: one node, or nodes that are not alike           */
	bool has_window, deterministic;
	size_t slice_bytes, scratch_bytes; /* 256 KiB, 4 MiB if 0                             */
	struct links links;                /* see select_prepare                              */
	_Static_assert(ALGORITHMS <= INT8_MAX, "cheapest has their numbers");
	int8_t cheapest[COLL_PATTERNS][SELECT_SIZES]; /* in the table, for sums of f32        */
	int rules;
	struct select_rule rule[SELECT_RULES_MAX];
};
/* INVALID names what is wrong and lists what there is. text may be NULL. */
tutti_status select_parse(struct select *select, const char *text);
/* Predicts with these links from now on, and works out what is cheapest for each size. */
void select_prepare(struct select *select, const struct links *links);
/* Seconds that a should take for a call of bytes, as the API counts them; a has a cost. */
double select_seconds(const struct select *select, const struct algorithm *a, double bytes);
/* Why a cannot serve the call; NULL: it can. */
const char *select_why_not(const struct select *select, const struct algorithm *a,
			   const struct call_args *args);
/* Whether the window serves every call, so that there is nothing to choose. */
static inline bool select_is_window(const struct select *select)
{
	return select->has_window && !select->rules;
}
/* Depends on nothing but what all ranks agree on. UNSUPPORTED: a forced one cannot run, and why. */
tutti_status select_algorithm(const struct select *select, const struct call_args *args,
			      const struct algorithm **algorithm);
/* The same without the window: of a call that needs a plan. */
tutti_status select_planned(const struct select *select, const struct call_args *args,
			    const struct algorithm **algorithm);

#endif
