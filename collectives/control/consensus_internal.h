/* Shared by consensus.c and consensus_link.c. */
#ifndef COLLECTIVES_CONTROL_CONSENSUS_INTERNAL_H
#define COLLECTIVES_CONTROL_CONSENSUS_INTERNAL_H

#include "collectives/control/consensus.h"

#include "core/long_wait.h"

#include <stdatomic.h>

/* consensus_link.c: a connection of the consensus to one rank. A message is a head, and what the
 * head announces. */

/* All ranks lay it out alike: same library, same machine word order, checked when they joined. */
struct consensus_head {
	uint32_t magic, kind;           /* enum agreement_kind, or CONSENSUS_LATE                */
	uint64_t number, ballot, accepted;
	uint32_t is_fresh, has_value;
	uint32_t record_bytes, body_bytes; /* of a record; of what follows                     */
};

/* The answer to a question whose decision is forgotten, so long ago it was decided. */
#define CONSENSUS_LATE AGREEMENT_KINDS

struct consensus_link {
	int peer, size;                 /* of the consensus                                      */
	struct tutti_endpoint *endpoint;
	uint8_t address[TUTTI_ADDRESS_BYTES];
	size_t address_bytes;
	struct tutti_conn *conn;        /* NULL if there is none                               */
	int channel;                    /* of the next one                                     */
	int refusals;                   /* connections in a row that were refused              */
	int failures;                   /* connections in a row that brought no message        */
	uint64_t rests_until_ns;
	bool was_heard, is_lost;        /* of conn: bytes came; it has failed                  */
	bool is_sending, has_message;
	struct consensus_head in, out;
	struct tutti_io in_head, in_body, out_head, out_body;
	uint8_t *in_bytes, *out_bytes;
	size_t in_room, out_room;
};

/* Whether it is connected or connecting now. False: it rests, or never again. */
bool consensus_link_open(struct consensus_link *l);
/* Whether no process listens there any more. */
bool consensus_link_is_refused(const struct consensus_link *l);
/* Only while nothing is being sent. Copies m. MEMORY when that fails. */
tutti_status consensus_link_send(struct consensus_link *l, uint64_t number, size_t record_bytes,
                               const struct agreement_message *m);
/* One of the link's ios is done. */
void consensus_link_done(struct consensus_link *l, const struct tutti_io *io);
/* After all ios that are done: closes a connection that has failed. Returns whether it did:
 * messages may be lost. */
bool consensus_link_settle(struct consensus_link *l);
/* The message that has come, whose pointers are valid until consensus_link_listen. */
struct agreement_message consensus_link_message(const struct consensus_link *l);
void consensus_link_listen(struct consensus_link *l);
void consensus_link_close(struct consensus_link *l);

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
	bool misses, is_at_rest;
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
	uint64_t kernel_asked_ns; /* when it was last asked which processes have ended     */
	uint64_t goodbye_ns; /* once it has ended                                         */
	struct long_wait wait;
	tutti_status status; /* not OK: this rank gives up                                */
};

#endif
