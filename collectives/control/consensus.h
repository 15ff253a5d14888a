/* How ranks agree when their communicator may have failed: an endpoint of its own, on which nobody looks while all
 * goes well, and connections that are made when an agreement needs them and stay as long as the consensus. Who
 * connects before this rank takes part waits in the kernel.
 *
 * That a rank is out is proved when its process has ended (as far as the caller can see), or when nobody listens at
 * its address any more: a connection that breaks, and one that is not answered, prove nothing. */
#ifndef COLLECTIVES_CONTROL_CONSENSUS_H
#define COLLECTIVES_CONTROL_CONSENSUS_H

#include "collectives/control/agreement.h"

#include <tutti/transport.h>

struct consensus;

struct consensus_config {
	int rank, size;
	struct tutti_endpoint *endpoint; /* the consensus's from the call on; NULL: a world of one */
	int timeout_ms;                  /* how long a silent rank is waited for                 */
};

/* Held once. */
tutti_status consensus_create(struct consensus **consensus, const struct consensus_config *config);
/* Before the first question: where rank's consensus is to be found. */
tutti_status consensus_introduce(struct consensus *consensus, int rank, const uint8_t *address,
                               size_t address_bytes);
/* Before the first question, when its ranks are what is left of old's (their ranks there, in their new order): the
 * majority that decides is one of old's voters (quorum.h). Else its own ranks are the voters. */
tutti_status consensus_descend(struct consensus *consensus, const struct consensus *old, const int *ranks);
const struct quorum *consensus_quorum(const struct consensus *consensus);
/* For its address; NULL in a world of one. */
const struct tutti_endpoint *consensus_endpoint(const struct consensus *consensus);
struct consensus *consensus_hold(struct consensus *consensus);
void consensus_drop(struct consensus *consensus); /* the last one closes it; NULL is fine */

/* One agreement. All ranks ask the same questions in the same order, with rising numbers: the call (32 bits), then
 * what distinguishes the questions of one call (24 bits; its lowest two are the same for all of a call). */
struct consensus_question {
	const char *name;               /* of the call, for messages                           */
	uint64_t number;
	const void *record;             /* what this rank brings along                         */
	size_t record_bytes;            /* the same on all ranks                               */
	uint64_t late_ns;               /* so much later than this rank may others come        */
	bool (*has_ended)(void *arg, int rank); /* rank's process, for sure                    */
	void (*wait)(void *arg, uint64_t waited_ns); /* now and then while ranks are missing, or NULL */
	void *arg;
};

#define CONSENSUS_NUMBER(call, question) ((uint64_t)(call) << 24 | (uint64_t)(question))

/* OK: marks (by rank) and records (by rank, record_bytes each) say what has been decided, the same for all ranks that
 * get an answer. Whoever is no member then takes part in no later question. Else the consensus of this rank has
 * failed for good: TIMEOUT, too few ranks came; PEER, the others went on without this one; MISMATCH, MEMORY; ABORTED,
 * this thread's wait_limit was over (core/cancel.h). */
tutti_status consensus_ask(struct consensus *consensus, const struct consensus_question *question,
                         uint8_t *marks, void *records);
/* After ABORTED and MEMORY: whoever waits for this rank, which takes part in no question any more, finds nobody there, so
 * it counts as gone. As long as another communicator holds the consensus it is only silent. */
void consensus_leave(struct consensus *consensus);
/* Whether a rank was left out of an agreement that was not known to be dead: it may come back. */
bool consensus_misses(const struct consensus *consensus);
/* "rank 2", "ranks 1, 3": those marked so. Returns text. */
const char *consensus_list(const uint8_t *marks, int size, enum agreement_mark mark, char *text,
                         size_t text_bytes);

#endif
