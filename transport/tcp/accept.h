/* Accepted connections, from the listener until each is a conn's. */
#ifndef TRANSPORT_TCP_ACCEPT_H
#define TRANSPORT_TCP_ACCEPT_H

#include "transport/tcp/conn.h"

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

static inline struct tcp_accepted *tcp_accepted_of(struct admission_entry *entry)
{
	return (struct tcp_accepted *)((char *)entry - offsetof(struct tcp_accepted, pending));
}

void tcp_accepted_free(struct tcp_endpoint *ep, struct tcp_accepted *accepted);
/* The known one for this conn becomes its socket. False: there is none. */
bool tcp_accepted_adopt(struct tcp_conn *c);
/* A connection that may be this peer's was answered, and is not known yet. */
bool tcp_accepted_is_greeting(const struct tcp_conn *c);
/* Reads what the connection says. Afterwards it may be gone: dropped, or a conn's socket. drop: why
 * it is dropped if it has not proved itself by now; NULL: it may stay. */
void tcp_greet(struct tcp_endpoint *ep, struct tcp_accepted *accepted, const char *drop);
void tcp_accept_all(struct tcp_endpoint *ep);
void tcp_accept_tick(struct tcp_endpoint *ep, uint64_t now_ns);

#endif
