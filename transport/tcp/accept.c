/* Accepting connections, and making room for them. */
#include "transport/tcp/accepted.h"

#include "core/log.h"
#include "core/net.h"
#include "core/status.h"
#include "core/tries.h"
#include "transport/tcp/address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCEPTS_MAX 64 /* at a time */
#define TURNED_AWAY 8  /* then memory is not lacking for a moment */

/* The oldest connection without a proof goes, unless its proof lies here already. One that was
 * answered knows the communicator's number, and where connections are not made again its rank takes
 * itself for connected when it has sent its proof: it goes last, while a rank that has not been
 * answered dials again. False: there is none. */
static bool tcp_drop_oldest(struct tcp_endpoint *ep, bool was_answered)
{
	struct admission_entry *oldest = admission_oldest(&ep->pending, was_answered);

	if (oldest)
		tcp_greet(ep, tcp_accepted_of(oldest), "too many connections without a proof");
	return oldest != NULL;
}

/* No connection can be accepted, so all connects fail that wait for a peer's dialing; unless
 * connections without a proof are there, which may leave soon. */
static void refuse_all(struct tcp_endpoint *ep, const char *why)
{
	char kept[200];

	snprintf(kept, sizeof kept, "%.199s", why);
	for (struct tcp_conn *c = ep->conns; c && ep->pending.unproved == 0; c = c->next)
		if (c->is_owned && tcp_is_connecting(c))
			tcp_conn_refuse(c, kept);
}

/* Reads the first bytes of a new connection at once, so that it is further on when others come. */
static void accepted_add(struct tcp_endpoint *ep, int fd, const struct sockaddr *sockaddr)
{
	struct tcp_accepted *a = calloc(1, sizeof *a);

	ep->turned_away = a ? 0 : ep->turned_away + 1;
	if (!a) {
		close(fd);
		if (ep->turned_away >= TURNED_AWAY)
			refuse_all(ep, "there is no memory to accept connections");
		return;
	}
	while (!admission_has_room(&ep->pending))
		if (!tcp_drop_oldest(ep, false))
			tcp_drop_oldest(ep, true);
	tcp_address_print(sockaddr, a->from);
	a->is_local = tcp_address_is_loopback(sockaddr);
	a->watch = (struct tcp_watch){.kind = WATCH_ACCEPTED, .fd = fd};
	a->next = ep->accepted;
	ep->accepted = a;
	admission_add(&ep->pending, &a->pending);
	tcp_ticking(ep);
	tcp_tune(fd);
	if (!a->is_local)
		tcp_tune_remote(ep, fd);
	if (tcp_watch_add(ep, &a->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP) != TUTTI_OK) {
		tcp_greet_drop(ep, a, "it cannot be watched");
		refuse_all(ep, last_error());
	} else {
		tcp_greet(ep, a, NULL);
	}
}

/* None is accepted that could not be watched then: a rank that is hung up on dials again, and that
 * takes time. */
static bool can_watch(struct tcp_endpoint *ep)
{
	if (tcp_epoll_open(ep) == TUTTI_OK)
		return true;
	log_seldom("tcp: rank %d cannot accept connections: %s", ep->rank, last_error());
	refuse_all(ep, last_error());
	return false;
}

static void accept_fail(const struct tcp_endpoint *ep, int error)
{
	errno = error;
	fail_errno("rank %d cannot accept connections (accept4)", ep->rank);
	log_seldom("tcp: %s", last_error());
	errno = error;
}

void tcp_accept_all(struct tcp_endpoint *ep)
{
	ep->accept_again = false;
	for (int i = 0; i < ACCEPTS_MAX && can_watch(ep); i++) {
		struct sockaddr_storage from = {0};
		socklen_t bytes = sizeof from;
		int fd = accept4(ep->listener.fd, (struct sockaddr *)&from, &bytes,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			accepted_add(ep, fd, (struct sockaddr *)&from);
		} else if (errno == EAGAIN) {
			return;
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			int error = errno;
			if (!net_has_caller(ep->listener.fd))
				return;
			/* A connection that was answered keeps its descriptor: its rank may take
			 * itself for connected, and then this one for dead. */
			if (tcp_drop_oldest(ep, false))
				continue;
			accept_fail(ep, error);
			if (error == EMFILE || error == ENFILE)
				refuse_all(ep, last_error());
			break;
		} else if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) {
			accept_fail(ep, errno);
			if (tried_of(errno) == TRIED_DENIED)
				refuse_all(ep, last_error());
			return;
		}
	}
	/* The other connections get their turn first; the rest is accepted at the next tick. */
	ep->accept_again = true;
	tcp_ticking(ep);
}

void tcp_accept_tick(struct tcp_endpoint *ep, uint64_t now_ns)
{
	struct admission_entry *late;

	/* The proof of a late one may lie here already, and this rank was busy. */
	while ((late = admission_late(&ep->pending, now_ns)))
		tcp_greet(ep, tcp_accepted_of(late), "its greeting took too long");
	if (ep->accept_again)
		tcp_accept_all(ep);
}
