/* Calls a transport's functions, which may be a plugin's, by callback_call: see core/callback.h.
 * The cancellation of a thread that is in one ends the process, too. */
#ifndef TRANSPORT_GUARDED_H
#define TRANSPORT_GUARDED_H

#include "core/callback.h"
#include "core/status.h"

#include <tutti/transport.h>

#define transport_call(function, ...)                                                        \
	callback_call("the function " function, "a transport", -1, __VA_ARGS__)

static inline tutti_status transport_open(const struct tutti_transport *transport,
					  struct tutti_endpoint **ep,
					  const struct tutti_endpoint_config *config)
{
	tutti_status status;

	transport_call("open", status = transport->open(ep, config));
	return status;
}

static inline int transport_reach(struct tutti_endpoint *ep, int peer, const uint8_t *address,
				  size_t bytes)
{
	int how_well;

	transport_call("reach", how_well = ep->transport->reach(ep, peer, address, bytes));
	return how_well;
}

static inline tutti_status transport_connect(struct tutti_endpoint *ep, int peer, int channel,
					     const uint8_t *address, size_t bytes,
					     struct tutti_conn **conn)
{
	tutti_status status;

	transport_call("connect", status = ep->transport->connect(ep, peer, channel, address, bytes,
								  conn));
	return status;
}

static inline void transport_send(struct tutti_conn *conn, struct tutti_io *io)
{
	transport_call("send", conn->endpoint->transport->send(conn, io));
}

static inline void transport_recv(struct tutti_conn *conn, struct tutti_io *io)
{
	transport_call("recv", conn->endpoint->transport->recv(conn, io));
}

/* What fails in here is the connections': it leaves this thread's last error as it is. */
static inline int transport_progress(struct tutti_endpoint *ep, struct tutti_done *done)
{
	int moved;

	fail_is_aside = true;
	transport_call("progress", moved = ep->transport->progress(ep, done));
	fail_is_aside = false;
	return moved;
}

static inline void transport_close(struct tutti_conn *conn)
{
	transport_call("close", conn->endpoint->transport->close(conn));
}

static inline void transport_destroy(struct tutti_endpoint *ep)
{
	transport_call("destroy", ep->transport->destroy(ep));
}

/* The caller has checked that the transport has these functions: their pointers may be NULL. */
static inline int transport_event_fd(struct tutti_endpoint *ep)
{
	int fd;

	transport_call("event_fd", fd = ep->transport->event_fd(ep));
	return fd;
}

static inline int transport_arm(struct tutti_endpoint *ep)
{
	int has_work;

	transport_call("arm", has_work = ep->transport->arm(ep));
	return has_work;
}

static inline tutti_status transport_map(struct tutti_endpoint *ep, int kind, void *ptr,
					 size_t bytes, void **map)
{
	tutti_status status;

	transport_call("map", status = ep->transport->map(ep, kind, ptr, bytes, map));
	return status;
}

static inline void transport_unmap(struct tutti_endpoint *ep, void *map)
{
	transport_call("unmap", ep->transport->unmap(ep, map));
}

static inline int transport_mend(struct tutti_endpoint *ep, int *fd)
{
	int is_due;

	fail_is_aside = true;
	transport_call("mend", is_due = ep->transport->mend(ep, fd));
	fail_is_aside = false;
	return is_due;
}

static inline int transport_in_doubt(struct tutti_endpoint *ep)
{
	int is_in_doubt;

	transport_call("in_doubt", is_in_doubt = ep->transport->in_doubt(ep));
	return is_in_doubt;
}

#undef transport_call

#endif
