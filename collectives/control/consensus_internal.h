/* What consensus.c (its life, and asking), inquiry.c (a question under way) and decisions.c
 * (what was decided before) know of each other. */
#ifndef COLLECTIVES_CONTROL_CONSENSUS_INTERNAL_H
#define COLLECTIVES_CONTROL_CONSENSUS_INTERNAL_H

#include "collectives/control/consensus.h"
#include "collectives/control/consensus_link.h"

#include <stdatomic.h>

#define DECISIONS 8 /* so many are remembered, for ranks that missed them */

struct decision {
	uint64_t number;
	size_t record_bytes;
	uint8_t *value; /* NULL if there is none */
};

struct consensus {
	atomic_int holders;
	struct consensus_config config;
	struct consensus_link *links; /* by rank                                             */
	struct tutti_done done;
	bool *members; /* by rank: whether it takes part in the next question              */
	struct quorum quorum;
	bool misses;
	struct decision past[DECISIONS];
	int past_at;
	tutti_status failed; /* OK, or why consensus ended here                            */
	char error[ERROR_BYTES];
};

/* One question under way. */
struct inquiry {
	struct consensus *consensus;
	const struct consensus_question *question;
	struct agreement agreement;
	uint64_t begun_ns;
	uint64_t goodbye_ns; /* once it has ended                                         */
	tutti_status status; /* not OK: this rank gives up                                */
};

/* Until all that need it know how it has ended, or q->status says why this rank gives up. */
void inquiry_run(struct inquiry *q);
/* The error of a rank that the others have left out. */
tutti_status inquiry_left_out(const struct inquiry *q);

void decisions_remember(struct consensus *c, uint64_t number, const struct agreement *a);
/* Answers a message of the link about a question that was decided before. */
tutti_status decisions_answer(const struct consensus *c, struct consensus_link *l);

#endif
