/* ucx: whatever UCX finds between two ranks: InfiniBand, RoCE, shared memory, tcp. What the files
 * of this folder share.
 *
 *     endpoint.c  the endpoint: its address, progress, sleeping, the table of functions
 *     conn.c      a connection: greeting the peer through oob, what is posted on it, how it moves
 *     messages.c  posted sends into blocks, and blocks into posted receives
 *     conn_end.c  how it ends
 *     worker.c     its UCX worker and UCX endpoint; what UCX calls back
 *     library.c   libucp, loaded at run time
 *
 * A file calls only files that stand below it.
 *
 * Each conn has a UCX worker of its own. So a conn that ends destroys its worker, and then UCX
 * touches no buffer of it any more, whatever was on its way; UCX has no other such promise where it
 * uses shared memory.
 *
 * A message goes in numbered blocks, each one active message: a header, and bytes. A message of up
 * to UCX_EAGER bytes is one eager block. Its bytes are copied at both ends, and the send is done at
 * once. The blocks of a longer one go by rendezvous, UCX_BLOCK bytes each: UCX moves them from
 * buffer to buffer when the receive has been posted.
 *
 * The peer's UCX may read a buffer of this end by itself (CMA), also after this conn has been
 * closed. So a receiver is done only when the sender has said that its buffer was its own until
 * UCX had completed the block (committed).
 *
 * At most UCX_WINDOW blocks are on their way. Each header says how many of the other direction's
 * are done; a notice says it where no message does. */
#ifndef TRANSPORT_UCX_UCX_H
#define TRANSPORT_UCX_UCX_H

#include "transport/oob/oob.h"
#include "transport/registry.h"
#include "transport/ucx/library.h"

#include <tutti/transport.h>
#include <sys/queue.h>

#define UCX_WINDOW 32u   /* a power of 2 */
#define UCX_EAGER  8000u /* with its header one packet of UCX's tcp and sm */
#define UCX_BLOCK  ((size_t)1 << 20)
/* Of eager blocks on their way: the kernel takes them all, also while the peer does not read. What
 * it does not take stays in UCX until this rank comes back into the library. */
#define UCX_OUTSTANDING ((size_t)64 << 10)
#define UCX_STAGES      2                  /* blocks a direction whose bytes lie in pieces */
#define UCX_DIRECT      ((size_t)32 << 10) /* a piece of so many bytes is a block of its own */

enum ucx_kind { UCX_DATA = 1, UCX_NOTICE };

/* In front of each block. The counts are of blocks of the other direction, but committed. */
struct ucx_header {
	uint64_t bytes, offset; /* of the message; of the block in it */
	uint32_t tag, number;   /* of the message; of the block in its direction */
	uint32_t got, arrived;  /* received; come here, all before them too */
	uint32_t committed;     /* blocks of this direction whose buffers nobody reads any more */
	uint16_t kind, wants_ack;
};

/* The hello of oob: this, and the worker's address behind it. */
struct ucx_hello {
	uint32_t magic, address_bytes;
};

/* Notes of oob. BYE: number blocks have been sent, all of them committed. */
enum { UCX_NOTE_FAILED = 1, UCX_NOTE_BYE, UCX_NOTE_BYE_ACK };

/* A block that is sent. is_complete: its buffer is the caller's again. */
struct ucx_slot {
	struct ucx_conn *conn;
	struct ucx_header header;
	bool is_busy, is_bulk, is_complete;
	int stage; /* -1: none */
};

/* A block that has come and waits for a receive: bytes in memory of the conn, or desc. */
struct ucx_arrival {
	struct ucx_header header;
	size_t bytes;
	void *desc; /* rendezvous */
	bool is_here;
};

/* A block that is being received. at: where its bytes go that come into a stage. */
struct ucx_fetch {
	struct ucx_conn *conn;
	struct tutti_io at;
	size_t bytes;
	bool is_done;
	int stage; /* -1: none */
};

/* CONNECTING: until the peer's hello. CONNECTED: until the first message of UCX. ENDED: the peer is
 * gone; what it sent before can still be received. */
enum ucx_state { UCX_CONNECTING, UCX_CONNECTED, UCX_OPEN, UCX_ENDED, UCX_FAILED };

struct ucx_conn {
	struct tutti_conn base;
	struct oob_conn oob;
	enum ucx_state state;
	bool is_closing;  /* by the caller: it goes on until all has arrived                      */
	bool is_active;   /* on the endpoint's list: has something to do                          */
	bool has_told;    /* the peer, that it has failed                                         */
	bool has_said_bye; /* this end                                                           */
	bool has_left;    /* the peer: BYE has come                                               */
	bool is_released; /* the peer has answered BYE, or is owed nothing                       */
	struct ucx_conn *next_conn;
	LIST_ENTRY(ucx_conn) active;
	uint64_t deadline_ns; /* of closing                                                      */
	struct {
		ucp_worker_h worker; /* NULL: no byte moves any more                             */
		ucp_ep_h ep;
		bool has_force; /* UCX watches the peer, and ends requests at once          */
		bool is_closing;
		bool is_watched; /* its descriptor, by the endpoint's epoll                  */
		int fd;
		ucs_status_t broken; /* what UCX has said of the peer, or UCS_OK                 */
		bool is_looked_at;   /* oob had a chance to say it better                        */
	} wire;
	struct {
		tutti_status status;
		char error[240];
	} ended; /* why it has                                                                   */

	struct tutti_done sends, recvs; /* posted                                             */
	struct tutti_done sending, receiving; /* all blocks on their way; in_piece: their end,
					       * piece: 1 when one went by rendezvous            */
	uint32_t sent, completed; /* blocks; UCX is done with all before it             */
	int busy, busy_small;     /* slots, the notice too; but those of rendezvous */
	uint32_t eager_bytes;     /* come since the peer was told what has */
	struct {
		uint32_t eager, bulk; /* behind the last eager block; the last other        */
		uint32_t completed;   /* behind the last other that is complete             */
	} ends;
	struct {
		size_t bytes; /* of eager blocks, from block from on                */
		uint32_t from;
	} outstanding;
	struct {
		uint32_t got, arrived, committed;
	} peer, told;                /* by the peer; to the peer                           */
	uint32_t arrived, next, got; /* blocks come; to be received next; received         */
	bool owes_ack, has_asked;    /* the peer asked for a notice; this end did          */
	struct ucx_slot slots[UCX_WINDOW], notice;
	struct ucx_arrival arrivals[UCX_WINDOW];
	struct ucx_fetch fetches[UCX_WINDOW];
	uint8_t *eager_out, *eager_in; /* UCX_EAGER bytes for each of a window               */
	struct {
		uint8_t *base; /* UCX_STAGES blocks, when they are needed            */
		bool used[UCX_STAGES];
	} stages[2]; /* out, in                                            */
};

struct ucx_endpoint {
	struct tutti_endpoint base;
	int rank;
	bool has_rdma;
	struct oob_endpoint *oob; /* NULL: it reaches no rank                                    */
	const struct ucx_library *library;
	ucp_context_h context;
	int epoll_fd;
	int timer_fd; /* of the next look between calls; -1: none yet                           */
	struct ucx_conn *conns;
	LIST_HEAD(, ucx_conn) active;
	int unsettled; /* conns that are not open yet                                 */
	unsigned passes;
	struct tutti_done done;
};

/* worker.c */
tutti_status ucx_wire_open(struct ucx_conn *conn);
/* The worker's address, behind room bytes. The caller frees it. */
tutti_status ucx_wire_hello(struct ucx_conn *conn, struct ucx_hello **hello, size_t *bytes);
tutti_status ucx_wire_connect(struct ucx_conn *conn, const void *address);
/* From here on UCX calls nothing and touches no buffer of this conn. */
void ucx_wire_close(struct ucx_conn *conn);
/* No sleeper wakes because of it. */
void ucx_wire_unwatch(struct ucx_conn *conn);
bool ucx_wire_progress(struct ucx_conn *conn);
/* at: the block's bytes. They and the slot stay until the slot is not busy. */
void ucx_wire_send(struct ucx_conn *conn, struct ucx_slot *slot, const void *at, size_t bytes);
void ucx_wire_fetch(struct ucx_conn *conn, struct ucx_fetch *fetch, void *desc, void *to);

/* messages.c */
bool ucx_send_some(struct ucx_conn *conn);
/* The first message of UCX: the peer may send when it has come. */
void ucx_send_greeting(struct ucx_conn *conn);
bool ucx_owes_notice(const struct ucx_conn *conn);
/* Sends that are done may not have come to the peer. */
bool ucx_owes(const struct ucx_conn *conn);
/* Nothing is posted, but a send that is done may still be lost: then the peer is to be told. */
bool ucx_is_in_doubt(const struct ucx_conn *conn);
bool ucx_receive_some(struct ucx_conn *conn);
bool ucx_can_receive(const struct ucx_conn *conn);

/* conn.c */
void ucx_conn_post(struct ucx_conn *conn, struct tutti_io *io, bool is_send);
bool ucx_conn_move(struct ucx_conn *conn);

/* conn_end.c */
void ucx_conn_complete(struct ucx_conn *conn, struct tutti_done *queue, tutti_status status);
void ucx_conn_activate(struct ucx_conn *conn);
void ucx_conn_deactivate(struct ucx_conn *conn);
/* Bytes are read from or written to buffers of the caller. */
bool ucx_conn_is_in_flight(const struct ucx_conn *conn);
/* Everything posted ends with status. */
void ucx_conn_fail(struct ucx_conn *conn, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* No byte moves any more; what has arrived is received first, then the conn fails so. */
void ucx_conn_end(struct ucx_conn *conn, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* A buffer for a block that lies in pieces: its index, or -1 when all are in use. is_in: 1 for one
 * that is received. A conn without memory for it has failed. */
int ucx_stage_take(struct ucx_conn *conn, int is_in);
uint8_t *ucx_stage_at(const struct ucx_conn *conn, int is_in, int stage);

/* conn.c */
/* address: oob's part. */
tutti_status ucx_connect(struct tutti_endpoint *endpoint, int peer, int channel,
			 const uint8_t *address, size_t address_bytes, struct tutti_conn **conn);
void ucx_close(struct tutti_conn *conn);
/* Looks at oob: greetings, notes, peers that are gone. Returns whether anything happened. */
bool ucx_look(struct ucx_endpoint *endpoint);
/* Goes on with a conn that is closing; frees it at the end. */
void ucx_close_on(struct ucx_conn *conn);

static inline struct ucx_endpoint *ucx_endpoint_of(const struct ucx_conn *conn)
{
	return (struct ucx_endpoint *)conn->base.endpoint;
}

/* Numbers of blocks wrap. */
static inline bool ucx_reached(uint32_t count, uint32_t end)
{
	return (int32_t)(count - end) >= 0;
}

#endif
