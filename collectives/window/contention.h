/* Whether other threads want the ranks' cores, of other programs or of the ranks themselves, as
 * staged calls notice it: a rank that waits for its turn keeps all others waiting. Ranks that share
 * cores make their pieces long then, for fewer waits; else short, for the caches. All must cut
 * alike, so a rank says in its line what it has noticed, and all follow what any of them has said
 * in the last call whose lines all saw. */
#ifndef COLLECTIVES_WINDOW_CONTENTION_H
#define COLLECTIVES_WINDOW_CONTENTION_H

#include <stdbool.h>
#include <stdint.h>

/* So many calls have long pieces before one is short and judged again. */
#define CONTENTION_CALLS 16u

struct contention {
	bool is_agreed;              /* the same on all ranks */
	unsigned calls_left;         /* for so many more this rank says that it is contended */
	bool is_judged;              /* the call in flight is */
	uint64_t begun_ns, round_ns; /* of that call: its begin, the end of its last round ... */
	uint64_t long_ns;            /* ... and the sum of its long rounds */
};

static inline bool contention_is_noticed(const struct contention *contention)
{
	return contention->calls_left > 0;
}

/* A staged call begins to move that has short pieces but where cores are contended; is_short: it
 * has them now. */
void contention_begin(struct contention *contention, bool is_short, uint64_t now_ns);
/* A round is over. Its share of the call counts if it took longer than long_ns. */
void contention_round(struct contention *contention, uint64_t long_ns, uint64_t now_ns);
/* The call is over, at the end of its last round. */
void contention_end(struct contention *contention);

#endif
