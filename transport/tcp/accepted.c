/* Accepted connections that belong to no conn yet. One whose greeting is over is kept, one for each
 * peer and channel, until this rank connects. */
#include "transport/tcp/accepted.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void tcp_accepted_free(struct tcp_endpoint *ep, struct tcp_accepted *a)
{
	struct tcp_accepted **at = &ep->accepted;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	admission_remove(&ep->pending, &a->pending);
	tcp_ticking(ep);
	tcp_watch_close(ep, &a->watch);
	tcp_unread_free(&a->unread);
	free(a);
}

bool tcp_accepted_is_greeting(const struct tcp_conn *c)
{
	const struct tcp_accepted *a = tcp_endpoint_of(c)->accepted;

	while (a && (!a->has_greeted || a->is_known || a->peer != c->base.peer ||
		     a->channel != c->base.channel))
		a = a->next;
	return a != NULL;
}

struct tcp_accepted *tcp_accepted_find(const struct tcp_endpoint *ep, int peer, int channel)
{
	struct tcp_accepted *a = ep->accepted;

	while (a && (!a->is_known || a->peer != peer || a->channel != channel))
		a = a->next;
	return a;
}

static void take_terms(struct tcp_conn *c, struct tcp_accepted *a)
{
	struct tcp_resend *r = &c->resend;

	c->reconnects = a->reconnects;
	if (!r->was_up) {
		r->unread = a->unread;
		r->received = r->unread.end;
		a->unread = (struct tcp_unread){0};
	}
	r->epoch = a->epoch;
	if (r->next_epoch <= r->epoch)
		r->next_epoch = r->epoch + 1;
}

/* A dial of its own that is in flight ends with this. */
bool tcp_accepted_adopt(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	struct tcp_accepted *a = tcp_accepted_find(ep, c->base.peer, c->base.channel);
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
				    .data.ptr = &c->watch};

	if (!a)
		return false;
	uint64_t position = a->position;
	bool is_broken = a->is_broken;
	take_terms(c, a);
	memcpy(c->where, a->from, sizeof c->where);
	tcp_watch_close(ep, &c->watch);
	c->watch.fd = a->watch.fd;
	c->watch.tls = a->watch.tls;
	a->watch.fd = -1;
	a->watch.tls = NULL;
	tcp_accepted_free(ep, a);
	/* The socket is watched already and memory was taken then, so this cannot fail. */
	epoll_ctl(ep->epoll_fd, EPOLL_CTL_MOD, c->watch.fd, &event);
	tcp_conn_up_at(c, position);
	if (is_broken) {
		c->write_error = ECONNRESET;
		tcp_conn_busy(c);
	}
	return true;
}
