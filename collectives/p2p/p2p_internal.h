/* Inside point-to-point: what the p2p files know of each other. No other file includes it.
 *
 *     p2p.c           as the engine knows it; a work's way in and out; peers
 *     p2p_receive.c   what comes in on a channel, and which recv it is for
 *     p2p_send.c      eager sends, requests, data
 *     p2p_staged.c    data from GPU to GPU
 *     p2p_post.c      lists, ios, headers, control messages, slots and their credit
 *     p2p_failure.c   peers that are gone, calls that do not fit, words
 *
 * On the wire everything is a header of fixed size, some followed by a payload; both are ordinary
 * ios.
 *
 *     EAGER, payload  sender    a short message: it lies in a slot of the receiver until a recv
 *                               asks for it. The sender keeps the list of free slots: its credit
 *     REQUEST         sender    a message that is long, or for which no slot is free ...
 *     CLEAR           receiver  ... a recv has asked for it ...
 *     DATA, payload   sender    ... in pieces, each with a header, between the callers' buffers
 *     REQUEST_STAGED, CLEAR_STAGED  the same, if both buffers are on GPUs ...
 *     STAGED          sender    ... and a part lies in a stage on the sender's GPU ...
 *     TAKEN           receiver  ... which is free again
 *     CREDIT          receiver  slots that are free again; every other header may carry some too
 *     MISMATCH        receiver  ... or the recv that met it has another count or dtype
 *     UNFIT           receiver  the same of a short message, whose send is over
 *     LEAVING         either    the last one: tutti_comm_destroy
 *
 * Between ranks that share memory a message of up to MAILBOX_MESSAGE_BYTES goes through a mailbox
 * of the connection (transport/shm/mail.h) while that has room. The mailbox and the connection are
 * not ordered with each other. So each message in the mailbox carries the number of EAGER and
 * REQUEST headers that were sent before it, and each such header the number of mailbox messages.
 * The receiver takes a message when it has taken that many of the other kind and no payload is on
 * its way, so short messages end in their order. A blocking send or recv can use the mailbox
 * without a struct tutti_work (p2p_at_once).
 */
#ifndef COLLECTIVES_P2P_P2P_INTERNAL_H
#define COLLECTIVES_P2P_P2P_INTERNAL_H

#include "collectives/engine/task.h"
#include "transport/shm/mail.h"

#define P2P_CHANNEL     TUTTI_CHANNEL_PATIENT
#define P2P_TAG         0x70327032u /* of every io                                          */
#define P2P_EAGER_BYTES 16384u      /* the longest short message                            */
#define P2P_PIECE_BYTES 262144u     /* of a long one, so that others get in between         */
#define P2P_LEGS        2           /* pieces of one message in flight at once              */
#define P2P_REQUESTS    65536u      /* of one peer, not yet asked for; more is nonsense     */

/* Slots, smallest first: 256 KiB a peer, which bounds what a sender copies and what a receiver
 * keeps. */
#define P2P_CLASSES 3
#define P2P_SLOTS   170u
#define P2P_BY_MAIL P2P_SLOTS /* instead of a slot's number: it came by the mailbox */
struct p2p_class {
	uint32_t bytes, count, returned; /* returned: so many are told at once             */
};
extern const struct p2p_class p2p_classes[P2P_CLASSES];

enum p2p_kind {
	P2P_EAGER = 1,
	P2P_REQUEST,
	P2P_CLEAR,
	P2P_DATA,
	P2P_CREDIT,
	P2P_MISMATCH,
	P2P_LEAVING,
	P2P_UNFIT,
	P2P_REQUEST_STAGED,
	P2P_CLEAR_STAGED,
	P2P_STAGED,
	P2P_TAKEN,
};

/* All ranks lay it out alike, as struct member. */
struct p2p_header {
	uint32_t kind;
	int32_t tag;    /* STAGED, TAKEN: the leg                                          */
	uint32_t dtype; /* STAGED: the stage                                               */
	uint32_t id;    /* EAGER, UNFIT: the slot, or P2P_BY_MAIL; others: the sender's number */
	uint64_t count; /* as bytes; but STAGED: where the part begins in the message      */
	uint64_t bytes; /* of the message, but DATA, STAGED: the part; MISMATCH, UNFIT: the recv, */
			/* but UNFIT of P2P_BY_MAIL: the message                               */
	union {
		uint8_t is_mapped;  /* CLEAR, DATA: an adapter can reach this end's memory  */
		uint8_t mail_dtype; /* UNFIT of P2P_BY_MAIL: of the message                 */
	};
	uint8_t is_captured; /* 1: a captured call's, which only captured ones meet         */
	uint8_t returned_count, returned[25];
	uint32_t after; /* EAGER, REQUEST: messages in the mailbox that go before this one */
};
_Static_assert(sizeof(struct p2p_header) == 64, "a cache line");

/* The kind of an io of ours. */
enum p2p_what {
	P2P_HEADER_IN,
	P2P_PAYLOAD_IN,
	P2P_SLOT_OUT,
	P2P_MESSAGE_OUT,
	P2P_NOTE_OUT,
	P2P_COPY,    /* into a stage, or out of one */
	P2P_MAIL_IN, /* there is mail              */
};

struct p2p_peer;
struct p2p_io {
	struct engine_io base;
	enum p2p_what what;
	struct p2p_peer *peer;
	void *of; /* the struct p2p_slot, p2p_leg or p2p_note that it belongs to            */
};

/* Of a stage of the sender, as the receiver sees it. */
enum p2p_stage_state { STAGE_IS_UNUSED, STAGE_IS_FULL, STAGE_IS_COPIED, STAGE_IS_EMPTY };

/* A piece on its way out, or a header alone; or a part of a message that is staged. */
struct p2p_message;
struct p2p_leg {
	struct p2p_message *message;
	struct p2p_header header;
	struct p2p_io header_io, payload_io;
	int flying; /* ios; and the answer to STAGED                               */
	const void *copied; /* what the copy of a part reads                       */
	bool is_taken;      /* send: the answer has come                           */
	enum p2p_stage_state stage; /* recv: of the part that ...                  */
	struct p2p_header came;     /* ... this has announced                      */
};

/* A send or recv of ours that is not done. On one list at a time. */
struct p2p_message {
	struct p2p_message *next;
	struct tutti_work *work;
	struct p2p_peer *peer; /* recv from any rank: NULL until it has met its message    */
	uint8_t *buf;
	size_t bytes;
	size_t moved; /* send: handed to the transport; recv: there                       */
	uint32_t id;
	uint64_t stamp; /* recv: when it was posted                                     */
	size_t announced; /* recv: of parts in stages                                   */
	bool is_ready;  /* buf is filled                                                */
	bool is_staged; /* buf is on a GPU, and goes from there, or comes there         */
	/* buf is memory of a device, from or into which its data go; or NULL. Such a recv is
	 * cleared when its stream's earlier work is over. */
	struct direct_map *map;
	bool asks;      /* send: the peer's buf is such memory                          */
	bool is_met;    /* recv: it has met its message; send: the peer is clear for it */
	bool is_misfit; /* it has met one of another count or dtype, and ends with that */
	struct p2p_leg legs[P2P_LEGS];
};

struct p2p_queue {
	struct p2p_message *head, **tail;
};

/* A message that is here, at least by name, and that no recv has asked for. */
struct p2p_arrival {
	struct p2p_arrival *next;
	struct p2p_peer *peer;
	struct p2p_header header;
	uint64_t stamp;
	uint8_t *data;             /* eager: its slot; of the mailbox: behind this        */
	bool is_used, has_landed;  /* eager: the slot is taken; the payload is there      */
	bool is_unwanted;          /* eager: its recv did not fit                         */
	struct p2p_message *taker; /* eager: the recv that waits for it to land           */
	struct p2p_message *own;   /* this rank's own send, too long for a slot           */
};

/* The sender's end of a slot. Free when neither flying nor lent. */
struct p2p_slot {
	struct p2p_slot *next_free;
	struct p2p_header header;
	struct p2p_io header_io, payload_io;
	uint8_t *data;
	int flying;
	bool is_lent;  /* the receiver has not given it back                          */
	bool is_unfit; /* the recv that met it has another count or dtype             */
};

/* A control message with an io of its own. */
struct p2p_note {
	struct p2p_header header;
	struct p2p_io io;
	bool is_flying;
};

struct p2p_peer {
	struct p2p *p2p;
	int rank;
	struct tutti_conn *conn; /* NULL: this rank itself                               */
	bool is_up, is_heard;    /* something has come through; a header of its has      */
	bool has_left;           /* LEAVING has come                                     */
	bool is_lost;            /* the connection is broken, as status and why say      */
	tutti_status status;
	char why[240];

	struct p2p_queue outbox;    /* sends in order, until they are ready                 */
	struct p2p_queue requested; /* sends that wait for their CLEAR                      */
	uint32_t next_id;
	struct p2p_slot *slots, *free_slots[P2P_CLASSES]; /* slots: NULL until one is needed */
	uint32_t mailbox_sent, headers_sent; /* messages: by the mailbox; as EAGER or REQUEST */
	uint32_t unfits; /* UNFIT of messages in the mailbox that have come                 */
	struct p2p_note credit, leaving;

	struct p2p_queue posted;    /* recvs that wait for a message                        */
	struct p2p_queue receiving; /* recvs whose data come                                */
	struct p2p_arrival *unexpected, **unexpected_tail;
	struct p2p_arrival *kept; /* by slot; NULL until one is needed                    */
	uint32_t requests;        /* among the unexpected                                 */
	uint8_t returned[P2P_SLOTS];
	bool is_returned[P2P_SLOTS]; /* is among them: the sender does not know yet         */
	uint32_t returned_count, returned_of[P2P_CLASSES];

	struct p2p_header in;
	struct p2p_io header_in, payload_in, mail_in;
	bool awaits_mail;            /* mail_in is posted                                   */
	uint32_t mailbox_received, headers_received; /* messages, counted as above          */
	struct p2p_message *lands_in; /* of payload_in: the recv ...                        */
	struct p2p_arrival *lands_at; /* ... or the slot                                    */
};

/* Of one engine. */
struct p2p {
	struct engine *engine;
	const struct io_owner *owner; /* of all ios */
	struct p2p_peer **peers; /* NULL: not needed yet                                  */
	struct p2p_queue any;    /* recvs from any rank that wait                         */
	struct p2p_queue staging; /* sends whose data go through stages                   */
	uint32_t free_stages;     /* a bit for each                                       */
	uint64_t staged_bytes;    /* so much went through them, for tests                 */
	uint64_t stamp;
	bool any_gone; /* some peer has left or is lost                                       */
	struct p2p_message *free_messages;
	struct p2p_arrival *free_arrivals;
	int unsent; /* ios of eager sends in flight                                       */
	uint64_t unsent_until_ns;
};

static inline struct engine *p2p_engine(const struct p2p_peer *peer)
{
	return peer->p2p->engine;
}

static inline const struct task_spec *p2p_spec(const struct p2p_message *m)
{
	return &m->work->spec;
}

/* A message and its recv have it in common. */
static inline int64_t p2p_key(int32_t tag, bool is_captured)
{
	return tag + ((int64_t)is_captured << 33);
}

static inline int64_t p2p_key_of(const struct p2p_header *h)
{
	return p2p_key(h->tag, h->is_captured);
}

/* Whether messages between this rank and peer may go through stages. */
static inline bool p2p_stages_reach(const struct engine *e, int peer)
{
	const struct engine_stages *s = e->config.device.stages;
	return s && s->of[e->config.rank] && s->of[peer];
}

static inline bool p2p_is_flying(const struct p2p_message *m)
{
	for (int i = 0; i < P2P_LEGS; i++)
		if (m->legs[i].flying)
			return true;
	return false;
}

static inline bool p2p_is_self(const struct p2p_peer *peer)
{
	return peer->rank == peer->p2p->engine->config.rank;
}

/* Which class a slot is of. */
static inline int p2p_class_of(uint32_t slot)
{
	int c = 0;
	while (slot >= p2p_classes[c].count)
		slot -= p2p_classes[c++].count;
	return c;
}

/* p2p_failure.c */
bool p2p_is_gone(const struct p2p_peer *peer);
/* io on peer's channel has failed: the peer is gone, which concerns only those that wait for it. */
void p2p_lose(struct p2p_peer *peer, const struct tutti_io *io);
const char *p2p_in_words(const struct tutti_work *work, char *text, size_t text_bytes);
int p2p_explain(struct engine *e, const struct tutti_work *work, char *text, size_t text_bytes);
/* m has met a call of peer's with other's count and dtype: it ends with MISMATCH, once no io of it
 * is flying. The communicator stays well. */
void p2p_misfit(struct p2p_message *m, struct p2p_peer *peer, const struct p2p_header *other);
void p2p_end_misfit(struct p2p_message *m);
/* Says on stderr that send, which is over, has met peer's recv, of another count or dtype. */
void p2p_say_unfit(const struct p2p_peer *peer, const struct p2p_header *send,
		   const struct p2p_header *recv);
void p2p_why(const struct tutti_work *work, char *text, size_t text_bytes);
void p2p_nonsense(struct p2p_peer *peer, const char *what);
/* Fails the engine when a message waits for a peer that is gone. */
void p2p_check_gone(struct p2p *p);

/* p2p_post.c */
void p2p_push(struct p2p_queue *q, struct p2p_message *m);
bool p2p_has(const struct p2p_queue *q, const struct p2p_message *m);
struct p2p_message *p2p_find_id(const struct p2p_queue *q, uint32_t id); /* or NULL */
/* Takes m, which is on q, off. */
void p2p_remove(struct p2p_queue *q, struct p2p_message *m);
void p2p_name_source(struct p2p_message *m, int rank); /* in call.source of a recv        */
void p2p_count_sent(struct engine *e, size_t bytes);
void p2p_use_copies(struct p2p_message *m); /* where its work has some                    */
void p2p_done(struct p2p_message *m); /* ends its work                                 */
void p2p_ready_io(struct p2p_io *io, enum p2p_what what, struct p2p_peer *peer, void *of);
/* ios that belong to no work keep the engine moving. */
void p2p_hold(struct p2p *p, int ios);
void p2p_let_go(struct p2p *p);
void p2p_receive_on(struct p2p_message *m); /* ends it when nothing is missing        */
/* Where a slot lies in the memory of all slots of one side; of P2P_SLOTS: how long that is. */
size_t p2p_slot_offset(uint32_t slot);
void p2p_post_io(struct p2p_peer *peer, struct p2p_io *io, bool sends, void *buf, size_t bytes);
/* The same of memory of a device (map), or where the peer's may be such (asks). */
void p2p_post_data(struct p2p_peer *peer, struct p2p_io *io, bool sends,
		   const struct tutti_io *data);
void p2p_post_header(struct p2p_peer *peer, struct p2p_io *io, struct p2p_header *h);
struct p2p_header p2p_header_of(const struct p2p_message *m, enum p2p_kind kind, uint32_t id);
void p2p_send_header(struct p2p_message *m, enum p2p_kind kind, uint32_t id);
void p2p_send_this_header(struct p2p_message *m, const struct p2p_header *h);
/* Asks for the data of this request. */
void p2p_send_clear(struct p2p_message *m, const struct p2p_header *request);
/* A message that might have gone through stages, and does not, gets host copies. false: the engine
 * has failed. */
bool p2p_unstage(struct p2p_message *m);
void p2p_released(struct p2p_message *m); /* a recv: its stream's earlier work is over   */
void p2p_note(struct p2p_peer *peer, struct p2p_note *note, enum p2p_kind kind);
void p2p_note_sent(struct p2p_peer *peer, struct p2p_note *note);
/* Into the mailbox. False: it is too long, there is no mailbox, or no room. */
bool p2p_mail_put(struct p2p_peer *peer, const void *data, size_t bytes, tutti_dtype dtype,
		  int tag);
void p2p_deliver_mail(struct p2p_peer *peer); /* one more that was taken from the mailbox */
struct p2p_slot *p2p_take_slot(struct p2p_peer *peer, size_t bytes);
uint32_t p2p_slot_id(const struct p2p_slot *slot, const struct p2p_peer *peer);
void p2p_free_slot(struct p2p_peer *peer, struct p2p_slot *slot); /* unless it is flying or lent */
void p2p_take_back(struct p2p_peer *peer, uint32_t slot); /* the receiver's word, or our own   */
void p2p_give_back(struct p2p_peer *peer, uint32_t slot); /* tells the sender, in a while      */

/* p2p_receive.c */
void p2p_post(struct p2p_message *m); /* a recv looks for its message           */
void p2p_send_self(struct p2p_message *m);
void p2p_forget_unexpected(struct p2p_peer *peer);
void p2p_listen(struct p2p_peer *peer); /* posts the first receive of a channel   */
void p2p_heard(struct p2p_peer *peer);  /* a header is there                      */
void p2p_landed(struct p2p_peer *peer); /* a payload is there                     */
void p2p_take_mail(struct p2p_peer *peer); /* what is in the mailbox and comes next   */
/* A recv whose message is in the mailbox. False: it is not; may_come: look again soon. */
bool p2p_recv_at_once(struct p2p_peer *peer, const struct send_recv *m, bool *may_come);

/* p2p_send.c */
void p2p_send_on(struct p2p_peer *peer); /* what the outbox has ready              */
void p2p_cleared(struct p2p_peer *peer, const struct p2p_header *h);
void p2p_refused(struct p2p_peer *peer, const struct p2p_header *h);
void p2p_unfit(struct p2p_peer *peer, const struct p2p_header *h);
void p2p_send_pieces(struct p2p_message *m); /* what may fly of a cleared one     */
void p2p_sent(struct p2p_io *io); /* an io out has ended                    */

/* p2p_staged.c */
/* Whether what this call sends, or gets, may go through stages: then it has no host copies. */
bool p2p_may_stage(const struct engine *e, const struct task_spec *spec);
void p2p_stages_init(struct p2p *p);
void p2p_stage(struct p2p_message *m); /* a send, which the receiver has asked for  */
void p2p_stage_filled(struct p2p_peer *peer, const struct p2p_header *h); /* STAGED          */
void p2p_stage_taken(struct p2p_peer *peer, const struct p2p_header *h);  /* TAKEN           */
void p2p_copied(struct p2p_io *io);
/* An io of m's has ended, or its stream has come to it. */
void p2p_staged_on(struct p2p_message *m);

#endif
