/* The dialing side of a connection: tries the peer's addresses one after another, without ever
 * waiting, and greets what answers; at first, and when a socket has broken. */
#include "transport/tcp/dial.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/net.h"
#include "core/status.h"
#include "transport/tcp/accept.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATE_MS 2000u /* for one address, when there are others */
#define AGAIN_MS     1000u /* for one that led to the peer before */
#define YIELD_MS     25    /* a lower rank's, to a higher one that may be dialing */

#define SILENCE_BYTES (TCP_TEXT_BYTES + 60)

static void dial_next(struct tcp_conn *c);

/* Records how the try of the current candidate ended. */
static void dial_note_end(struct tcp_conn *c, enum tried end, const char *why)
{
	struct tcp_dial *d = c->dial;

	log_debug("tcp: rank %d not reached at %s: %s", c->base.peer, c->where, why);
	if (d->next == 1) {
		d->tries = (struct tries){0};
		d->is_gone = false;
	}
	assert(d->next > 0);
	d->is_gone |= end == TRIED_REFUSED && d->candidates[d->next - 1].is_near;
	tries_add(&d->tries, end, 0, why);
}

/* This address did not lead to the peer: on to the next one. */
static void tcp_dial_give_up(struct tcp_conn *c, enum tried end, const char *why)
{
	dial_note_end(c, end, why);
	tcp_watch_close(tcp_endpoint_of(c), &c->watch);
	c->state = CONN_DIALING;
	dial_next(c);
}

/* Returns false when this address cannot be dialed at all. */
static bool dial_one(struct tcp_conn *c, const struct tcp_address *address)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	const struct sockaddr *sockaddr = (const struct sockaddr *)&address->sockaddr;
	int error = 0;

	tcp_address_print(sockaddr, c->where);
	c->watch.fd = net_tcp_socket(sockaddr->sa_family);
	if (c->watch.fd < 0) {
		c->dial->is_denied |= errno != EAFNOSUPPORT;
		dial_note_end(c, tried_of(errno), last_error());
		return false;
	}
	tcp_tune(c->watch.fd);
	if (tcp_address_is_loopback(sockaddr))
		tcp_tune_loopback(c->watch.fd);
	if (tcp_is_reconnecting(c))
		tcp_tune_timeout(c->watch.fd, ep->reconnect_ms);
	c->dial->reconnects = tcp_would_reconnect(ep, tcp_address_is_loopback(sockaddr));
	if (connect(c->watch.fd, sockaddr, address->bytes) != 0 && errno != EINPROGRESS &&
	    errno != EINTR)
		net_say_unconnected(c->where, error = errno);
	else if (tcp_watch_add(ep, &c->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP) != TUTTI_OK)
		c->dial->is_denied = true;
	else
		return true;
	dial_note_end(c, error ? tried_of(error) : TRIED_DENIED, last_error());
	tcp_watch_close(ep, &c->watch);
	return false;
}

/* A round of dialing, or the time, came to nothing. Returns whether that was the last. */
static bool dial_reconnect_is_over(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	struct tcp_resend *r = &c->resend;
	char text[TRIES_TEXT_BYTES];
	uint64_t now = clock_now_ns();

	if (r->tries < ep->reconnect_tries && now < c->deadline_ns)
		return false;
	tcp_conn_fail_after_drain(
		c, TUTTI_ERR_TIMEOUT,
		"rank %d (tcp %s, channel %d) lost its connection to rank %d (%s); %d attempts in "
		"%llu ms did not bring it back: is the network between them down? (%.200s)",
		c->base.peer, c->where, c->base.channel, ep->rank, strerror(r->cause), r->tries,
		(unsigned long long)((now - r->since_ns) / 1000000u),
		tries_text(&c->dial->tries, text, sizeof text));
	return true;
}

/* No address of this round led to the peer. Returns whether the conn has failed for that. */
static bool dial_fail_round(struct tcp_conn *c)
{
	const struct tcp_dial *d = c->dial;
	char text[TRIES_TEXT_BYTES];
	int rank = tcp_endpoint_of(c)->rank, peer = c->base.peer, channel = c->base.channel;

	/* The peer listened before its address was handed out, at all addresses of its machine: if
	 * they refuse, or loopback does where that leads to it, it has left or its process has
	 * ended. An address of another machine that refuses while others have no route may be one
	 * that this machine has, too. */
	bool is_gone = (d->is_gone || d->tries.ended[TRIED_REFUSED] == d->count) &&
		       !tcp_accepted_is_greeting(c);

	tries_text(&d->tries, text, sizeof text);
	if (d->is_denied || d->tries.ended[TRIED_DENIED] == d->count)
		tcp_conn_refuse(c, text);
	else if (is_gone)
		tcp_conn_fail_after_drain(c, TUTTI_ERR_PEER,
					  "rank %d (tcp, channel %d) refuses the connection of "
					  "rank %d: %.150s; that rank's own output may say why",
					  peer, channel, rank, text);
	else if (d->tries.ended[TRIED_OTHER_SECRET] > 0)
		tcp_conn_fail(c, TUTTI_ERR_AUTH,
			      "rank %d cannot connect to rank %d (tcp, channel %d): %.150s (it is "
			      "another program or another job)",
			      rank, peer, channel, text);
	else if (d->is_changed)
		tcp_conn_fail(c, TUTTI_ERR_AUTH,
			      "the data between rank %d and rank %d (tcp %s, channel %d) is "
			      "changed on its way: TLS cannot be set up (is a proxy between them?)",
			      rank, peer, c->where, channel);
	else
		return tcp_is_reconnecting(c) && dial_reconnect_is_over(c);
	return true;
}

static void dial_next(struct tcp_conn *c)
{
	struct tcp_dial *d = c->dial;
	bool is_reconnecting = tcp_is_reconnecting(c);

	if (d->next == 0 && is_reconnecting)
		c->resend.tries++;
	while (d->next < d->count) {
		if (!dial_one(c, &d->candidates[d->next++]))
			continue;
		d->give_up_ns = DEADLINE_NONE;
		if (is_reconnecting || d->count > 1)
			d->give_up_ns =
				deadline_after_ms(is_reconnecting ? AGAIN_MS : CANDIDATE_MS);
		return;
	}
	if (dial_fail_round(c))
		return;
	d->next = 0;
	d->is_resting = true;
}

struct tcp_dial *tcp_dial_new(const struct tcp_conn *c)
{
	struct tcp_dial *d = calloc(1, sizeof *d);

	if (d)
		d->count = tcp_address_candidates(tcp_endpoint_of(c), c->resend.address,
						  c->resend.address_bytes, d->candidates);
	return d;
}

/* The higher rank dials at once; the lower one waits a little for the peer's dialing. */
void tcp_dial_begin(struct tcp_conn *c)
{
	if (tcp_endpoint_of(c)->rank > c->base.peer) {
		tcp_conn_set_state(c, CONN_DIALING);
		dial_next(c);
	} else {
		c->dial->give_up_ns = deadline_after_ms(YIELD_MS);
		tcp_conn_set_state(c, CONN_WAITING);
	}
}

/* The peer may have no use for this conn yet, or be gone: dialing tells. */
static void dial_stop_waiting(struct tcp_conn *c)
{
	if (!tcp_is_reconnecting(c))
		c->deadline_ns = tcp_connect_deadline(tcp_endpoint_of(c), c->base.channel);
	tcp_conn_set_state(c, CONN_DIALING);
	dial_next(c);
}

static void dial_connect_timed_out(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	const struct tries *tries = &c->dial->tries;
	char text[TRIES_TEXT_BYTES];

	tries_text(tries, text, sizeof text);
	tcp_conn_fail(c, TUTTI_ERR_TIMEOUT,
		      "rank %d (tcp %s, channel %d) did not accept the connection of rank %d "
		      "within %d ms%s%.200s%s",
		      c->base.peer, c->where, c->base.channel, ep->rank, ep->timeout_ms,
		      tries->count ? ": " : "", text,
		      tries->most == TRIED_SILENT
			      ? ": is its process stopped, or a firewall between them?"
			      : "");
}

static const char *dial_say_silence(const struct tcp_conn *c, char text[SILENCE_BYTES])
{
	snprintf(text, SILENCE_BYTES, "%s at %s",
		 c->state == CONN_DIALING ? "nothing answers"
					  : "the connection was accepted, but nothing arrived,",
		 c->where);
	return text;
}

void tcp_dial_tick(struct tcp_conn *c, uint64_t now_ns)
{
	char text[SILENCE_BYTES];
	struct tcp_dial *d = c->dial;
	bool is_reconnecting = tcp_is_reconnecting(c);
	bool is_wanted = c->sends.head || c->recvs.head || is_reconnecting;

	if (c->state == CONN_WAITING) {
		if (is_wanted && now_ns >= d->give_up_ns)
			dial_stop_waiting(c);
	} else if (now_ns >= c->deadline_ns && !is_reconnecting) {
		dial_connect_timed_out(c);
	} else if (now_ns >= c->deadline_ns && c->state == CONN_DIALING) {
		dial_reconnect_is_over(c);
	} else if (d->is_resting) {
		d->is_resting = false;
		dial_next(c);
	} else if (now_ns >= d->give_up_ns && !d->has_proof) {
		tcp_dial_give_up(c, TRIED_SILENT, dial_say_silence(c, text));
	}
}

/* The dialing end's messages at an address until the connection is up, or it gives that address up:
 * its hello, its proof, TLS's handshake, and how far it has come in the stream.
 *
 * Both ends may dial. The dialing end is up when it sends its proof, the accepting end when that
 * comes; both then refuse the other's hellos. So that two crossing dials cannot both end well, the
 * higher rank keeps its proof back while a hello that it has answered may still turn into the lower
 * rank's proof. Then the lower rank's connection is the one; and if the higher rank's proof was
 * sent before the lower one's hello came, it is the higher rank's. */

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
static void dial_begin_handshake(struct tcp_conn *c)
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
		dial_begin_handshake(c);
	else
		tcp_settle(c);
}

/* The peer has accepted the proof, and says how far it has come. */
static void dial_take_position(struct tcp_conn *c)
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

	if (memcmp(d->answer, auth_not_here, sizeof auth_not_here) == 0) {
		snprintf(why, sizeof why, "another rank or communicator listens at %s by now",
			 c->where);
		tcp_dial_give_up(c, TRIED_REFUSED, why);
		return;
	}
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
		dial_take_position(c);
}

/* A socket that breaks between live ranks (a link that flaps, a middlebox that forgets) is replaced
 * by another one, and no call notices. Both ends dial, as they did first, at the address
 * that led to the peer before. If every address refuses, the peer is gone. If none answers, the
 * rank tries again, for as long and as often as is configured; but a peer whose kernel takes the
 * connection is alive, and may be busy elsewhere for longer than that.
 *
 * Sockets of a connection are numbered. The number is in what both ends prove, and one that is not
 * larger than that of the socket in use is refused: a late greeting changes nothing. */

#define EPOCHS (1u << 19) /* sockets that a connection may have had */

/* Keeps only the address of the list that has the socket's host. If none has it, addresses are
 * translated on the way, and all are kept. */
static int dial_keep_proven(struct tcp_address *list, int count, const char *where)
{
	const char *colon = strrchr(where, ':');
	size_t host = colon ? (size_t)(colon - where) : 0;

	for (int i = 0; i < count && colon; i++) {
		char text[TCP_TEXT_BYTES];
		tcp_address_print((const struct sockaddr *)&list[i].sockaddr, text);
		if (strncmp(text, where, host + 1) != 0)
			continue;
		list[0] = list[i];
		return 1;
	}
	return count;
}

/* The same trouble goes on until bytes have moved. */
static void dial_begin_trying(struct tcp_conn *c, int error)
{
	struct tcp_resend *r = &c->resend;

	if (r->since_ns == 0 || r->mark != r->sent + r->received) {
		r->mark = r->sent + r->received;
		r->since_ns = clock_now_ns();
		r->tries = 0;
	}
	r->cause = error;
	c->deadline_ns = r->since_ns + (uint64_t)tcp_endpoint_of(c)->reconnect_ms * 1000000u;
}

/* EPIPE: the peer had ended the connection before it was reset. */
static bool dial_can_reconnect(const struct tcp_conn *c, int error)
{
	return c->reconnects && c->is_owned && c->state == CONN_UP && c->watch.fd >= 0 &&
	       c->base.status == TUTTI_OK && error != 0 && error != EPIPE && error != EBADMSG &&
	       c->resend.next_epoch < EPOCHS - 1;
}

bool tcp_reconnect_leave(struct tcp_conn *c, int error)
{
	size_t had = c->resend.unread.end;
	struct tcp_dial *d;
	bool is_taken;

	if (!dial_can_reconnect(c, error) || !(d = tcp_dial_new(c)))
		return false;
	d->count = dial_keep_proven(d->candidates, d->count, c->where);
	is_taken = tcp_unread_take(&c->resend.unread, &c->watch);
	if (c->resend.unread.end > had)
		c->resend.received += c->resend.unread.end - had;
	if (!is_taken) {
		free(d);
		return false;
	}
	log_info("tcp: rank %d (tcp %s, channel %d) lost a connection, which is made again: %s",
		 c->base.peer, c->where, c->base.channel, strerror(error));
	tcp_watch_close(tcp_endpoint_of(c), &c->watch);
	c->is_watched = c->has_hung_up = false;
	c->write_error = 0;
	c->dial = d;
	dial_begin_trying(c, error);
	tcp_conn_set_state(c, CONN_WAITING);
	return true;
}

bool tcp_reconnect(struct tcp_conn *c, int error)
{
	if (!tcp_reconnect_leave(c, error))
		return false;
	tcp_dial_begin(c);
	return true;
}

void tcp_reconnect_look(struct tcp_conn *c)
{
	int error = 0;
	socklen_t bytes = sizeof error;

	c->has_hung_up = false;
	if (c->state != CONN_UP || c->watch.fd < 0 ||
	    getsockopt(c->watch.fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
		return;
	/* The kernel reports this error only once, and counts what it still had to deliver for
	 * ever as not delivered. */
	if (!tcp_reconnect(c, error) && error && !c->write_error)
		c->write_error = error;
}

/* Where in the stream the first changed byte was is unknown, so this connection is not made
 * again. */
static void dial_fail_changed(struct tcp_conn *c)
{
	tcp_conn_fail(c, TUTTI_ERR_AUTH,
		      "the data between rank %d and rank %d (tcp %s, channel %d) is changed on its "
		      "way (TLS: %s; is a proxy between them?)",
		      tcp_endpoint_of(c)->rank, c->base.peer, c->where, c->base.channel,
		      c->watch.tls ? tls_error_text(c->watch.tls) : "");
}

void tcp_reconnect_or_fail(struct tcp_conn *c, int error)
{
	int rank = tcp_endpoint_of(c)->rank;

	if (error == EBADMSG) {
		dial_fail_changed(c);
		return;
	}
	if (tcp_reconnect(c, error))
		return;
	if (c->fails_after_drain != TUTTI_OK) {
		char message[sizeof c->base.error];
		memcpy(message, c->base.error, sizeof message);
		tcp_conn_fail(c, c->fails_after_drain, "%s", message);
	} else if (error == 0)
		tcp_conn_fail(c, TUTTI_ERR_PEER,
			      "rank %d (tcp %s, channel %d) closed its connection to rank %d",
			      c->base.peer, c->where, c->base.channel, rank);
	else if (tried_of(error) == TRIED_DENIED)
		tcp_conn_fail(
			c, TUTTI_ERR_SYSTEM,
			"rank %d cannot use its connection to rank %d (tcp %s, channel %d; sendmsg "
			"or recvmsg): %s (errno %d)",
			rank, c->base.peer, c->where, c->base.channel, strerror(error), error);
	else
		tcp_conn_fail(c, TUTTI_ERR_PEER,
			      "rank %d (tcp %s, channel %d) lost its connection to rank %d: %s",
			      c->base.peer, c->where, c->base.channel, rank, strerror(error));
}
