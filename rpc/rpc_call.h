/* Inside the rpc: a call, as its caller has it. */
#ifndef RPC_RPC_CALL_H
#define RPC_RPC_CALL_H

#include "rpc/rpc_transfer.h"

enum rpc_slot_state {
	SLOT_IS_FREE,
	SLOT_CALLS,     /* call is in it                                         */
	SLOT_IS_LEFT,   /* its call is over; the callee's REPLY has not come       */
	SLOT_IS_ONE_WAY /* nobody waits for the REPLY                           */
};

/* The caller's side of a call. */
struct rpc_slot {
	_Alignas(64) struct rpc_message reply; /* of the recv that is posted */
	struct rpc_message request;            /* sent again after a recovery */
	tutti_rpc *rpc;
	int rank;
	uint32_t number;
	enum rpc_slot_state state;
	uint64_t id;
	tutti_work *work; /* the recv of REPLY, or ...; NULL: a thread waits for it, or none is */
	bool takes_along; /* ... of what comes along with it, which is in reply            */
	struct rpc_parcel *parcel; /* comes along with the request */
	bool is_running; /* STATE has come                                                  */
	bool is_held;    /* ... and the function has returned IN_PROGRESS                   */
	bool is_own;     /* of shutdown                                                     */
	struct tutti_rpc_future *call;
	struct rpc_slot *next_free;
};

/* A call, for its caller. */
struct tutti_rpc_future {
	tutti_rpc *rpc;
	int rank;
	struct rpc_slot *slot; /* NULL: it is over, or has none yet      */
	uint64_t deadline_ns;  /* 0: none                               */
	size_t bytes;
	int num_pieces;
	tutti_rpc_piece pieces[TUTTI_RPC_PIECES];
	tutti_rpc_answer *answer; /* NULL: not wanted */
	tutti_done_fn done;
	void *done_arg;

	bool is_own;                 /* of shutdown, which does not count it */
	bool is_one_way, has_landed; /* has_landed: the callee has all of its payload     */
	bool is_sending;             /* sends read the pieces                                    */
	bool is_receiving;           /* recvs write to block                                     */
	bool is_replied;             /* REPLY has come, but recvs are not over                   */
	uint8_t *block;              /* a long answer: the caller's room, or ...                 */
	bool owns_block;             /* ... ours                                                 */
	tutti_status refusal;        /* why a long answer was not taken; OK: it was            */
	tutti_status leaving; /* it ends with this when is_sending and is_receiving end; or OK */
	unsigned told_in;     /* the epoch of the last CANCEL                           */
	bool is_expiring;     /* its deadline has passed; the callee is asked where it is       */
	int timeout_ms;
	bool is_over;
	uint64_t over_ns; /* when, of a call with done                               */
	bool is_released; /* frees itself after done                                  */
	tutti_status status;
	char name[RPC_NAME_BYTES + 1];
	char error[RPC_ERROR_BYTES];
	struct tutti_rpc_future *next,
		**at; /* the list of calls with done, or of those that are over */
};

/* answer.c */
void rpc_slot_free(struct rpc_slot *slot);
/* The keeper looks after its deadline; it has done. */
void rpc_call_watch(struct tutti_rpc_future *call);
/* Ends the call, whose slot is left to the REPLY if that has not come. */
void rpc_call_end(struct tutti_rpc_future *call, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Ends it with status (TIMEOUT, ABORTED) as soon as nothing reads or writes its memory. */
void rpc_call_leave(struct tutti_rpc_future *call, tutti_status status);
void rpc_call_left(struct tutti_rpc_future *call); /* a transfer of it is over */
/* CANCEL: the callee waits for no payload, unless it is being sent already. */
void rpc_call_tell_cancel(struct tutti_rpc_future *call);
/* At its deadline: asks the callee first, then ends it. */
void rpc_call_look_at_clock(struct tutti_rpc_future *call, uint64_t now_ns);

/* Messages to a caller; m is sound. */
void rpc_on_pull(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_on_have(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_on_offer(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_on_state(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_on_reply(struct rpc_slot *slot); /* it is in slot->reply, and what comes along is there */
/* Whether bytes come along with it, and the room for them. */
bool rpc_reply_comes_along(const struct rpc_slot *slot);
void *rpc_room_along(struct rpc_slot *slot);

/* rpc_call.c */
/* Posts the recv of the REPLY, and sends the request, or CANCEL of a slot that is left. */
tutti_status rpc_slot_send(struct rpc_slot *slot);
/* The recv of the slot is over with status. */
void rpc_slot_answered(struct rpc_slot *slot, tutti_status status);
/* Deals with each REPLY of rank that has come and for which no thread waits. */
void rpc_slots_look(tutti_rpc *rpc, int rank);

/* The lock is held before and after. Shutdown does not count it. */
tutti_status rpc_call_own(tutti_rpc *rpc, int rank, const char *name, const tutti_rpc_piece *pieces,
			  int num_pieces, tutti_rpc_answer *answer,
			  const tutti_rpc_options *options);

#endif
