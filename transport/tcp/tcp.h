/* tcp: one socket per (communicator, peer, channel). What all files of this folder share; conn.h,
 * accept.h, dial.h and address.h have the rest. A file calls only files that stand below it:
 *
 *     endpoint.c     the endpoint and the table of functions; events and visits to connections
 *                    with something posted; what peers need of a rank that is in no call
 *     accept.c       accepted connections, until each is known and a conn's
 *     dial.c         dialing the peer's addresses, and greeting what answers; another socket for a
 *                    broken one
 *     send.c         posted sends into the socket, many at a time
 *     receive.c      the socket into posted receives
 *     conn.c         a connection: its state and queues, its end; bytes that may be lost with its
 *                    socket
 *     address.c      what an endpoint tells its peers, and where to dial
 *     socket.c       a socket's bytes, in clear or by TLS; its options; what the epolls watch
 *
 * (But accept.c and dial.c call each other.)
 *
 * On the wire a message is a header of 16 bytes (bytes: 8, tag: 4, number of the message in its
 * direction: 4; little-endian) and its payload. With checksums the header has 24 bytes: behind
 * those come the CRC-32C of the payload, and that of the 20 bytes before it. */
#ifndef TRANSPORT_TCP_TCP_H
#define TRANSPORT_TCP_TCP_H

#include "core/admission.h"
#include "core/auth.h"
#include "core/tls.h"

#include <tutti/transport.h>

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#define TCP_HEADER_BYTES 16
#define TCP_SUMMED_BYTES 24     /* a header with checksums */
#define TCP_CHANNELS     256    /* of one peer */
#define TCP_PENDING       64     /* accepted and not yet proved, besides one per rank */
#define TCP_EPOCH_SHIFT  12     /* in the terms of a greeting */
#define TCP_TICK_MS      50     /* between two looks at the deadlines of connections */
#define TCP_EVENTS       64     /* taken from epoll at once */
#define TCP_TEXT_BYTES   64     /* an address as text */
#define TCP_CONGESTION_BYTES 16 /* the kernel's bound on such a name */

/* The kinds of descriptors in the epolls; their data points to a struct tcp_watch. */
enum tcp_watched { WATCH_LISTENER, WATCH_TIMER, WATCH_ACCEPTED, WATCH_CONN, WATCH_ALARM };

struct tcp_watch {
	enum tcp_watched kind;
	int fd;          /* or -1 */
	struct tls *tls; /* NULL if its bytes go in clear */
};

struct tcp_endpoint {
	struct tutti_endpoint base;
	int rank, size, timeout_ms;
	int reconnect, reconnect_ms, reconnect_tries; /* as TUTTI_RECONNECT and so on say */
	uint64_t comm_id[2];
	uint8_t key[TUTTI_KEY_BYTES];
	uint32_t header_bytes; /* TCP_HEADER_BYTES, or TCP_SUMMED_BYTES with checksums */
	bool has_tls;
	int port;
	bool has_ipv6_loopback; /* and no IPv4 one: processes of this machine meet at ::1 */
	char congestion[TCP_CONGESTION_BYTES]; /* the system's control; "": unknown */
	int epoll_fd;           /* of everything; -1 until there is something to watch */
	struct tcp_watch listener;
	struct tcp_watch timer; /* none unless it ticks */
	struct tcp_watch alarm; /* another epoll: what must not wait for the next call; or none */
	bool has_far_peer;      /* connections over a network are expected */
	bool has_rung;
	struct tcp_conn *conns, *busy;
	struct tcp_accepted *accepted;
	struct admission pending; /* accepted, and not known yet */
	struct tcp_ended *ended;
	int turned_away;          /* in a row, for want of memory: ranks dial again */
	int unsettled;            /* conns that are connecting or closing */
	bool is_ticking, accept_again;
	uint64_t tick_ns;         /* the next one, where the timer could not be had */
	struct tutti_done finished; /* ios that ended outside of progress */

	/* progress looks at epoll when wants_look, else only at the conns it expects news from */
	bool wants_look;
	unsigned passes;
	int waiting; /* conns with posted receives, last time */

	struct epoll_event events[TCP_EVENTS];
	int event_at, event_count;
};

/* socket.c: as send and recv of a non-blocking socket, never EINTR; with TLS as core/tls.h says,
 * also EBADMSG. */
ssize_t tcp_stream_send(const struct tcp_watch *watch, const struct iovec *iov, int count);
ssize_t tcp_stream_recv(const struct tcp_watch *watch, struct iovec *iov, int count);
/* Receives until there are so many bytes, or no more now. NULL, or why none will come, with errno
 * (0: the other end hung up). */
const char *tcp_stream_fill(const struct tcp_watch *watch, uint8_t *to, size_t bytes, size_t *have);
/* The last recv may have left something of which epoll knows nothing. */
bool tcp_stream_may_have_more(const struct tcp_watch *watch);
/* Whether there is a byte to receive; epoll may know nothing of it from then on. */
bool tcp_stream_has_unread(const struct tcp_watch *watch);
/* TLS is next, between ends that have greeted each other. False: no memory for it. */
bool tcp_stream_secure(struct tcp_watch *watch, const struct auth *auth, bool dials);
void tcp_tune(int fd);
void tcp_tune_timeout(int fd, int ms); /* of a silent peer's kernel; 0 for the system's */
/* Congestion control for a peer on this machine. The listener has it, and so has what it accepts;
 * tcp_tune_remote gives that back what the system takes by default. */
void tcp_tune_loopback(int fd);
void tcp_tune_remote(const struct tcp_endpoint *ep, int fd);

/* socket.c: an endpoint that is not used has its listener alone. */
tutti_status tcp_epoll_open(struct tcp_endpoint *ep);
tutti_status tcp_watch_add(struct tcp_endpoint *ep, struct tcp_watch *watch, uint32_t events);
void tcp_watch_close(struct tcp_endpoint *ep, struct tcp_watch *watch);
void tcp_ticking(struct tcp_endpoint *ep); /* after unsettled, pending or accept_again changed */
/* Whether a tick is due that no timer tells, for want of a descriptor. */
bool tcp_tick_by_clock(struct tcp_endpoint *ep);
static inline bool tcp_lacks_timer(const struct tcp_endpoint *ep)
{
	return ep->is_ticking && ep->timer.fd < 0;
}

/* dial.c: what both ends prove to each other: which communicator, and which rank calls
 * which. */
void tcp_context(uint8_t context[AUTH_CONTEXT_BYTES], const struct tcp_endpoint *ep, int from,
		 int to, int channel, int32_t terms);
/* The form of what follows, as far as it may differ. */
int32_t tcp_terms(const struct tcp_endpoint *ep, bool reconnects, uint32_t epoch);

/* Nothing but the end of a process breaks a connection inside of a machine. */
static inline bool tcp_would_reconnect(const struct tcp_endpoint *ep, bool is_local)
{
	return ep->reconnect > (is_local ? 1 : 0);
}

static inline bool tcp_has_checksums(const struct tcp_endpoint *ep)
{
	return ep->header_bytes == TCP_SUMMED_BYTES;
}

#endif
