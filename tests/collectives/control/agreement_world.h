/* Ranks that agree in a simulated world, on one question after the other, each among those that the
 * last one had as members: messages that wait, are lost or come late, ranks that die, sleep, begin
 * late or leave, and a clock that jumps. Everything follows from the seed. */
#ifndef TESTS_COLLECTIVES_CONTROL_AGREEMENT_WORLD_H
#define TESTS_COLLECTIVES_CONTROL_AGREEMENT_WORLD_H

#include "collectives/control/agreement.h"

#define WORLD_RANKS     8
#define WORLD_RECORD    3  /* bytes of a record */
#define WORLD_QUEUE     16 /* messages on their way from one rank to another; a full link breaks */
#define WORLD_GRACE     1000000000u
#define WORLD_QUESTIONS 5
#define WORLD_VALUE     (WORLD_RANKS * (1 + WORLD_RECORD))

struct world_message {
	struct agreement_message m;
	int number; /* of the question */
	uint8_t record[WORLD_RECORD], gone[WORLD_RANKS];
	uint8_t value[WORLD_VALUE];
};

struct world_link {
	struct world_message queue[WORLD_QUEUE];
	int first, count;
	bool is_cut;
};

/* What may happen. */
struct world_rules {
	bool crashes, breaks, cuts, sleeps, leaves, jumps;
	bool stays; /* who has its verdict leaves at once, but not before nobody counts on it */
	uint64_t late_ns; /* so much later than the others may a rank begin, as they know */
	bool duels; /* all begin at once, and clocks jump all the time: many take themselves for
		       leaders */
};

struct world {
	int size;
	uint64_t random, clocks_ns[WORLD_RANKS]; /* each rank has its own */
	struct world_rules rules;
	bool candidates[WORLD_RANKS];
	bool is_begun[WORLD_RANKS], is_alive[WORLD_RANKS], is_asleep[WORLD_RANKS];
	bool is_deaf[WORLD_RANKS];   /* has its verdict, and listens no more */
	bool is_absent[WORLD_RANKS]; /* alive, and never begins */
	uint8_t records[WORLD_RANKS][WORLD_RECORD];
	struct agreement ranks[WORLD_RANKS];
	int questions, number[WORLD_RANKS]; /* how many; which one a rank is at */
	uint8_t past[WORLD_RANKS][WORLD_QUESTIONS][WORLD_VALUE]; /* decisions */
	bool went_on[1 << WORLD_RANKS]; /* groups (a bit for each rank) that were decided by anybody
					 */
	bool anybody_died;
	uint64_t sides; /* by rank, a bit: of world_tear */
	int differing;  /* pairs of living ranks with different decisions, which a death allowed */
	struct world_link links[WORLD_RANKS][WORLD_RANKS];
	const char *wrong; /* the first thing that must not be; NULL: none */
};

void world_begin(struct world *w, int size, uint64_t seed, struct world_rules rules);
/* So many random events. */
void world_run(struct world *w, int events);
/* Two sides that do not hear of each other, or of which one sleeps: others, the same or exchanged.
 * Some ranks die. */
void world_tear(struct world *w);
/* So many turns in which all say what they can, time goes by and every death becomes known. */
void world_settle(struct world *w, int rounds);
/* Nothing dies, breaks or sleeps any more, and every death becomes known: until all have ended, or
 * too long. */
void world_reconnect(struct world *w);
void world_end(struct world *w);

static inline enum agreement_end world_outcome(const struct world *w, int rank)
{
	return w->ranks[rank].end;
}

#endif
