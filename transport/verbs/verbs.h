/* verbs: RDMA by InfiniBand or RoCE, reliable connected queue pairs (QPs) between two ranks. What
 * the files of this folder share.
 *
 *     endpoint.c     the endpoint: its address, progress, sleeping, the table of functions
 *     conn.c         a connection: greeting the peer through oob, what is posted on it and how it
 *                    moves, without rails that have failed
 *     receive.c      what has arrived into posted receives
 *     completions.c  the completion queues of a conn
 *     send.c         posted sends into slots and chunks of the peer; all frames
 *     conn_end.c     how it ends
 *     queue_pair.c   a conn's rails: their QPs, and its memory
 *     port.c         ports, GIDs; describes them to people
 *     memory.c       memory of tutti_mem_alloc and of GPUs, as devices know it
 *     device.c       devices; libibverbs, loaded at run time
 *
 * A file calls only files that stand below it, but for a rail
 * that is lost.
 *
 * A message of up to a slot goes out as one SEND: a frame, then the payload. The peer has posted a
 * slot for it. A longer one is announced by such a frame; its bytes follow in pieces, by RDMA
 * writes into the peer's chunks, which immediate data announce (or, where the device has none, one
 * more SEND). The completion queue says what has come: no byte of it is looked at before.
 *
 * A conn has a rail, a QP, for each port that both ends have. Frames take one of them, so they
 * arrive in order; pieces take all, and their numbers say in which order. When a rail fails, both
 * ends say what has come by it, and the rest is sent again by the others.
 *
 * Memory that is registered (memory.h) is read where it lies. The receiver grants it: then the
 * rest of the message is written there, and not into chunks. Neither end waits for a grant. But
 * where an end's memory may be mapped (of a GPU; the caller maps it) the sender asks, and waits for
 * the grant, which the receiver owes to its first receive: of its memory, or of chunks.
 *
 * Slots and chunks are the receiver's. The sender counts those that are free; they come back with
 * frames of the other direction, or with one of their own when half of them are due. So nothing is
 * ever sent for which no receive is posted. */
#ifndef TRANSPORT_VERBS_VERBS_H
#define TRANSPORT_VERBS_VERBS_H

#include "transport/oob/oob.h"
#include "transport/registry.h"
#include "transport/verbs/device.h"

#include <tutti/transport.h>
#include <sys/queue.h>

#define VERBS_SLOTS    32u /* for messages that are short, and for what announces long ones */
#define VERBS_CHUNKS   16u
#define VERBS_CONTROL  (VERBS_CHUNKS + 6) /* receives for pieces, 4 of CREDIT, OWED, BYE */
#define VERBS_RECEIVES (VERBS_SLOTS + VERBS_CONTROL)
#define VERBS_SENDS    64u /* frames on their way; a power of 2 */
#define VERBS_SPARE    8u  /* of them, which messages leave to CREDIT and BYE */
#define VERBS_SIGNAL   8u  /* each so many frames one asks for a completion */
#define VERBS_INLINE   220u
#define VERBS_GRANTS   8u  /* receives ahead that the peer may write into; a power of 2 */
#define VERBS_IN_PLACE ((size_t)1 << 20) /* of a piece that goes from or into registered memory */

#define VERBS_CHUNK_BYTES ((size_t)64 << 10) /* while the world is small */
#define VERBS_CHUNK_LEAST ((size_t)8 << 10)
#define VERBS_CHUNK_SLOTS 8                   /* a slot is so much smaller */
#define VERBS_BYTES       ((size_t)128 << 20) /* of all conns of a rank, were there one each */

/* Ports that a conn uses at once. */
#define VERBS_RAILS VERBS_PORTS
#define VERBS_SENT  (1ull << 32) /* as wr_id: a send; of a receive it is the slot */

/* ASKS: BULK that waits for a grant. OWED: GRANT for a first receive, which takes no slot. */
enum verbs_kind {
	VERBS_DATA = 1,
	VERBS_BULK,
	VERBS_ASKS,
	VERBS_PIECE,
	VERBS_GRANT,
	VERBS_OWED,
	VERBS_CREDIT,
	VERBS_BYE
};

/* The beginning of what a SEND carries. slots, chunks: of this direction's peer that are free. */
struct verbs_frame {
	uint64_t bytes;  /* of the message; PIECE: of the piece */
	uint32_t tag;
	uint32_t number; /* of the message in its direction; PIECE: as immediate data */
	uint16_t kind, slots, chunks, reserved;
};

/* Immediate data: the number of the piece in its direction, and whether it lies where the receive's
 * buffer is, and not in a chunk. */
#define VERBS_NUMBER_BITS 0xffffffu
#define VERBS_IS_PLACED   0x80000000u

/* The peer's receive of message number: its bytes may be written there, or only into chunks. Behind
 * the frame of GRANT or OWED. */
struct verbs_grant {
	uint64_t at, bytes;
	uint32_t keys[VERBS_RAILS];
	uint32_t number, is_chunks;
};

/* How to connect to a rail. */
struct verbs_rail_hello {
	uint32_t qp_number, packet_number, chunks_key;
	uint16_t lid;
	uint8_t mtu, wire;
	uint8_t gid[16];
};

/* How to connect to a conn; what oob exchanges. */
struct verbs_hello {
	uint32_t magic, rails;
	uint64_t chunks_at; /* in the sender's memory */
	uint32_t chunk_bytes, has_immediate;
	struct verbs_rail_hello rail[VERBS_RAILS];
};

/* Notes of oob. RAIL: the rail of that number has failed; the text is a verbs_tally. */
enum { VERBS_NOTE_READY = 1, VERBS_NOTE_FAILED, VERBS_NOTE_RAIL };

/* Frames and pieces that have come from the peer, and bits of the pieces that came ahead of their
 * turn, behind those. */
struct verbs_tally {
	uint32_t frames, pieces, ahead;
};

/* Memory of a conn: its parts lie one after the other. */
struct verbs_memory {
	uint8_t *base;
	size_t bytes;
	uint32_t slot_bytes, chunk_bytes;
	uint8_t *receives, *sends, *chunks_out; /* registered as local; receives: of all rails */
	uint8_t *chunks_in;                     /* the peer writes here */
};

/* A frame in a slot of a rail, that waits for a receive. */
struct verbs_arrival {
	uint8_t rail, slot;
	uint32_t bytes;
};

/* A piece that has come. */
struct verbs_piece {
	bool is_here, is_placed;
	uint32_t bytes;
};

struct verbs_map;

/* A piece that is on its way: enough to send it again. */
struct verbs_flight {
	uint64_t from, to;
	const struct verbs_map *map;
	uint32_t bytes, message;
	uint8_t rail;
	bool is_placed, is_chunk, is_acked;
};

/* Frames and pieces of a direction that are done. */
struct verbs_mark {
	uint32_t frames, pieces;
};

/* A send that asked for a completion: frames before frame, or a piece, or both have been received
 * then. */
struct verbs_asked {
	bool is_frame, is_piece;
	uint32_t frame, piece;
};

/* CONNECTING: until the peer's hello. CONNECTED: until the peer says that it is ready. ENDED: the
 * peer is gone; what it sent before can still be received. */
enum verbs_state { VERBS_CONNECTING, VERBS_CONNECTED, VERBS_OPEN, VERBS_ENDED, VERBS_FAILED };

#define VERBS_ARRIVALS 64u /* at least VERBS_RECEIVES; a power of 2 */
#define VERBS_ASKED    128u /* at least VERBS_SENDS + VERBS_CHUNKS; the same */

/* LOST: nothing moves on it, and what had come is being counted. COUNTED: the peer knows it. DEAD:
 * both know, and go on without it. */
enum verbs_rail_state { VERBS_RAIL_WORKS, VERBS_RAIL_LOST, VERBS_RAIL_COUNTED, VERBS_RAIL_DEAD };

/* A QP of a conn, by one port. */
struct verbs_rail {
	enum verbs_rail_state state;
	const struct verbs_port *port;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *local, *remote;  /* the conn's memory                                   */
	struct verbs_rail_hello peer;
	uint8_t *slots;                 /* VERBS_RECEIVES of them                              */
	uint32_t inline_bytes, packet_number;
	uint32_t receives;              /* posted                                              */
	uint32_t pieces;                /* on their way                                        */
	struct {
		struct verbs_asked of[VERBS_ASKED];
		uint32_t first, end;
	} asked;                        /* completions that are to come                        */
	bool has_tally;                 /* the peer's, when the rail has failed                */
	struct verbs_tally tally;
};

struct verbs_conn {
	struct tutti_conn base;
	struct oob_conn oob;
	enum verbs_state state;
	bool is_closing;      /* by the caller: it goes on until all is acknowledged             */
	bool is_active;       /* on the endpoint's list: has ios, or is closing                  */
	bool has_told;        /* the peer, that it has failed                                    */
	bool in_payload[2];   /* of the first send; of the first recv                            */
	struct verbs_conn *next;
	LIST_ENTRY(verbs_conn) active;
	uint64_t deadline_ns; /* of closing                                                      */
	struct verbs_rail rails[VERBS_RAILS];
	int rail_count, frame_rail;
	bool has_immediate;   /* the devices of both ends                                        */
	int failing;          /* rails that are LOST or COUNTED: nothing is sent meanwhile       */
	bool has_said_bye;
	struct verbs_memory memory;
	struct tutti_done sends, recvs; /* posted                                                */
	/* Sends all of whose bytes are on their way, some from where they lie. moved: the frames,
	 * and in_piece: the pieces, that were sent by then. */
	struct tutti_done unacked;
	bool in_place;                  /* of the first send a piece is such a one               */
	struct {
		tutti_status status;
		char error[240];
	} ended;                        /* why it has                                            */

	uint64_t peer_chunks;                /* in the peer's memory                             */
	uint32_t sent, frames, frames_acked; /* messages; frames                                 */
	uint32_t pieces, pieces_acked;       /* all before pieces_acked are                      */
	struct verbs_flight flights[VERBS_CHUNKS];
	struct verbs_mark owed;              /* of sends that are done: not acknowledged yet     */
	struct verbs_grant grants[VERBS_GRANTS];
	uint32_t slots, chunks;              /* free ones of the peer                            */
	uint32_t posted, received;           /* messages                                         */
	uint32_t frames_received;
	struct {
		uint32_t of[VERBS_GRANTS];   /* the messages behind those that were granted      */
		uint32_t end;                /* the one behind the last                          */
		bool is_asked;               /* with in_payload[1]: for the first receive        */
	} granted;
	struct {
		uint32_t slots, chunks;
	} due;                               /* free again, and not told yet                     */
	struct {
		struct verbs_arrival arrivals[VERBS_ARRIVALS];
		uint32_t first, end;
	} arrived;                           /* frames                                           */
	struct {
		struct verbs_piece of[VERBS_CHUNKS];
		uint32_t first;              /* the next to be received                          */
		uint32_t end;                /* with has_end: BYE has come, and no more come     */
		bool has_end;
	} pieces_in;
};

struct verbs_endpoint {
	struct tutti_endpoint base;
	int rank, size;
	uint32_t chunk_bytes;
	struct oob_endpoint *oob; /* NULL: no RDMA port here */
	struct verbs_port ports[VERBS_PORTS];
	int port_count;
	struct ibv_comp_channel *channels[VERBS_PORTS]; /* of the ports' devices */
	int epoll_fd;
	struct verbs_conn *conns;
	LIST_HEAD(, verbs_conn) active;
	int unsettled;            /* conns that are not open yet                                 */
	unsigned passes;
	bool is_armed;
	struct tutti_done done;
};

/* queue_pair.c */
/* Everything that conn needs of the device, and all receives posted. */
tutti_status verbs_pair_open(struct verbs_conn *conn);
void verbs_pair_hello(const struct verbs_conn *conn, struct verbs_hello *hello);
tutti_status verbs_pair_connect(struct verbs_conn *conn, const struct verbs_hello *peer);
/* From here on the peer writes nowhere, and the devices read no buffer. */
void verbs_pair_close(struct verbs_conn *conn);
void verbs_post_receive(struct verbs_conn *conn, int rail, uint32_t slot);

/* completions.c: takes what has completed. Returns whether anything has. */
bool verbs_take_completions(struct verbs_conn *conn);

/* send.c */
bool verbs_send_some(struct verbs_conn *conn);
/* A piece that has not arrived, by a rail that works. */
void verbs_send_piece_again(struct verbs_conn *conn, uint32_t number);
void verbs_send_frame_again(struct verbs_conn *conn, uint32_t number);
/* Tells the peer of free slots and chunks when they are many. */
void verbs_send_credit(struct verbs_conn *conn);
void verbs_send_bye(struct verbs_conn *conn);
static inline bool verbs_owes_credit(const struct verbs_conn *conn)
{
	return conn->due.slots >= VERBS_SLOTS / 2 || conn->due.chunks >= VERBS_CHUNKS / 2;
}
/* A receive was posted, for message number: the peer may write into it, if it is registered. */
void verbs_send_grant(struct verbs_conn *conn, const struct tutti_io *io, uint32_t number);
/* The first receive's, if its sender waits for it, and it has none. */
void verbs_send_owed_grant(struct verbs_conn *conn);
static inline bool verbs_has_unacked(const struct verbs_conn *conn)
{
	return conn->frames != conn->frames_acked || conn->pieces != conn->pieces_acked;
}

/* Some frame or piece is on its way, and may still fail. */
static inline bool verbs_conn_may_fail(const struct verbs_conn *conn)
{
	return conn->state == VERBS_OPEN && verbs_has_unacked(conn);
}

/* memory.c */
tutti_status verbs_map(struct tutti_endpoint *endpoint, int kind, void *ptr, size_t bytes,
		       void **map);
void verbs_unmap(struct tutti_endpoint *endpoint, void *map);
/* Of memory of this map, or of registered memory if it is NULL. False: it is neither. */
bool verbs_keys_of(const struct verbs_conn *conn, int rail, const struct verbs_map *map,
		   const void *ptr, size_t bytes, struct verbs_keys *keys);
bool verbs_map_covers(const struct verbs_map *map, const struct tutti_io *io);
/* The CPU may touch none of its bytes. */
static inline bool verbs_is_mapped(const struct tutti_io *io)
{
	return io->map && io->bytes > 0;
}
/* A send that waits for the receiver's word, or a receive whose sender does. */
static inline bool verbs_asks(const struct tutti_io *io)
{
	return (io->map || io->asks) && io->bytes > 0;
}

/* receive.c */
bool verbs_receive_some(struct verbs_conn *conn);
bool verbs_can_receive(const struct verbs_conn *conn);

/* conn.c */
void verbs_conn_post(struct verbs_conn *conn, struct tutti_io *io, bool is_send);
/* Moves what can be moved, a bounded amount. Returns whether anything was. */
bool verbs_conn_move(struct verbs_conn *conn);

/* conn_end.c */
/* The head of one of its queues is done. */
void verbs_conn_complete(struct verbs_conn *conn, struct tutti_done *queue, tutti_status status);
void verbs_conn_activate(struct verbs_conn *conn);
void verbs_conn_deactivate(struct verbs_conn *conn);
/* The peer has pieces that are marked so: sends of which it has all are done. */
void verbs_conn_complete_acked(struct verbs_conn *conn);
/* The device, or the peer, may read or write buffers of the caller. */
bool verbs_conn_is_read(const struct verbs_conn *conn);
bool verbs_conn_is_written(const struct verbs_conn *conn);
/* A send that is done still has something on its way. */
bool verbs_conn_owes(const struct verbs_conn *conn);
/* A rail does not work any more. The conn goes on without it, or ends so if it was the last. */
void verbs_rail_lost(struct verbs_conn *conn, int rail, tutti_status status, const char *format,
		     ...) __attribute__((format(printf, 4, 5), cold));
/* Everything posted ends with status. */
void verbs_conn_fail(struct verbs_conn *conn, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* No byte moves any more; what has arrived is received first, then the conn fails so. */
void verbs_conn_end(struct verbs_conn *conn, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));

/* conn.c */
/* address: oob's part. */
tutti_status verbs_connect(struct tutti_endpoint *endpoint, int peer, int channel,
			   const uint8_t *address, size_t address_bytes, struct tutti_conn **conn);
void verbs_close(struct tutti_conn *conn);
/* Looks at oob: greetings, notes, peers that are gone. Returns whether anything happened. */
bool verbs_look(struct verbs_endpoint *endpoint);
/* Goes on with a conn that is closing; frees it at the end. */
void verbs_close_on(struct verbs_conn *conn);

/* The message of the first receive: the one that has begun to come, or the next. */
static inline uint32_t verbs_first_received(const struct verbs_conn *conn)
{
	return conn->received - conn->in_payload[1];
}

static inline struct verbs_endpoint *verbs_endpoint_of(const struct verbs_conn *conn)
{
	return (struct verbs_endpoint *)conn->base.endpoint;
}

static inline uint8_t *verbs_slot(const struct verbs_conn *conn, int rail, uint32_t slot)
{
	return conn->rails[rail].slots + (size_t)slot * conn->memory.slot_bytes;
}

static inline uint32_t verbs_payload_most(const struct verbs_conn *conn)
{
	return conn->memory.slot_bytes - (uint32_t)sizeof(struct verbs_frame);
}

#endif
