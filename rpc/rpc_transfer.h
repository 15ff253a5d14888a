/* Inside the rpc: sends and recvs, and the memory of those that the rpc sends by itself. */
#ifndef RPC_RPC_TRANSFER_H
#define RPC_RPC_TRANSFER_H

#include "rpc/message.h"

/* A send of memory of ours; the first member of those that follow. */
struct rpc_send {
	tutti_work *work;          /* NULL: it is not in flight */
	struct rpc_parcel *parcel; /* whose it is; NULL: a note's */
	struct rpc_send *next;
};

/* A message on its way out. */
struct rpc_note {
	struct rpc_send send;
	struct rpc_note *next_free;
	_Alignas(64) struct rpc_message message;
};

/* Bytes that come along with a message: a copy, for the pieces may be gone when it is sent again.
 */
struct rpc_parcel {
	struct rpc_send send;
	bool is_held; /* it may be sent again */
	size_t bytes;
	uint8_t data[];
};

/* What rpc_issue returns is OK, or the rpc recovers or has ended, or MEMORY. */
struct rpc_io {
	bool sends;
	int rank, tag; /* rank: the first communicator's, or TUTTI_ANY */
	const tutti_rpc_piece *pieces;
	int num_pieces;
	tutti_work **work;  /* or ... */
	tutti_done_fn done; /* ... and this, which counts as inside */
	void *done_arg;
	int *source;
};
tutti_status rpc_issue(tutti_rpc *rpc, const struct rpc_io *io);
/* A work that rpc_issue has begun is over. */
void rpc_issued_over(tutti_rpc *rpc, bool has_called);
/* Receives bytes that nobody wants. */
void rpc_swallow(tutti_rpc *rpc, size_t bytes, int rank, int tag);

/* Sends a copy of m. */
tutti_status rpc_post(tutti_rpc *rpc, const struct rpc_message *m, int rank, int tag);
/* About the call of that message: kind, with its slot and id. */
void rpc_post_note(tutti_rpc *rpc, enum rpc_kind kind, const struct rpc_message *about, int rank);
/* Afterwards the next rpc_post cannot fail for want of memory. */
tutti_status rpc_notes_reserve(tutti_rpc *rpc);
/* A held parcel with these bytes; NULL: no memory. */
struct rpc_parcel *rpc_parcel_make(const tutti_rpc_piece *pieces, int num_pieces, size_t bytes);
void rpc_parcel_send(tutti_rpc *rpc, struct rpc_parcel *parcel, int rank, int tag);
void rpc_parcel_let_go(struct rpc_parcel **parcel); /* NULL is fine */
void rpc_sends_look(tutti_rpc *rpc);                /* whether some are over */
/* Waits for all, of a communicator that has failed. */
void rpc_sends_end(tutti_rpc *rpc);
void rpc_notes_free(tutti_rpc *rpc);

#endif
