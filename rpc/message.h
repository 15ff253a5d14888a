/* The messages that ranks of an rpc send each other: all of one size, so that every recv fits.
 * Bytes
 * that do not fit into one are messages of their own. Up to RPC_ALONG_BYTES come along, unasked:
 * the other side posts a recv for them as soon as it has the message. Longer ones are sent when
 * both sides are ready for them.
 *
 *     REQUEST   caller   a call; a short payload is in it
 *     PULL      callee   it has memory for a long payload ...
 *     COMING    caller   ... which is sent now: the callee posts its recvs
 *     HAVE      callee   a long payload of a one-way call is all there
 *     REPLY     callee   the end of a call, with a short answer, or the message of an error
 *     OFFER     callee   a long answer ...
 *     TAKE      caller   ... for which recvs are posted: it is sent now, and then REPLY
 *     DROP      caller   the answer has arrived, or, with is_dropped, the caller discards it
 *     CANCEL    caller   the call is over for its caller; it is answered by REPLY, too
 *     STATE     callee   the call that was cancelled runs, so its REPLY comes later
 *
 * A REPLY has the tag of its call's slot, for which the caller has posted a recv of its own; all
 * others have RPC_TAG_NOTES. */
#ifndef RPC_MESSAGE_H
#define RPC_MESSAGE_H

#include <tutti/rpc.h>

#include <stdbool.h>

enum rpc_kind {
	RPC_REQUEST = 1,
	RPC_PULL,
	RPC_COMING,
	RPC_HAVE,
	RPC_REPLY,
	RPC_OFFER,
	RPC_TAKE,
	RPC_DROP,
	RPC_CANCEL,
	RPC_STATE,
};

/* Whether a REPLY has no answer, since its callee had received CANCEL ... */
enum rpc_cancelled {
	RPC_NOT_CANCELLED,
	RPC_BEFORE_IT_RAN,   /* ... before the function began */
	RPC_BEFORE_IT_ENDED, /* ... before the reply was ended */
};

enum {
	RPC_MESSAGE_BYTES = 256,
	RPC_INLINE_BYTES = 192,
	RPC_ALONG_BYTES = 8192,
	RPC_NAME_BYTES = 63,
	RPC_CALLS_MAX = 1024, /* slots of one rank for another */
	RPC_ERROR_BYTES = 512,
};

/* Tags. Each slot has one of each kind but the first. */
enum {
	RPC_TAG_NOTES = 0,
	RPC_TAG_REPLY = 1,
	RPC_TAG_PAYLOAD = 1 + RPC_CALLS_MAX,
	RPC_TAG_ANSWER = 1 + 2 * RPC_CALLS_MAX,
};

/* A call's name is (its caller, slot, id): ids of a slot rise. All ranks lay it out alike. The
 * function's name lies at the end of data. */
struct rpc_message {
	uint32_t kind;
	uint32_t slot;
	uint64_t id;
	uint64_t bytes;   /* REQUEST: of the payload; REPLY, OFFER: of the answer or the error */
	uint64_t context; /* REQUEST: rpc_context of the caller                            */
	int32_t status;   /* REPLY, OFFER                                                  */
	int32_t timeout_ms;
	uint8_t num_pieces; /* of the bytes that come by themselves, with their sizes in data; 0:
			     * the bytes are in data                                       */
	uint8_t name_bytes;
	uint8_t is_one_way;
	uint8_t cancelled;   /* REPLY: enum rpc_cancelled                                  */
	uint8_t is_dropped;  /* REPLY: without the bytes; DROP: the caller discards the answer */
	uint8_t comes_along; /* REQUEST, REPLY: the one piece is sent beside this message  */
	uint8_t is_coming;   /* CANCEL: as if COMING had come before it */
	uint8_t shares;      /* REPLY: references were shared with the caller for this answer */
	uint8_t is_held;     /* STATE: the function has returned, and its reply was not ended */
	uint8_t reserved[15];
	uint8_t data[RPC_INLINE_BYTES];
};
_Static_assert(sizeof(struct rpc_message) == RPC_MESSAGE_BYTES, "a short message of p2p");

#define RPC_BYTES_MOST (SIZE_MAX / 2) /* of a payload or an answer */

/* An allocation that the system grants, but cannot fill, would end the process. */
bool rpc_memory_has(uint64_t bytes);
/* INVALID with a message that begins with what: there are too many, or none where there should be.
 */
tutti_status rpc_pieces_check(const char *what, const tutti_rpc_piece *pieces, int num_pieces);
/* Sizes and numbers of a message from another rank, which is authenticated but may be broken: what
 * passes can be used without a further look. The slot is below RPC_CALLS_MAX. */
bool rpc_message_is_sound(const struct rpc_message *m);
/* Of a message with num_pieces. */
size_t rpc_message_piece(const struct rpc_message *m, int piece);
void rpc_message_set_pieces(struct rpc_message *m, const tutti_rpc_piece *pieces, int n);
/* How many bytes are inline beside a name of that length. */
static inline size_t rpc_room_beside(size_t name_bytes)
{
	return RPC_INLINE_BYTES - name_bytes;
}
static inline const char *rpc_message_name(const struct rpc_message *m)
{
	return (const char *)m->data + RPC_INLINE_BYTES - m->name_bytes;
}

#endif
