/* Dialing a peer, at first and when a socket has broken. */
#ifndef TRANSPORT_TCP_DIAL_H
#define TRANSPORT_TCP_DIAL_H

#include "core/tries.h"
#include "transport/tcp/address.h"
#include "transport/tcp/conn.h"

/* The state of dialing; freed when the connection is up. */
struct tcp_dial {
	struct tcp_address candidates[TCP_CANDIDATES];
	int count, next;       /* next candidate */
	struct tries tries;    /* of this round; until its first try ends, of the one before */
	bool is_gone;          /* in this round the peer has refused the dial over loopback */
	bool is_changed;       /* data was changed on its way: TLS cannot be set up */
	bool is_denied;        /* this process is denied, or lacks, what every dial needs */
	bool is_resting;       /* until the next tick */
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

/* With the addresses of the conn's peer. NULL: no memory. */
struct tcp_dial *tcp_dial_new(const struct tcp_conn *c);
void tcp_dial_begin(struct tcp_conn *c);
void tcp_dial_tick(struct tcp_conn *c, uint64_t now_ns);

void tcp_dial_event(struct tcp_conn *c);
/* An accepted connection of this peer and channel has gone without a proof. */
void tcp_dial_continue(struct tcp_conn *c);

/* The socket broke: another one is dialed. False: that is not wanted, or of no use. */
bool tcp_reconnect(struct tcp_conn *c, int error) __attribute__((cold));
/* The same, but another socket is there already. */
bool tcp_reconnect_leave(struct tcp_conn *c, int error) __attribute__((cold));
/* The socket has ended: error is errno, 0 for an orderly end. */
void tcp_reconnect_or_fail(struct tcp_conn *c, int error) __attribute__((cold));
/* Epoll saw its end while it was neither read nor written. */
void tcp_reconnect_look(struct tcp_conn *c) __attribute__((cold));

#endif
