/* One collective of any kind with known values, through the public API, for tests in which ranks
 * disagree: what a call that ends well must leave in its buffer does not depend on what the other
 * ranks did. */
#ifndef TESTS_COLLECTIVES_ANY_CALL_H
#define TESTS_COLLECTIVES_ANY_CALL_H

#include "collectives/plan/calls.h"

#include <stdbool.h>

#define ANY_RANKS 8

struct any_call {
	enum collective collective;
	tutti_dtype dtype; /* F32, I32 or F64 */
	tutti_op op;       /* SUM or MAX */
	int root;
	size_t count; /* v-calls: of rank 0's block; the next ones have shift more each */
	size_t shift;
};

/* A call with its buffers. */
struct any_made {
	struct any_call call;
	int rank, size;
	void *send, *recv;
	size_t counts[ANY_RANKS], send_count, recv_count;
};

/* The buffers are any_free's. work NULL: blocking. */
tutti_status any_start(struct any_made *made, const struct any_call *call, tutti_comm *comm,
		       tutti_work **work);
/* After it ended well: whether recv is what this call leaves when all ranks make it. */
bool any_is_right(const struct any_made *made);
void any_free(struct any_made *made);
/* In the words of a mismatch. Returns text. */
const char *any_words(const struct any_call *call, int size, uint64_t sequence, char *text,
		      size_t text_bytes);

#endif
