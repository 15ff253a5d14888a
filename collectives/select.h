/* Which algorithm serves a call: the table of all there are, the user's override, the default. */
#ifndef COLLECTIVES_SELECT_H
#define COLLECTIVES_SELECT_H

#include "collectives/plan.h"
#include "collectives/window.h"

struct algorithm {
	enum collective collective;
	const char *name;
	void (*build)(struct plan *, struct group, struct span in,
		      struct span out); /* NULL: window */
	bool in_parts, out_parts;       /* a chunk for every rank, or one                         */
	bool is_exact;               /* reduces all contributions at once, fixed association    */
	uint32_t (*width)(int size); /* scratch chunks at the most, the same on all ranks      */
};

/* NULL when there is none of that name. */
const struct algorithm *algorithm_find(enum collective collective, const char *name);
const struct algorithm *algorithm_at(int i); /* for tools and tests: NULL past the last one */
/* Builds the plan of one rank. NULL when out of memory. */
struct plan *algorithm_plan(const struct algorithm *a, int rank, int size, int root, bool in_place,
			    bool staged);

/* TUTTI_ALGO, parsed: "all_reduce:64K-1M=ring,broadcast=direct". Sizes are count * bytes of the
 * call; the first rule that fits is taken. */
#define SELECT_RULES_MAX 16
struct select_rule {
	enum collective collective;
	size_t first, last; /* bytes, both included */
	const struct algorithm *algorithm;
};
struct select {
	int size;
	bool has_window, deterministic;
	int rules;
	struct select_rule rule[SELECT_RULES_MAX];
};
/* INVALID names what is wrong and lists what there is. text may be NULL. */
tutti_status select_parse(struct select *select, const char *text);
/* Depends on nothing but what all ranks agree on. UNSUPPORTED: a forced one cannot run, and why. */
tutti_status select_algorithm(const struct select *select, const struct call_args *args,
			      const struct algorithm **algorithm);

#endif
