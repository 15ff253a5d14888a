/* How ranks agree when their communicator may have failed. The consensus has an endpoint of its
 * own, which is not looked at while all goes well. Ranks that share memory open theirs when they
 * first need it, and find each other's address there (consensus_rest). A connection is made when an
 * agreement needs it, and stays as long as the consensus. If a rank connects before this one takes
 * part, the kernel keeps its connection.
 *
 * A rank is proved dead when its process has ended (as far as the caller can see), or when no
 * process listens at its address any more. A connection that breaks proves nothing, and neither
 * does one that is not answered. */
#ifndef COLLECTIVES_CONTROL_CONSENSUS_H
#define COLLECTIVES_CONTROL_CONSENSUS_H

#include "collectives/control/agreement.h"

#include <tutti/transport.h>

struct consensus;

struct consensus_config {
	int rank, size;
	struct tutti_endpoint *endpoint; /* owned from the call on; NULL in a world of one */
	int timeout_ms;                  /* how long a silent rank is waited for                 */
};

/* The caller holds it once. */
tutti_status consensus_create(struct consensus **consensus, const struct consensus_config *config);
/* Before the first question: the address of the consensus of rank. */
tutti_status consensus_introduce(struct consensus *consensus, int rank, const uint8_t *address,
                               size_t address_bytes);
/* Before the first question of a consensus of ranks that are left of old's: ranks are their ranks
 * there, in their new order. The voters are old's voters then (quorum.h), else its own ranks. */
tutti_status consensus_descend(struct consensus *consensus, const struct consensus *old,
                               const int *ranks);
const struct quorum *consensus_quorum(const struct consensus *consensus);
/* For its address; NULL in a world of one. */
const struct tutti_endpoint *consensus_endpoint(const struct consensus *consensus);
/* Before the first question: closes the endpoint and forgets the addresses. */
void consensus_rest(struct consensus *consensus);
bool consensus_is_at_rest(const struct consensus *consensus);
/* The rest is over. endpoint is owned from the call on; NULL: it could not be opened, with
 * last_error(), and every question fails with status. */
void consensus_wake(struct consensus *consensus, struct tutti_endpoint *endpoint,
                    tutti_status status);
struct consensus *consensus_hold(struct consensus *consensus);
void consensus_drop(struct consensus *consensus); /* the last one closes it; NULL is fine */

/* One agreement. All ranks ask the same questions in the same order, with rising numbers: 32
 * bits of the call, then 24 bits of the question within the call. The lowest two are the same
 * for all questions of a call. */
struct consensus_question {
	const char *name;               /* of the call, for messages                           */
	uint64_t number;
	const void *record;             /* what this rank brings along                         */
	size_t record_bytes;            /* the same on all ranks                               */
	uint64_t late_ns;               /* other ranks may come this much later than this one  */
	bool (*has_ended)(void *arg, int rank); /* whether rank's process has, for sure        */
	/* The address of a rank that was not introduced, and its bytes; 0: not known so far */
	size_t (*find_address)(void *arg, int rank, uint8_t address[TUTTI_ADDRESS_BYTES]);
	void (*wait)(void *arg, uint64_t waited_ns); /* while ranks are missing; or NULL */
	void *arg;
};

#define CONSENSUS_NUMBER(call, question) ((uint64_t)(call) << 24 | (uint64_t)(question))

/* OK: marks (by rank) and records (by rank, record_bytes each) are the decision, the same on all
 * ranks that get an answer. A rank that is no member takes part in no later question. After an
 * error the consensus of this rank has failed for good: TIMEOUT, too few ranks came; PEER, the
 * others went on without this rank; MISMATCH; MEMORY; ABORTED, this thread's wait_limit was over
 * (core/cancel.h). */
tutti_status consensus_ask(struct consensus *consensus, const struct consensus_question *question,
                         uint8_t *marks, void *records);
/* After ABORTED and MEMORY, when this rank takes part in no question any more: closes the
 * endpoint, so that ranks that wait for this one see it as dead. If another communicator holds
 * the consensus, the endpoint stays and this rank is only silent. */
void consensus_leave(struct consensus *consensus);
/* Whether an agreement has left out a rank that was not known to be dead: it may come back. */
bool consensus_misses(const struct consensus *consensus);
/* "rank 2", "ranks 1, 3": those marked so. Returns text. */
const char *consensus_list(const uint8_t *marks, int size, enum agreement_mark mark, char *text,
                         size_t text_bytes);

#endif
