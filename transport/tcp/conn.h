/* A connection: its state, what is posted on it, and how it moves and ends. */
#ifndef TRANSPORT_TCP_CONN_H
#define TRANSPORT_TCP_CONN_H

#include "transport/tcp/tcp.h"

#define TCP_BATCH        32     /* messages that are sent in one call */
#define TCP_AHEAD_BYTES  65536u /* read in one call where messages are small */

#define TCP_POSITION_BYTES 8    /* of a stream; a connection that reconnects begins with it */
#define TCP_STREAM_CLOSED    UINT64_MAX /* for a position: this connection was closed */

/* The bytes that a socket still held when it broke, or when another one took its place. */
struct tcp_unread {
	uint8_t *bytes;
	size_t at, end, room;
};

/* The two streams of a connection that reconnects, over all its sockets. Positions are counts of
 * bytes. */
struct tcp_resend {
	uint64_t sent, received;
	uint64_t again;           /* from there to sent: to be sent again */
	uint64_t kept_from;       /* from there to sent: kept; byte p is kept[p % kept_bytes] */
	uint64_t delivered;       /* the peer's kernel had so many, when ours was last asked */
	uint8_t *kept;
	size_t kept_bytes;        /* a power of two */
	struct tcp_unread unread;     /* counted in received, and not yet taken */
	bool was_up;
	uint32_t epoch;           /* of the socket in use; of the next one at least */
	uint32_t next_epoch;
	/* sent + received when it broke, and when that was; unless bytes have moved since, it is
	 * the same trouble. cause: errno. */
	uint64_t mark, since_ns;
	int tries, cause;
	size_t address_bytes;     /* of the peer's endpoint */
	uint8_t address[TUTTI_ADDRESS_BYTES];
};

/* Where a connection stands. Both ends may dial; the first proof that arrives decides, and crossing
 * dials are the lower rank's (dial.c). The higher rank dials at once, the lower one only if it has
 * something posted and the higher one did not: that is WAITING. CLOSING: no io will be touched any
 * more; what the kernel has taken is being delivered. */
enum tcp_state {
	CONN_WAITING,
	CONN_DIALING,
	CONN_GREETING,
	CONN_HANDSHAKE,  /* only with TLS: the proof is sent, and its handshake in flight */
	CONN_AGREEING, /* only where connections are made again: the peer's position is awaited */
	CONN_UP,
	CONN_CLOSING,
	CONN_CLOSED
};

/* A connection that had failed, was made again, or never came up, and has been closed: a peer that
 * asks for it is told so. */
struct tcp_ended {
	struct tcp_ended *next;
	int peer, channel;
	bool is_over; /* from the first socket on, and not only for one that reconnects */
};

struct tcp_conn {
	struct tutti_conn base;
	struct tcp_watch watch;
	enum tcp_state state;
	bool is_owned;            /* by the caller: close was not called yet */
	bool is_busy;             /* on the endpoint's busy list */
	bool reconnects;               /* as both ends have proved */
	bool has_said_end;        /* of our stream */
	bool has_hung_up;             /* epoll has seen an error or the end */
	bool is_lost;              /* reading has seen an error or the end: lost_error, or 0 */
	int lost_error;
	/* The conn fails with this when rest and ahead are taken; base.error says why. */
	tutti_status fails_after_drain;
	bool is_watched;          /* by epoll */
	bool has_alarm;           /* its end is seen though it is not watched: endpoint.c */
	int calm;                 /* visits that needed no epoll, in a row */
	bool may_read, may_write; /* as far as epoll and the last call said */
	bool at_end;              /* the peer has hung up: reading will tell */
	int write_error;          /* errno; reading goes on until it ends as well */
	struct tcp_conn *next, *next_busy;
	uint64_t deadline_ns; /* of connecting, then of closing */
	struct tcp_dial *dial;
	char where[TCP_TEXT_BYTES]; /* the peer's address */

	struct tutti_done sends, recvs;
	uint32_t sent, received;      /* messages */
	uint32_t header_sent;         /* bytes of the header of sends.head */
	uint32_t sums[TCP_BATCH];     /* of the payloads of messages before summed, by number */
	uint32_t summed;
	uint32_t sum, sum_expected;   /* of the payload of recvs.head, as far as it is here */
	bool in_payload;              /* the header of recvs.head has been taken */
	uint32_t ahead_at, ahead_end; /* bytes of ahead that were read but not taken */
	uint8_t *ahead;
	struct tcp_resend resend;
	struct tcp_ended *ended;
};

/* conn.c */
tutti_status tcp_conn_new(struct tcp_conn **conn, struct tcp_endpoint *ep, int peer, int channel);
void tcp_close(struct tutti_conn *conn);
/* Puts io at the end of one of c's queues. */
void tcp_conn_post(struct tcp_conn *c, struct tutti_done *queue, struct tutti_io *io);
/* The conn of this peer and channel that was not closed; NULL: there is none. */
struct tcp_conn *tcp_conn_for(const struct tcp_endpoint *ep, int peer, int channel);
void tcp_conn_set_state(struct tcp_conn *c, enum tcp_state state);
uint64_t tcp_connect_deadline(const struct tcp_endpoint *ep, int channel);
/* The conn's socket is ready. _at: the peer has received position bytes, where connections are made
 * again. */
void tcp_conn_up(struct tcp_conn *c);
void tcp_conn_up_at(struct tcp_conn *c, uint64_t position);
void tcp_conn_busy(struct tcp_conn *c); /* it is to be visited */
void tcp_conn_watch(struct tcp_conn *c);
void tcp_conn_unwatch(struct tcp_conn *c);
void tcp_conn_add_alarm(struct tcp_conn *c); /* while it is up, if there is an alarm */
/* Everything posted ends with status; the message says which rank and why. */
void tcp_conn_fail(struct tcp_conn *c, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* The same, after all bytes that have arrived were received: the peer sends no more. */
void tcp_conn_fail_after_drain(struct tcp_conn *c, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* This process lacks what the conn needs. */
void tcp_conn_refuse(struct tcp_conn *c, const char *why) __attribute__((cold));
/* Goes on with a conn that is CLOSING, until its deadline. May free it. */
void tcp_conn_linger(struct tcp_conn *c, uint64_t now_ns);
void tcp_conn_free(struct tcp_conn *c);
bool tcp_conn_has_unread(const struct tcp_conn *c);
void tcp_conn_finish(struct tcp_conn *c, struct tutti_done *queue); /* its head is done, OK */

/* conn.c: bytes that may be lost with their socket */
/* Takes all that the socket has now. False: no memory for it. */
bool tcp_unread_take(struct tcp_unread *unread, const struct tcp_watch *watch);
void tcp_unread_free(struct tcp_unread *unread);
/* Keeps bytes that have just gone into the socket: the first of iov. */
void tcp_resend_keep(struct tcp_conn *c, const struct iovec *iov, size_t bytes);
bool tcp_resend_some(struct tcp_conn *c); /* what is to be sent again; whether anything moved */
uint64_t tcp_position_read(const uint8_t bytes[TCP_POSITION_BYTES]);

/* send.c, receive.c */
void tcp_send(struct tutti_conn *conn, struct tutti_io *io);
void tcp_recv(struct tutti_conn *conn, struct tutti_io *io);
/* Move what can be moved; return whether anything was. */
bool tcp_send_some(struct tcp_conn *c);
bool tcp_receive_some(struct tcp_conn *c);
bool tcp_can_take(const struct tcp_conn *c); /* what was read ahead is enough to get on */

static inline struct tcp_endpoint *tcp_endpoint_of(const struct tcp_conn *c)
{
	return (struct tcp_endpoint *)c->base.endpoint;
}

static inline bool tcp_must_resend(const struct tcp_conn *c)
{
	return c->resend.again < c->resend.sent;
}

/* Bytes that were read, and not taken yet. */
static inline uint32_t tcp_read_ahead(const struct tcp_conn *c)
{
	return c->ahead_end - c->ahead_at;
}

static inline bool tcp_is_reconnecting(const struct tcp_conn *c)
{
	return c->resend.was_up && c->state < CONN_UP;
}

/* No proof was sent on its socket yet. */
static inline bool tcp_is_connecting(const struct tcp_conn *c)
{
	return c->state == CONN_WAITING || c->state == CONN_DIALING || c->state == CONN_GREETING;
}

static inline uint32_t tcp_header_bytes(const struct tcp_conn *c)
{
	return tcp_endpoint_of(c)->header_bytes;
}

static inline struct tcp_conn *tcp_conn_of(struct tcp_watch *watch)
{
	return (struct tcp_conn *)((char *)watch - offsetof(struct tcp_conn, watch));
}

#endif
