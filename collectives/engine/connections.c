/* The engine's connections, and what it sleeps on. Also what peers need of a rank that
 * is in no call: bytes of its last messages may have been lost with a connection, and the transport
 * that sends them again needs progress here. */
#include "collectives/engine/direct.h"
#include "collectives/engine/engine_internal.h"
#include "transport/guarded.h"

#include <poll.h>

struct tutti_conn *engine_connect(struct engine *e, int peer, int channel)
{
	const struct engine_route *r = &e->links.routes[peer];
	struct tutti_conn *conn = NULL;
	tutti_status status = TUTTI_ERR_UNSUPPORTED;
	if (!r->endpoint)
		fail(status,
		     "rank %d has no way to rank %d: TUTTI_TRANSPORTS names those it may use",
		     e->config.rank, peer);
	else
		status = transport_connect(r->endpoint, peer, channel, r->address, r->address_bytes,
					   &conn);
	if (status != TUTTI_OK)
		engine_set_failure(e, status, FAILURE_NO_RANK, last_error());
	return conn;
}

#define CAPTURED_CHANNEL 2 /* 0 is that of collectives, 1 of messages */

struct tutti_conn *engine_conn(struct engine *e, int place)
{
	int size = e->config.size;

	if (!e->links.conns[place])
		e->links.conns[place] =
			engine_connect(e, place % size, place < size ? 0 : CAPTURED_CHANNEL);
	return e->links.conns[place];
}

/* A failed engine closes its listeners too: a peer that connects later is refused at once and does
 * not wait. */
void engine_disconnect(struct engine *e)
{
	if (e->user)
		e->user->close(e);
	for (int i = 0; i < 2 * e->config.size; i++)
		if (e->links.conns[i]) {
			transport_close(e->links.conns[i]);
			e->links.conns[i] = NULL;
		}
	direct_close(e);
	for (int i = 0; i < e->config.endpoint_count; i++)
		transport_destroy(e->config.endpoints[i]);
	e->config.endpoint_count = 0;
}

int engine_arm(struct engine *e, struct pollfd *fds, int max)
{
	int n = 0;
	for (int i = 0; i < e->config.endpoint_count && n < max; i++) {
		struct tutti_endpoint *ep = e->config.endpoints[i];
		if (!ep->transport->event_fd)
			continue;
		if (transport_arm(ep))
			return -1;
		fds[n++] = (struct pollfd){.fd = transport_event_fd(ep), .events = POLLIN};
	}
	if (e->works.window_head && work_has_begun(e->works.window_head) && n < max) {
		window_disarm(e->config.window); /* of another thread: every arm needs one disarm */
		if (window_arm(e->config.window, work_window_run(e->works.window_head)))
			return -1;
		fds[n++] =
			(struct pollfd){.fd = window_event_fd(e->config.window), .events = POLLIN};
	}
	return n;
}

void engine_disarm(struct engine *e)
{
	if (e->config.window)
		window_disarm(e->config.window);
}

void engine_resend(struct engine *e, struct resend *m)
{
	m->count = 0;
	m->is_due = false;
	for (int i = 0; i < e->config.endpoint_count; i++) {
		struct tutti_endpoint *ep = e->config.endpoints[i];
		int fd = -1;
		if (!ep->transport->mend)
			continue;
		m->is_due |= transport_mend(ep, &fd) != 0;
		if (fd >= 0 && m->count == RESEND_FDS)
			m->is_due = true;
		else if (fd >= 0)
			m->fds[m->count++] = fd;
	}
}

bool engine_in_doubt(struct engine *e)
{
	for (int i = 0; i < e->config.endpoint_count; i++) {
		struct tutti_endpoint *ep = e->config.endpoints[i];
		if (ep->transport->in_doubt && transport_in_doubt(ep))
			return true;
	}
	return false;
}
