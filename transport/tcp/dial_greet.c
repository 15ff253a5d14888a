/* The dialing end's messages at an address until the connection is up, or it gives that address up:
 * its hello, its proof, TLS's handshake, and how far it has come in the stream.
 *
 * Both ends may dial. The dialing end is up when it sends its proof, the accepting end when that
 * comes; both then refuse the other's hellos. So that two crossing dials cannot both end well, the
 * higher rank keeps its proof back while a hello that it has answered may still turn into the lower
 * rank's proof. Then the lower rank's connection is the one; and if the higher rank's proof was
 * sent before the lower one's hello came, it is the higher rank's. */
#include "transport/tcp/dial.h"

#include "core/clock.h"
#include "core/net.h"
#include "core/status.h"
#include "transport/tcp/accepted.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

void tcp_context(uint8_t context[AUTH_CONTEXT_BYTES], const struct tcp_endpoint *ep, int from,
		 int to, int channel, int32_t terms)
{
	const int32_t numbers[4] = {from, to, channel, terms};

	_Static_assert(sizeof ep->comm_id + sizeof numbers == AUTH_CONTEXT_BYTES, "context");
	memcpy(context, ep->comm_id, sizeof ep->comm_id);
	memcpy(context + sizeof ep->comm_id, numbers, sizeof numbers);
}

int32_t tcp_terms(const struct tcp_endpoint *ep, bool reconnects, uint32_t epoch)
{
	const uint32_t version = 2;

	return (int32_t)(version | (uint32_t)tcp_has_checksums(ep) << 8 |
			 (uint32_t)reconnects << 9 | (uint32_t)ep->has_tls << 10 |
			 epoch << TCP_EPOCH_SHIFT);
}

/* A call on the socket has failed; errno says why. */
static void dial_give_up_call(struct tcp_conn *c, const char *what)
{
	enum tried end = tried_of(errno);

	c->dial->is_denied |= end == TRIED_DENIED;
	fail_errno("rank %d cannot %s to %s", tcp_endpoint_of(c)->rank, what, c->where);
	tcp_dial_give_up(c, end, last_error());
}

static void tcp_dial_greet(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	uint8_t context[AUTH_CONTEXT_BYTES], hello[AUTH_HELLO_BYTES];

	c->dial->epoch = c->resend.next_epoch;
	tcp_context(context, ep, ep->rank, c->base.peer, c->base.channel,
		    tcp_terms(ep, c->dial->reconnects, c->dial->epoch));
	auth_hello(&c->dial->auth, ep->key, context, hello);
	/* A fresh socket's buffer holds more than this. */
	if (send(c->watch.fd, hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello) {
		dial_give_up_call(c, "send the greeting (send)");
		return;
	}
	c->dial->answered = 0;
	c->dial->has_proof = false;
	/* The peer is there, and may be busy elsewhere. */
	if (tcp_is_reconnecting(c))
		c->dial->give_up_ns = DEADLINE_NONE;
	c->state = CONN_GREETING;
}

/* Where connections are made again, this end's position is said next. */
static void tcp_settle(struct tcp_conn *c)
{
	uint64_t received = htole64(c->resend.received);
	struct iovec position = {&received, sizeof received};

	if (!c->dial->reconnects) {
		tcp_conn_up(c);
		return;
	}
	if (tcp_stream_send(&c->watch, &position, 1) != (ssize_t)sizeof received) {
		dial_give_up_call(c, "send its position in the stream (send)");
		return;
	}
	c->dial->position_read = 0;
	c->state = CONN_AGREEING;
}

static void tcp_handshake(struct tcp_conn *c)
{
	if (tls_handshake(c->watch.tls) == 0) {
		tcp_settle(c);
	} else if (errno == EBADMSG) {
		c->dial->is_changed = true;
		tcp_dial_give_up(c, TRIED_HUNG_UP, tls_error_text(c->watch.tls));
	} else if (errno != EAGAIN) {
		dial_give_up_call(c, "set up TLS");
	}
}

/* The process that answered is the peer, and may be busy elsewhere. */
static void begin_handshake(struct tcp_conn *c)
{
	c->dial->give_up_ns = DEADLINE_NONE;
	if (!tcp_stream_secure(&c->watch, &c->dial->auth, true)) {
		c->dial->is_denied = true;
		tcp_dial_give_up(c, TRIED_DENIED, last_error());
		return;
	}
	c->state = CONN_HANDSHAKE;
	tcp_handshake(c);
}

static void tcp_prove(struct tcp_conn *c)
{
	struct tcp_dial *d = c->dial;

	if (tcp_endpoint_of(c)->rank > c->base.peer && tcp_accepted_is_greeting(c))
		return;
	if (send(c->watch.fd, d->proof, AUTH_PROOF_BYTES, MSG_NOSIGNAL) != AUTH_PROOF_BYTES) {
		dial_give_up_call(c, "send its proof (send)");
		return;
	}
	if (d->reconnects)
		c->resend.next_epoch = d->epoch + 1;
	if (tcp_endpoint_of(c)->has_tls)
		begin_handshake(c);
	else
		tcp_settle(c);
}

/* The peer has accepted the proof, and says how far it has come. */
static void take_position(struct tcp_conn *c)
{
	uint64_t position = tcp_position_read(c->dial->position);

	if (position == TCP_STREAM_CLOSED) {
		memcpy(c->base.where, c->where, sizeof c->base.where);
		tcp_conn_fail_after_drain(
			c, TUTTI_ERR_PEER,
			"rank %d (tcp %s, channel %d) closed its connection to rank %d",
			c->base.peer, c->where, c->base.channel, tcp_endpoint_of(c)->rank);
		return;
	}
	c->reconnects = true;
	c->resend.epoch = c->dial->epoch;
	tcp_tune_timeout(c->watch.fd, 0);
	tcp_conn_up_at(c, position);
}

void tcp_dial_continue(struct tcp_conn *c)
{
	if (c->state == CONN_GREETING && c->dial->has_proof)
		tcp_prove(c);
}

static void tcp_take_answer(struct tcp_conn *c)
{
	struct tcp_dial *d = c->dial;
	char why[TCP_TEXT_BYTES + 70];

	if (auth_check_answer(&d->auth, d->answer, d->proof) != TUTTI_OK) {
		snprintf(why, sizeof why,
			 "the process that listens at %s could not prove the job's secret",
			 c->where);
		tcp_dial_give_up(c, TRIED_OTHER_SECRET, why);
		return;
	}
	d->has_proof = true;
	tcp_prove(c);
}

/* The peer keeps its proof back, so nothing more can come but the end. */
static void tcp_check_end(struct tcp_conn *c)
{
	char byte;
	ssize_t n = recv(c->watch.fd, &byte, 1, 0);

	if (n == 0)
		tcp_dial_give_up(c, TRIED_HUNG_UP, "the other end hung up");
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		dial_give_up_call(c, "read the answer (recv)");
}

/* Whether all of it has come. */
static bool tcp_read_whole(struct tcp_conn *c, uint8_t *to, size_t bytes, size_t *have)
{
	const char *problem = tcp_stream_fill(&c->watch, to, bytes, have);

	if (problem && errno)
		dial_give_up_call(c, "read the answer (recv)");
	else if (problem)
		tcp_dial_give_up(c, TRIED_HUNG_UP, problem);
	return !problem && *have == bytes;
}

void tcp_dial_event(struct tcp_conn *c)
{
	struct sockaddr_storage peer;
	socklen_t bytes = sizeof peer;
	int error;

	if (c->state == CONN_DIALING) {
		if (net_connect_end(c->watch.fd, &error) != TUTTI_OK) {
			c->dial->is_denied = true;
			tcp_dial_give_up(c, TRIED_DENIED, last_error());
			return;
		}
		if (error) {
			net_say_unconnected(c->where, error);
			tcp_dial_give_up(c, tried_of(error), last_error());
			return;
		}
		if (getpeername(c->watch.fd, (struct sockaddr *)&peer, &bytes) != 0)
			return;
		tcp_dial_greet(c);
	}
	if (c->state == CONN_GREETING && c->dial->has_proof)
		tcp_check_end(c);
	else if (c->state == CONN_GREETING &&
		 tcp_read_whole(c, c->dial->answer, AUTH_ANSWER_BYTES, &c->dial->answered))
		tcp_take_answer(c);
	else if (c->state == CONN_HANDSHAKE)
		tcp_handshake(c);
	/* Either may have come so far. */
	if (c->state == CONN_AGREEING &&
	    tcp_read_whole(c, c->dial->position, TCP_POSITION_BYTES, &c->dial->position_read))
		take_position(c);
}
