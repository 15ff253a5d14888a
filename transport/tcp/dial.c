/* The dialing side of a connection: tries the peer's addresses one after another, without ever
 * waiting. dial_greet.c has what is said at an address that answers. */
#include "transport/tcp/dial.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/net.h"
#include "core/status.h"
#include "transport/tcp/accepted.h"

#include <assert.h>
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

void tcp_dial_give_up(struct tcp_conn *c, enum tried end, const char *why)
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
static bool reconnect_is_over(struct tcp_conn *c)
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
static bool fail_round(struct tcp_conn *c)
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
		return tcp_is_reconnecting(c) && reconnect_is_over(c);
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
	if (fail_round(c))
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
static void stop_waiting(struct tcp_conn *c)
{
	if (!tcp_is_reconnecting(c))
		c->deadline_ns = tcp_connect_deadline(tcp_endpoint_of(c), c->base.channel);
	tcp_conn_set_state(c, CONN_DIALING);
	dial_next(c);
}

static void connect_timed_out(struct tcp_conn *c)
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
			stop_waiting(c);
	} else if (now_ns >= c->deadline_ns && !is_reconnecting) {
		connect_timed_out(c);
	} else if (now_ns >= c->deadline_ns && c->state == CONN_DIALING) {
		reconnect_is_over(c);
	} else if (d->is_resting) {
		d->is_resting = false;
		dial_next(c);
	} else if (now_ns >= d->give_up_ns && !d->has_proof) {
		tcp_dial_give_up(c, TRIED_SILENT, dial_say_silence(c, text));
	}
}
