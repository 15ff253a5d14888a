/* The two streams of a connection that is made again, over all its sockets (resend.c). */
#ifndef TRANSPORT_TCP_RESEND_H
#define TRANSPORT_TCP_RESEND_H

#include "transport/tcp/tcp.h"

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

struct tcp_conn;

/* Takes all that the socket has now. False: no memory for it. */
bool tcp_unread_take(struct tcp_unread *unread, const struct tcp_watch *watch);
void tcp_unread_free(struct tcp_unread *unread);
/* Keeps bytes that have just gone into the socket: the first of iov. */
void tcp_resend_keep(struct tcp_conn *c, const struct iovec *iov, size_t bytes);
/* Another socket is up, and the peer has so much of our stream. False: the bytes behind that are
 * not kept. */
bool tcp_resend_from(struct tcp_resend *r, uint64_t position);
bool tcp_resend_some(struct tcp_conn *c); /* what is to be sent again; whether anything moved */
void tcp_resend_free(struct tcp_resend *r);
uint64_t tcp_position_read(const uint8_t bytes[TCP_POSITION_BYTES]);

#endif
