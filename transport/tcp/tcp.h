/* tcp: one socket per (communicator, peer, channel). What the files of this folder share. A file
 * calls only files that stand below it:
 *
 *     endpoint.c     the endpoint and the table of functions
 *     idle.c         what peers need of a rank that is in no call
 *     progress.c     events, and visits to connections with something posted; sleeping
 *     accept.c       accepting connections, and making room for them
 *     greet.c        what an accepted connection says until it is known
 *     reconnect.c    another socket takes the place of a broken one
 *     dial.c         dialing the peer
 *     accepted.c     accepted connections that belong to no conn yet
 *     send.c         posted sends into the socket, many at a time
 *     receive.c      the socket into posted receives
 *     conn.c         a connection: its state, its queues, its end
 *     resend.c       bytes of both streams that may be lost with their socket
 *     address.c      what an endpoint tells its peers, and where to dial
 *     terms.c        what both ends prove to each other
 *     descriptors.c  what the endpoint's epolls watch; its timer
 *     socket.c       a socket's bytes, in clear or by TLS, and its options
 *
 * On the wire a message is a header of 16 bytes (bytes: 8, tag: 4, number of the message in its
 * direction: 4; little-endian) and its payload. With checksums the header has 24 bytes: behind those
 * come the CRC-32C of the payload, and that of the 20 bytes before it. */
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
#define TCP_BATCH        32     /* messages that are sent in one call */
#define TCP_AHEAD_BYTES  65536u /* read in one call where messages are small */
#define TCP_CANDIDATES   17     /* addresses of one peer that are tried */
#define TCP_CHANNELS     256    /* of one peer */
#define TCP_PENDING       64     /* accepted and not yet proved, besides one per rank */
#define TCP_TURNED_AWAY  8      /* then memory is not lacking for a moment */
#define TCP_PENDING_MS     10000  /* for the proof, and again for what follows it */
#define TCP_LINGER_MS    10000  /* a closed connection's time to deliver what was sent */
#define TCP_LEAVE_MS     500    /* how long destroy waits for that */
#define TCP_POSITION_BYTES 8    /* how much of a stream an end has; what a connection that reconnects begins with */
#define TCP_STREAM_CLOSED         UINT64_MAX /* instead of a position: this connection has been closed */
#define TCP_EPOCHS       (1u << 19) /* sockets that a connection may have had */
#define TCP_EPOCH_SHIFT  12     /* in the terms of a greeting */
#define TCP_KEPT_FIRST   65536u /* bytes of sent ones that are kept, ... */
#define TCP_KEPT_MOST    (64u << 20) /* ... as far as the kernel says that the peer lacks them */
#define TCP_CALM         64     /* visits without need of epoll, until it is left */
#define TCP_YIELD_MS     25     /* a lower rank's, to a higher one that may be dialing */
#define TCP_TICK_MS      50     /* how exact these times are */
#define TCP_EVENTS       64     /* taken from epoll at once */
#define TCP_TEXT_BYTES   64     /* an address as text */
#define TCP_CONGESTION_BYTES 16 /* the kernel's bound on such a name */

/* What epoll's data points to. */
enum tcp_watched { WATCH_LISTENER, WATCH_TIMER, WATCH_ACCEPTED, WATCH_CONN, WATCH_ALARM };

struct tcp_watch {
	enum tcp_watched kind;
	int fd;          /* -1: none */
	struct tls *tls; /* NULL: its bytes go in clear */
};

struct tcp_address {
	struct sockaddr_storage sockaddr;
	socklen_t bytes;
};

/* Where a connection stands. Both ends may dial; the first proof that arrives decides, and crossing
 * dials are the lower rank's (dial.c). The higher rank dials at once, the lower one only if it has
 * something posted and the higher one did not: that is WAITING. CLOSING: no io will be touched any
 * more; what the kernel has taken is being delivered. */
enum tcp_state {
	CONN_WAITING,
	CONN_DIALING,
	CONN_GREETING,
	CONN_HANDSHAKE,  /* only with TLS: the proof is sent, and its handshake under way */
	CONN_AGREEING, /* only where connections are made again: the peer's position is awaited */
	CONN_UP,
	CONN_CLOSING,
	CONN_CLOSED
};

/* The state of dialing; freed when the connection is up. */
struct tcp_dial {
	struct tcp_address candidates[TCP_CANDIDATES];
	int count, next;       /* next candidate */
	int refused, wrong_answers, tls_failures; /* in this round */
	bool is_resting;       /* until the next tick */
	bool is_full;          /* this process may open no more files */
	bool is_unwatched;     /* ... or epoll watches no more of them */
	uint64_t give_up_ns;   /* on this candidate; WAITING: on the peer's dialing */
	struct auth auth;
	uint8_t answer[AUTH_ANSWER_BYTES], proof[AUTH_PROOF_BYTES];
	size_t answered;
	bool has_proof; /* the answer was right */
	uint32_t epoch; /* of the socket that this would be */
	bool reconnects;     /* what both ends must mean alike */
	uint8_t position[TCP_POSITION_BYTES];
	size_t position_read;
};

/* What a socket still held when it broke, or when another one took its place. */
struct tcp_unread {
	uint8_t *bytes;
	size_t at, end, room;
};

/* The two streams of a connection that reconnects, over all its sockets. Positions are counts of bytes. */
struct tcp_resend {
	uint64_t sent, received;
	uint64_t again;           /* from there to sent: to be sent again */
	uint64_t kept_from;       /* from there to sent: kept; byte p lies at kept[p % kept_bytes], ... */
	uint64_t delivered;       /* the peer's kernel had so many, when ours was last asked */
	uint8_t *kept;
	size_t kept_bytes;        /* ... a power of two */
	struct tcp_unread unread;     /* counted in received, and not yet taken */
	bool was_up;
	uint32_t epoch;           /* of the socket in use; of the next one at least */
	uint32_t next_epoch;
	uint64_t mark, since_ns;  /* sent + received when it broke, and when that was; unless bytes have */
	int tries, cause;         /* moved since, it is the same trouble. cause: errno */
	size_t address_bytes;     /* of the peer's endpoint */
	uint8_t address[TUTTI_ADDRESS_BYTES];
};

/* A connection that had failed, or that was made again, and has been closed: a peer that asks for it
 * is told so. */
struct tcp_ended {
	struct tcp_ended *next;
	int peer, channel;
	bool has_failed;
};

struct tcp_queue {
	struct tutti_io *head, **tail;
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
	tutti_status fails_after_drain;      /* ends so when rest and ahead are taken; base.error says why */
	bool is_watched;          /* by epoll */
	bool has_alarm;           /* its end is seen though it is not watched: idle.c */
	int calm;                 /* visits that needed no epoll, in a row */
	bool may_read, may_write; /* as far as epoll and the last call said */
	bool at_end;              /* the peer has hung up: reading will tell */
	int write_error;          /* errno; reading goes on until it ends as well */
	struct tcp_conn *next, *next_busy;
	uint64_t deadline_ns; /* of connecting, then of closing */
	struct tcp_dial *dial;
	char where[TCP_TEXT_BYTES]; /* the peer's address */

	struct tcp_queue sends, recvs;
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

/* An accepted connection that belongs to no conn yet. */
struct tcp_accepted {
	struct tcp_watch watch;
	struct tcp_accepted *next;
	struct admission_entry pending; /* until is_known */
	bool has_greeted;               /* its hello came and was answered */
	bool is_secure;                 /* TLS has come about, or there is to be none */
	bool is_known;                  /* its greeting is over */
	bool is_local;                  /* it comes over this machine's loopback */
	bool reconnects, is_broken;     /* is_broken: it could not be told our position */
	int peer, channel;              /* believed once is_known */
	uint32_t epoch;
	uint64_t position;              /* what the peer has of our stream */
	struct tcp_unread unread;       /* of sockets whose place it took */
	struct auth auth;
	uint8_t bytes[AUTH_HELLO_BYTES];
	size_t have;
	char from[TCP_TEXT_BYTES];
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
	char congestion[TCP_CONGESTION_BYTES]; /* the system's control; "": unknown */
	int epoll_fd;
	struct tcp_watch listener, timer;
	struct tcp_watch alarm; /* another epoll, of what must not wait for the next call; or none */
	bool has_rung;
	struct tcp_conn *conns, *busy;
	struct tcp_accepted *accepted;
	struct admission pending; /* accepted, and not known yet */
	struct tcp_ended *ended;
	int turned_away;          /* in a row, for want of memory: ranks dial again */
	int unsettled;            /* conns that are connecting or closing */
	bool is_ticking, accept_again;
	struct tutti_done finished; /* ios that ended outside of progress */

	/* progress looks at epoll when wants_look, else only at the conns it expects news from */
	bool wants_look;
	unsigned passes;
	int waiting; /* conns with posted receives, last time */

	struct epoll_event events[TCP_EVENTS];
	int event_at, event_count;
};

/* socket.c: as send and recv of a non-blocking socket, never EINTR; with TLS as core/tls.h says, also EBADMSG. */
ssize_t tcp_stream_send(const struct tcp_watch *watch, const struct iovec *iov, int count);
ssize_t tcp_stream_recv(const struct tcp_watch *watch, struct iovec *iov, int count);
/* The last recv may have left something of which epoll knows nothing. */
bool tcp_stream_may_have_more(const struct tcp_watch *watch);
/* Whether there is a byte to receive; epoll may know nothing of it from then on. */
bool tcp_stream_has_unread(const struct tcp_watch *watch);
/* TLS is next, between ends that have greeted each other. False: no memory for it. */
bool tcp_stream_secure(struct tcp_watch *watch, const struct auth *auth, bool dials);
void tcp_tune(int fd);
void tcp_tune_timeout(int fd, int ms); /* of a peer whose kernel answers nothing; 0: the kernel's */
/* Congestion control for a peer on this machine. The listener has it, and so has what it accepts;
 * tcp_tune_remote gives that back what the system takes by default. */
void tcp_tune_loopback(int fd);
void tcp_tune_remote(const struct tcp_endpoint *ep, int fd);

/* descriptors.c */
tutti_status tcp_watch_add(struct tcp_endpoint *ep, struct tcp_watch *watch, uint32_t events);
void tcp_watch_close(struct tcp_endpoint *ep, struct tcp_watch *watch);
void tcp_ticking(struct tcp_endpoint *ep); /* after unsettled, pending or accept_again changed */

/* terms.c: which communicator, and which rank calls which. */
void tcp_context(uint8_t context[AUTH_CONTEXT_BYTES], const struct tcp_endpoint *ep, int from,
		 int to, int channel, int32_t terms);
/* The form of what follows, as far as it may differ. */
int32_t tcp_terms(const struct tcp_endpoint *ep, bool reconnects, uint32_t epoch);

/* address.c */
tutti_status tcp_address_make(struct tcp_endpoint *ep, const char *preferred);
int tcp_address_reach(const struct tcp_endpoint *ep, const uint8_t *address, size_t bytes);
/* Candidates in the order in which to try them; 0: there is none. */
int tcp_address_candidates(const struct tcp_endpoint *ep, const uint8_t *address, size_t bytes,
			   struct tcp_address list[TCP_CANDIDATES]);
bool tcp_address_is_loopback(const struct sockaddr *sockaddr);
void tcp_address_print(const struct sockaddr *sockaddr, char text[TCP_TEXT_BYTES]);

/* resend.c */
/* Takes all that the socket has now. False: no memory for it. */
bool tcp_unread_take(struct tcp_unread *unread, const struct tcp_watch *watch);
void tcp_unread_free(struct tcp_unread *unread);
/* These bytes have just gone into the socket, the first so many of iov. */
void tcp_resend_keep(struct tcp_conn *c, const struct iovec *iov, size_t bytes);
/* Another socket is up, and the peer has so much of our stream. False: the bytes behind that are not kept. */
bool tcp_resend_from(struct tcp_resend *r, uint64_t position);
bool tcp_resend_some(struct tcp_conn *c); /* what is to be sent again; whether anything moved */
void tcp_resend_free(struct tcp_resend *r);
void tcp_position_write(uint8_t bytes[TCP_POSITION_BYTES], uint64_t position);
uint64_t tcp_position_read(const uint8_t bytes[TCP_POSITION_BYTES]);

/* conn.c */
tutti_status tcp_conn_new(struct tcp_conn **conn, struct tcp_endpoint *ep, int peer, int channel);
void tcp_close(struct tutti_conn *conn);
void tcp_send(struct tutti_conn *conn, struct tutti_io *io);
void tcp_recv(struct tutti_conn *conn, struct tutti_io *io);
/* The conn of this peer and channel that was not closed; NULL: there is none. */
struct tcp_conn *tcp_conn_for(const struct tcp_endpoint *ep, int peer, int channel);
void tcp_conn_set_state(struct tcp_conn *c, enum tcp_state state);
uint64_t tcp_connect_deadline(const struct tcp_endpoint *ep, int channel);
/* Its socket is ready; the peer has so much of our stream, where connections are made again. */
void tcp_conn_up(struct tcp_conn *c);
void tcp_conn_up_at(struct tcp_conn *c, uint64_t position);
void tcp_conn_busy(struct tcp_conn *c); /* it is to be visited */
void tcp_conn_watch(struct tcp_conn *c);
void tcp_conn_unwatch(struct tcp_conn *c);
void tcp_conn_add_alarm(struct tcp_conn *c); /* while it is up, if there is an alarm */
/* Everything posted ends with status; the message says which rank and why. */
void tcp_conn_fail(struct tcp_conn *c, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* The same when what has come is taken, for the peer will send no more. */
void tcp_conn_fail_after_drain(struct tcp_conn *c, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* This process lacks what the conn needs. */
void tcp_conn_refuse(struct tcp_conn *c, const char *why) __attribute__((cold));
/* It is CLOSING: goes on with that, until its deadline. May free it. */
void tcp_conn_linger(struct tcp_conn *c, uint64_t now_ns);
void tcp_conn_free(struct tcp_conn *c);
bool tcp_conn_has_unread(const struct tcp_conn *c);
struct tutti_io *tcp_queue_pop(struct tcp_queue *q);
void tcp_conn_finish(struct tcp_conn *c, struct tcp_queue *q); /* its head is done, OK */

/* send.c, receive.c: move what can be moved; return whether anything was. */
bool tcp_send_some(struct tcp_conn *c);
bool tcp_receive_some(struct tcp_conn *c);
bool tcp_can_take(const struct tcp_conn *c); /* what was read ahead is enough to get on */

/* accepted.c */
void tcp_accepted_free(struct tcp_endpoint *ep, struct tcp_accepted *accepted);
void tcp_accepted_free_all(struct tcp_endpoint *ep);
/* The known one of this peer and channel; NULL: there is none. */
struct tcp_accepted *tcp_accepted_find(const struct tcp_endpoint *ep, int peer, int channel);
/* The known one for this conn becomes its socket. False: there is none. */
bool tcp_accepted_adopt(struct tcp_conn *c);
/* A connection that may be this peer's was answered, and is not known yet. */
bool tcp_accepted_is_greeting(const struct tcp_conn *c);

/* dial.c */
void tcp_dial_begin(struct tcp_conn *c);
void tcp_dial_event(struct tcp_conn *c);
void tcp_dial_tick(struct tcp_conn *c, uint64_t now_ns);
/* An accepted connection of this peer and channel has gone without a proof. */
void tcp_dial_continue(struct tcp_conn *c);

/* reconnect.c */
/* The socket broke: another one is dialed. False: that is not wanted, or of no use. */
bool tcp_reconnect(struct tcp_conn *c, int error) __attribute__((cold));
/* The same, but another socket is there already. */
bool tcp_reconnect_leave(struct tcp_conn *c, int error) __attribute__((cold));
/* The socket is no more: error is errno, 0 for an orderly end. */
void tcp_reconnect_or_fail(struct tcp_conn *c, int error) __attribute__((cold));
/* Epoll saw its end while it was neither read nor written. */
void tcp_reconnect_look(struct tcp_conn *c) __attribute__((cold));

/* greet.c */
/* Reads what the connection says. Afterwards it may be gone: dropped, or a conn's socket. drop: why
 * it is dropped if it has not proved itself by now; NULL: it may stay. */
void tcp_greet(struct tcp_endpoint *ep, struct tcp_accepted *accepted, const char *drop);
void tcp_greet_drop(struct tcp_endpoint *ep, struct tcp_accepted *accepted, const char *why);

/* accept.c */
void tcp_accept_all(struct tcp_endpoint *ep);
void tcp_accept_tick(struct tcp_endpoint *ep, uint64_t now_ns);

/* progress.c */
int tcp_take_events(struct tcp_endpoint *ep); /* asks epoll; returns how many events there were */
bool tcp_visit_busy(struct tcp_endpoint *ep);
int tcp_progress(struct tutti_endpoint *endpoint, struct tutti_done *done);
int tcp_arm(struct tutti_endpoint *endpoint);

/* idle.c */
int tcp_mend(struct tutti_endpoint *endpoint, int *fd);
int tcp_in_doubt(struct tutti_endpoint *endpoint);

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

/* Nothing but the end of a process breaks a connection inside of a machine. */
static inline bool tcp_would_reconnect(const struct tcp_endpoint *ep, bool is_local)
{
	return ep->reconnect > (is_local ? 1 : 0);
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

static inline bool tcp_has_checksums(const struct tcp_endpoint *ep)
{
	return ep->header_bytes == TCP_SUMMED_BYTES;
}

static inline struct tcp_conn *tcp_conn_of(struct tcp_watch *watch)
{
	return (struct tcp_conn *)((char *)watch - offsetof(struct tcp_conn, watch));
}

static inline struct tcp_accepted *tcp_accepted_of(struct admission_entry *entry)
{
	return (struct tcp_accepted *)((char *)entry - offsetof(struct tcp_accepted, pending));
}

#endif
