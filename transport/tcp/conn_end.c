/* The end of a connection: how it fails, or is closed, and how what the kernel has taken by then is
 * still delivered. */
#include "transport/tcp/conn.h"

#include "core/clock.h"
#include "core/log.h"
#include "transport/done_list.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define DISCARD_BYTES 32768
#define DISCARD_CALLS 256   /* at a time, so that a peer that pours does not hold us */
#define LINGER_MS     10000 /* a closed connection's time to deliver what was sent */

static void end_socket(struct tcp_conn *c)
{
	tcp_watch_close(tcp_endpoint_of(c), &c->watch);
	c->is_watched = false;
	free(c->dial);
	c->dial = NULL;
	tcp_conn_set_state(c, CONN_CLOSED);
}

/* Whether all that is ours to say has gone, our end with it. */
static bool say_end(struct tcp_conn *c)
{
	if (c->has_said_end)
		return true;
	if (c->watch.tls && tls_end(c->watch.tls) != 0 && errno == EAGAIN)
		return false;
	shutdown(c->watch.fd, SHUT_WR);
	c->has_said_end = true;
	return true;
}

/* Closing a socket with unread data makes the kernel throw away what it has not delivered yet. So
 * we end our direction, drop what still comes in, and close when the peer's kernel has it all. */
static void tcp_linger(struct tcp_conn *c)
{
	uint8_t dropped[DISCARD_BYTES];
	bool has_said_all = say_end(c);
	ssize_t n = 1;
	int undelivered = 0;

	for (int i = 0; i < DISCARD_CALLS && n > 0; i++)
		n = recv(c->watch.fd, dropped, sizeof dropped, MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
	    ioctl(c->watch.fd, SIOCOUTQ, &undelivered) != 0 || (has_said_all && undelivered == 0))
		end_socket(c);
}

static void begin_closing(struct tcp_conn *c)
{
	if (c->state != CONN_UP) {
		if (c->state != CONN_CLOSING)
			end_socket(c);
		return;
	}
	c->deadline_ns = deadline_after_ms(LINGER_MS);
	tcp_conn_set_state(c, CONN_CLOSING);
	tcp_linger(c);
	if (c->state == CONN_CLOSING)
		tcp_conn_watch(c);
}

bool tcp_conn_has_unread(const struct tcp_conn *c)
{
	return tcp_read_ahead(c) || c->resend.unread.end > c->resend.unread.at ||
	       tcp_stream_has_unread(&c->watch);
}

void tcp_conn_fail(struct tcp_conn *c, tutti_status status, const char *format, ...)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	struct tutti_io *io;
	va_list args;

	va_start(args, format);
	vsnprintf(c->base.error, sizeof c->base.error, format, args);
	va_end(args);
	c->base.status = status;
	log_info("tcp: %s", c->base.error);
	while ((io = tutti_done_pop(&c->recvs)))
		tutti_done_push(&ep->finished, io, status);
	while ((io = tutti_done_pop(&c->sends)))
		tutti_done_push(&ep->finished, io, status);
	if (status == TUTTI_ERR_PEER)
		end_socket(c);
	else
		begin_closing(c);
}

void tcp_conn_fail_after_drain(struct tcp_conn *c, tutti_status status, const char *format, ...)
{
	char message[sizeof c->base.error];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof message, format, args);
	va_end(args);
	if (!tcp_conn_has_unread(c)) {
		tcp_conn_fail(c, status, "%s", message);
		return;
	}
	memcpy(c->base.error, message, sizeof message);
	c->fails_after_drain = status;
	tcp_watch_close(tcp_endpoint_of(c), &c->watch);
	tcp_conn_up(c);
	c->is_watched = c->may_write = false;
	c->write_error = ECONNRESET;
	c->resend.again = c->resend.sent;
	tcp_conn_busy(c);
}

void tcp_conn_refuse(struct tcp_conn *c, const char *why)
{
	tcp_conn_fail(c, TUTTI_ERR_SYSTEM,
		      "rank %d cannot connect to rank %d (tcp, channel %d): %.200s",
		      tcp_endpoint_of(c)->rank, c->base.peer, c->base.channel, why);
}

static void forget_busy(struct tcp_endpoint *ep, struct tcp_conn *c)
{
	struct tcp_conn **at = &ep->busy;

	while (*at && *at != c)
		at = &(*at)->next_busy;
	if (*at)
		*at = c->next_busy;
	c->is_busy = false;
}

static void tcp_remember_ended(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	bool is_over =
		!c->resend.was_up || c->base.status != TUTTI_OK || c->fails_after_drain != TUTTI_OK;

	if (!is_over && !c->reconnects)
		return;
	*c->ended = (struct tcp_ended){ep->ended, c->base.peer, c->base.channel, is_over};
	ep->ended = c->ended;
	c->ended = NULL;
}

void tcp_close(struct tutti_conn *conn)
{
	struct tcp_conn *c = (struct tcp_conn *)conn;

	if (!c)
		return;
	tutti_done_init(&c->sends);
	tutti_done_init(&c->recvs);
	done_list_forget(&tcp_endpoint_of(c)->finished, conn);
	forget_busy(tcp_endpoint_of(c), c);
	c->is_owned = false;
	tcp_remember_ended(c);
	begin_closing(c);
	if (c->state == CONN_CLOSED)
		tcp_conn_free(c);
}

void tcp_conn_free(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	struct tcp_conn **at = &ep->conns;

	end_socket(c);
	forget_busy(ep, c);
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	free(c->ended);
	tcp_resend_free(&c->resend);
	free(c->ahead);
	free(c);
}

void tcp_conn_linger(struct tcp_conn *c, uint64_t now_ns)
{
	if (now_ns >= c->deadline_ns)
		end_socket(c);
	else
		tcp_linger(c);
	if (c->state == CONN_CLOSED && !c->is_owned)
		tcp_conn_free(c);
}
