/* A socket that breaks between live ranks (a link that flaps, a middlebox that forgets) is replaced
 * by another one, and nobody notices. Both ends dial, as they did first (dial.c), at the address
 * that led to the peer before. Who is refused there knows that the peer is gone. Who is not
 * answered tries again, for as long and as often as is configured; but where the peer's kernel
 * takes the connection its process is there, and may be busy elsewhere for longer than that.
 *
 * Sockets of a connection are numbered. The number is in what both ends prove, and one that is not
 * larger than that of the socket in use is refused: a late greeting changes nothing. */
#include "transport/tcp/tcp.h"

#include "core/clock.h"
#include "core/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

bool tcp_is_reconnecting(const struct tcp_conn *c)
{
	return c->resend.was_up && c->state < CONN_UP;
}

/* Leaves those that the socket's address is one of; all when none is: something translates. */
static int keep_proven(struct tcp_address *list, int count, const char *where)
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

static struct tcp_dial *new_dial(struct tcp_conn *c)
{
	struct tcp_dial *d = calloc(1, sizeof *d);

	if (!d)
		return NULL;
	d->count = tcp_address_candidates(tcp_endpoint_of(c), c->resend.address,
					  c->resend.address_bytes, d->candidates);
	d->count = keep_proven(d->candidates, d->count, c->where);
	return d;
}

/* The same trouble goes on until bytes have moved. */
static void begin_trying(struct tcp_conn *c, int error)
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
static bool can_reconnect(const struct tcp_conn *c, int error)
{
	return c->reconnects && c->is_owned && c->state == CONN_UP && c->watch.fd >= 0 &&
	       c->base.status == TUTTI_OK && error != 0 && error != EPIPE && error != EBADMSG &&
	       c->resend.next_epoch < TCP_EPOCHS - 1;
}

bool tcp_reconnect(struct tcp_conn *c, int error)
{
	size_t had = c->resend.unread.end;
	struct tcp_dial *d;
	bool is_taken;

	if (!can_reconnect(c, error) || !(d = new_dial(c)))
		return false;
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
	begin_trying(c, error);
	tcp_conn_reach(c);
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
	/* Nobody will be told this once more, and the kernel counts what it still had to deliver
	 * for ever as not delivered. */
	if (!tcp_reconnect(c, error) && error && !c->write_error)
		c->write_error = error;
}

bool tcp_reconnect_is_over(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	struct tcp_resend *r = &c->resend;
	uint64_t now = clock_now_ns();

	if (r->tries < ep->reconnect_tries && now < c->deadline_ns)
		return false;
	tcp_conn_fail_after_drain(
		c, TUTTI_ERR_TIMEOUT,
		"rank %d (tcp %s, channel %d) lost its connection to rank %d (%s); %d attempts in "
		"%llu ms did not bring it back",
		c->base.peer, c->where, c->base.channel, ep->rank, strerror(r->cause), r->tries,
		(unsigned long long)((now - r->since_ns) / 1000000u));
	return true;
}
