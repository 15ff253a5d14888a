/* A connection: how it begins, comes up, is watched, and has ios posted. Its end is in conn_end.c.
 */
#include "transport/tcp/conn.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"

#include <stdlib.h>
#include <string.h>

static bool is_unsettled(enum tcp_state state)
{
	return state != CONN_UP && state != CONN_CLOSED;
}

void tcp_conn_set_state(struct tcp_conn *c, enum tcp_state state)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);

	ep->unsettled += (int)is_unsettled(state) - (int)is_unsettled(c->state);
	c->state = state;
	tcp_ticking(ep);
}

void tcp_conn_finish(struct tcp_conn *c, struct tutti_done *queue)
{
	tutti_done_push(&tcp_endpoint_of(c)->finished, tutti_done_pop(queue), TUTTI_OK);
}

uint64_t tcp_connect_deadline(const struct tcp_endpoint *ep, int channel)
{
	return channel == TUTTI_CHANNEL_PATIENT ? DEADLINE_NONE : deadline_after_ms(ep->timeout_ms);
}

tutti_status tcp_conn_new(struct tcp_conn **conn, struct tcp_endpoint *ep, int peer, int channel)
{
	struct tcp_conn *c = calloc(1, sizeof *c);

	if (!c || !(c->ahead = malloc(TCP_AHEAD_BYTES)) ||
	    !(c->ended = calloc(1, sizeof *c->ended))) {
		if (c)
			free(c->ahead);
		free(c);
		return fail(TUTTI_ERR_MEMORY,
			    "rank %d has no memory for a tcp connection to rank %d", ep->rank,
			    peer);
	}
	c->base.endpoint = &ep->base;
	c->base.peer = peer;
	c->base.channel = channel;
	c->watch = (struct tcp_watch){.kind = WATCH_CONN, .fd = -1};
	c->state = CONN_CLOSED;
	c->is_owned = true;
	c->deadline_ns = tcp_connect_deadline(ep, channel);
	tutti_done_init(&c->sends);
	tutti_done_init(&c->recvs);
	c->next = ep->conns;
	ep->conns = c;
	*conn = c;
	return TUTTI_OK;
}

void tcp_conn_add_alarm(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	/* Errors and hang-ups are always told. */
	struct epoll_event event = {.events = EPOLLET, .data.ptr = &c->watch};

	c->has_alarm = false;
	if (c->reconnects && c->watch.fd >= 0 && ep->alarm.fd >= 0)
		c->has_alarm = epoll_ctl(ep->alarm.fd, EPOLL_CTL_ADD, c->watch.fd, &event) == 0;
}

struct tcp_conn *tcp_conn_for(const struct tcp_endpoint *ep, int peer, int channel)
{
	for (struct tcp_conn *c = ep->conns; c; c = c->next)
		if (c->is_owned && c->base.peer == peer && c->base.channel == channel)
			return c;
	return NULL;
}

void tcp_conn_up(struct tcp_conn *c)
{
	_Static_assert(sizeof c->base.where == sizeof c->where, "addresses");
	free(c->dial);
	c->dial = NULL;
	c->may_read = c->may_write = c->is_watched = true;
	c->at_end = c->has_hung_up = false;
	c->write_error = 0;
	c->resend.was_up = true;
	memcpy(c->base.where, c->where, sizeof c->base.where);
	tcp_conn_set_state(c, CONN_UP);
	tcp_conn_add_alarm(c);
	log_debug("tcp: rank %d is connected at %s, channel %d", c->base.peer, c->where,
		  c->base.channel);
}

void tcp_conn_up_at(struct tcp_conn *c, uint64_t position)
{
	struct tcp_resend *r = &c->resend;

	tcp_conn_up(c);
	if (!c->reconnects)
		return;
	if (tcp_resend_from(r, position)) {
		if (tcp_must_resend(c))
			tcp_conn_busy(c);
		return;
	}
	tcp_conn_fail(
		c, TUTTI_ERR_PEER,
		"the connection from rank %d to rank %d (tcp %s, channel %d) cannot go on: the "
		"peer has received %llu of %llu bytes, and only those from %llu on are kept (does "
		"a proxy between the ranks acknowledge bytes?)",
		tcp_endpoint_of(c)->rank, c->base.peer, c->where, c->base.channel,
		(unsigned long long)position, (unsigned long long)r->sent,
		(unsigned long long)r->kept_from);
}

/* Being watched makes every message dearer, so a conn that is read all the time is not
 * watched. It is watched again before it is left, and epoll tells what came in between. */
void tcp_conn_watch(struct tcp_conn *c)
{
	c->calm = 0;
	if (c->is_watched || c->watch.fd < 0)
		return;
	c->is_watched = true;
	if (tcp_watch_add(tcp_endpoint_of(c), &c->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP) !=
	    TUTTI_OK)
		tcp_conn_fail(c, TUTTI_ERR_SYSTEM,
			      "rank %d cannot watch its connection to rank %d (tcp %s): %.200s",
			      tcp_endpoint_of(c)->rank, c->base.peer, c->where, last_error());
}

void tcp_conn_unwatch(struct tcp_conn *c)
{
	if (epoll_ctl(tcp_endpoint_of(c)->epoll_fd, EPOLL_CTL_DEL, c->watch.fd, NULL) == 0)
		c->is_watched = false;
}

void tcp_conn_busy(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);

	if (c->is_busy)
		return;
	c->is_busy = true;
	c->next_busy = ep->busy;
	ep->busy = c;
}

void tcp_conn_post(struct tcp_conn *c, struct tutti_done *queue, struct tutti_io *io)
{
	io->conn = &c->base;
	tutti_io_rewind(io);
	if (c->base.status != TUTTI_OK) {
		tutti_done_push(&tcp_endpoint_of(c)->finished, io, c->base.status);
		return;
	}
	tutti_done_push(queue, io, TUTTI_IN_PROGRESS);
	tcp_conn_busy(c);
}
