/* The endpoint: its life, and the table of functions. */
#include "transport/tcp/tcp.h"

#include "core/clock.h"
#include "core/forks.h"
#include "core/net.h"
#include "core/status.h"
#include "transport/registry.h"
#include "transport/tcp/accepted.h"
#include "transport/tcp/dial.h"

#include <assert.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PENDING_MS 10000 /* for the proof, and again for what follows it */
#define LEAVE_MS   500   /* how long destroy waits for that */

static void tune_listener(struct tcp_endpoint *ep)
{
	socklen_t bytes = sizeof ep->congestion - 1;

	if (getsockopt(ep->listener.fd, IPPROTO_TCP, TCP_CONGESTION, ep->congestion, &bytes) != 0)
		ep->congestion[0] = '\0';
	else
		tcp_tune_loopback(ep->listener.fd);
}

static int tcp_event_fd(struct tutti_endpoint *endpoint)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;

	return tcp_epoll_open(ep) == TUTTI_OK ? ep->epoll_fd : -1;
}

static void tcp_destroy(struct tutti_endpoint *endpoint)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	uint64_t deadline = deadline_after_ms(LEAVE_MS);

	if (!ep)
		return;
	while (ep->unsettled > 0 && clock_now_ns() < deadline) {
		struct pollfd pollfd = {.fd = ep->epoll_fd, .events = POLLIN};
		poll(&pollfd, 1, TCP_TICK_MS);
		tcp_take_events(ep);
	}
	while (ep->accepted)
		tcp_accepted_free(ep, ep->accepted);
	while (ep->conns) {
		assert(!ep->conns->is_owned);
		tcp_conn_free(ep->conns);
	}
	while (ep->ended) {
		struct tcp_ended *ended = ep->ended;
		ep->ended = ended->next;
		free(ended);
	}
	tcp_watch_close(ep, &ep->listener);
	tcp_watch_close(ep, &ep->timer);
	tcp_watch_close(ep, &ep->alarm);
	if (ep->epoll_fd >= 0)
		close(ep->epoll_fd);
	free(ep);
}

static tutti_status open_listener(struct tcp_endpoint *ep)
{
	int backlog = ep->size > SOMAXCONN ? ep->size : SOMAXCONN;

	TRY(net_listen(NULL, 0, backlog, &ep->listener.fd, &ep->port));
	forks_own(ep->listener.fd);
	tune_listener(ep);
	return TUTTI_OK;
}

static tutti_status tcp_open(struct tutti_endpoint **endpoint,
			     const struct tutti_endpoint_config *config)
{
	struct tcp_endpoint *ep = calloc(1, sizeof *ep);
	tutti_status status;

	if (!ep)
		return fail(TUTTI_ERR_MEMORY, "rank %d has no memory for its tcp endpoint",
			    config->rank);
	ep->base.transport = &transport_tcp;
	ep->rank = config->rank;
	ep->size = config->size;
	ep->timeout_ms = config->timeout_ms;
	ep->reconnect = config->reconnect;
	ep->reconnect_ms = config->reconnect_ms;
	ep->reconnect_tries = config->reconnect_tries;
	memcpy(ep->comm_id, config->comm_id, sizeof ep->comm_id);
	memcpy(ep->key, config->key, sizeof ep->key);
	ep->header_bytes = config->checksum ? TCP_SUMMED_BYTES : TCP_HEADER_BYTES;
	ep->epoll_fd = -1;
	ep->has_tls = config->tls;
	ep->listener = (struct tcp_watch){.kind = WATCH_LISTENER, .fd = -1};
	ep->timer = (struct tcp_watch){.kind = WATCH_TIMER, .fd = -1};
	ep->alarm = (struct tcp_watch){.kind = WATCH_ALARM, .fd = -1};
	admission_init(&ep->pending, TCP_PENDING + ep->size, PENDING_MS);
	ep->wants_look = true;
	tutti_done_init(&ep->finished);
	status = ep->has_tls ? tls_load() : TUTTI_OK;
	if (status == TUTTI_OK)
		status = open_listener(ep);
	if (status == TUTTI_OK)
		status = tcp_address_make(ep, config->address);
	if (status != TUTTI_OK) {
		tcp_destroy(&ep->base);
		return status;
	}
	*endpoint = &ep->base;
	return TUTTI_OK;
}

static tutti_status tcp_connect(struct tutti_endpoint *endpoint, int peer, int channel,
				const uint8_t *address, size_t address_bytes,
				struct tutti_conn **conn)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	struct tcp_conn *c = NULL;

	assert(peer >= 0 && peer < ep->size && peer != ep->rank);
	assert(channel >= 0 && channel < TCP_CHANNELS);
	assert(address_bytes <= TUTTI_ADDRESS_BYTES);
	TRY(tcp_conn_new(&c, ep, peer, channel));
	memcpy(c->resend.address, address, address_bytes);
	c->resend.address_bytes = address_bytes;
	ep->has_far_peer |= tcp_address_is_far(ep, address, address_bytes);
	if (tcp_accepted_adopt(c)) {
		*conn = &c->base;
		return TUTTI_OK;
	}
	c->dial = tcp_dial_new(c);
	if (!c->dial || c->dial->count == 0) {
		tutti_status status = c->dial ? TUTTI_ERR_UNSUPPORTED : TUTTI_ERR_MEMORY;
		tcp_conn_free(c);
		if (status == TUTTI_ERR_MEMORY)
			return fail(status, "rank %d has no memory for a tcp connection to rank %d",
				    ep->rank, peer);
		return fail(status,
			    "rank %d has no tcp address that rank %d can connect to: "
			    "TUTTI_ADDRESS names one",
			    peer, ep->rank);
	}
	tcp_dial_begin(c);
	*conn = &c->base;
	return TUTTI_OK;
}

static int tcp_reach(struct tutti_endpoint *endpoint, int peer, const uint8_t *address,
		     size_t address_bytes)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;

	if (peer == ep->rank)
		return 0;
	ep->has_far_peer |= tcp_address_is_far(ep, address, address_bytes);
	return tcp_address_reach(ep, address, address_bytes);
}

const struct tutti_transport transport_tcp = {
	.abi = TUTTI_TRANSPORT_ABI,
	.name = "tcp",
	.kinds = 1u << TUTTI_MEMORY_HOST,
	.open = tcp_open,
	.reach = tcp_reach,
	.connect = tcp_connect,
	.send = tcp_send,
	.recv = tcp_recv,
	.progress = tcp_progress,
	.close = tcp_close,
	.destroy = tcp_destroy,
	.event_fd = tcp_event_fd,
	.arm = tcp_arm,
	.mend = tcp_mend,
	.in_doubt = tcp_in_doubt,
};
