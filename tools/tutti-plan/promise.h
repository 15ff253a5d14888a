/* What a collective promises: which contributions each chunk holds before the call and after it. */
#ifndef TUTTI_PLAN_PROMISE_H
#define TUTTI_PLAN_PROMISE_H

#include "look.h"

enum holder { HOLDS_NOTHING, HOLDS_ONE_RANK, HOLDS_ALL_RANKS };

/* A block of one rank, or of all of them, added up. NOTHING: the buffer may not be there at all. */
struct content {
	enum holder holder;
	uint32_t block;
	int rank;
};

bool promise_reduces(enum collective collective);
/* BUF_IN before the call; BUF_OUT after it. */
struct content promise_of(const struct plan_set *set, int rank, struct ref ref);

#endif
