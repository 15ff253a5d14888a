/* mailbox: a whole transport in one page, between ranks that are threads of one process. Copy it to
 * write your own; docs/transports.md walks through it. It copies from the sender's buffer into the
 * receiver's when both are there, under one lock: simple, and right, but not fast.
 *
 *     cc -shared -fPIC -o mailbox.so mailbox_plugin.c
 *     TUTTI_TRANSPORT_PLUGIN=./mailbox.so TUTTI_TRANSPORTS=mailbox
 * ./program-that-uses-tutti_init_all */
#include <tutti/transport.h>

#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Our structs begin with transport.h's: a pointer to one is a pointer to the other. */
struct mail_endpoint {
	struct tutti_endpoint base;
	int rank;
	uint64_t comm_id[2];
	struct mail_conn *conns;
	struct mail_conn *closed;   /* without having met the peer, who may come yet         */
	struct tutti_done finished; /* for the next progress                                */
};

struct mail_conn {
	struct tutti_conn base;
	struct mail_conn *next;         /* of this endpoint                                     */
	struct mail_conn *other;        /* the peer's end, once it has connected                */
	struct tutti_done sends, recvs; /* posted, in order; a done list serves as a queue      */
};

/* The address that a peer is given. It reaches us if it is in this process. */
struct mail_address {
	char magic[8];
	int64_t pid;
};

static const struct tutti_transport mailbox;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards everything here       */
static struct mail_endpoint *endpoints[256];             /* of this process              */

static struct mail_endpoint *endpoint_of(const struct mail_conn *conn)
{
	return (struct mail_endpoint *)conn->base.endpoint;
}

static void mailbox_plugin_finish(struct mail_conn *conn, struct tutti_done *queue,
				  tutti_status status)
{
	tutti_done_push(&endpoint_of(conn)->finished, tutti_done_pop(queue), status);
}

/* Rule "failure": everything posted ends with the same status, and the message names the peer. */
static void conn_fail(struct mail_conn *conn, tutti_status status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(conn->base.error, sizeof conn->base.error, format, args);
	va_end(args);
	conn->base.status = status;
	while (conn->sends.head)
		mailbox_plugin_finish(conn, &conn->sends, status);
	while (conn->recvs.head)
		mailbox_plugin_finish(conn, &conn->recvs, status);
}

/* Rules "order" and "sizes": the n-th send meets the n-th recv. Returns whether anything moved. */
static int mailbox_plugin_deliver(struct mail_conn *from, struct mail_conn *to)
{
	int moved = 0;

	for (; from->sends.head && to->recvs.head; moved = 1) {
		struct tutti_io *send = from->sends.head, *recv = to->recvs.head;
		if (send->bytes != recv->bytes || send->tag != recv->tag) {
			conn_fail(to, TUTTI_ERR_MISMATCH,
				  "rank %d sent %zu bytes (tag %#x) where rank %d expects %zu (tag "
				  "%#x)",
				  to->base.peer, send->bytes, send->tag, from->base.peer,
				  recv->bytes, recv->tag);
			return 1;
		}
		tutti_io_copy(recv, send);
		mailbox_plugin_finish(from, &from->sends, TUTTI_OK);
		mailbox_plugin_finish(to, &to->recvs, TUTTI_OK);
	}
	return moved;
}

static tutti_status mail_open(struct tutti_endpoint **endpoint,
			      const struct tutti_endpoint_config *config)
{
	struct mail_address address = {"mailbox", getpid()};
	struct mail_endpoint *ep = calloc(1, sizeof *ep);
	size_t i = 0;

	if (!ep)
		return TUTTI_ERR_MEMORY;
	ep->base.address_bytes = sizeof address;
	memcpy(ep->base.address, &address, sizeof address);
	ep->rank = config->rank;
	memcpy(ep->comm_id, config->comm_id, sizeof ep->comm_id);
	tutti_done_init(&ep->finished);
	pthread_mutex_lock(&lock);
	while (i < sizeof endpoints / sizeof *endpoints && endpoints[i])
		i++;
	if (i < sizeof endpoints / sizeof *endpoints)
		endpoints[i] = ep;
	pthread_mutex_unlock(&lock);
	if (i == sizeof endpoints / sizeof *endpoints) {
		free(ep);
		return TUTTI_ERR_MEMORY;
	}
	ep->base.transport = &mailbox;
	*endpoint = &ep->base;
	return TUTTI_OK;
}

static int mail_reach(struct tutti_endpoint *endpoint, int peer, const uint8_t *address,
		      size_t address_bytes)
{
	struct mail_address theirs;

	if (address_bytes != sizeof theirs || peer == ((struct mail_endpoint *)endpoint)->rank)
		return 0;
	memcpy(&theirs, address, sizeof theirs);
	return memcmp(theirs.magic, "mailbox", 8) == 0 && theirs.pid == getpid() ? 100 : 0;
}

static struct mail_endpoint *mailbox_plugin_find_peer(const struct mail_conn *conn)
{
	const struct mail_endpoint *mine = endpoint_of(conn);

	for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++)
		if (endpoints[i] && endpoints[i]->rank == conn->base.peer &&
		    memcmp(endpoints[i]->comm_id, mine->comm_id, sizeof mine->comm_id) == 0)
			return endpoints[i];
	return NULL;
}

/* The peer's end in one of its lists, if it has not met another. */
static struct mail_conn *find_in(struct mail_conn *list, const struct mail_conn *conn)
{
	while (list && (list->base.peer != endpoint_of(conn)->rank || list->other ||
			list->base.channel != conn->base.channel))
		list = list->next;
	return list;
}

/* Rule "failure": the peer's end has gone before this one came. */
static void look_for_peer(struct mail_conn *conn)
{
	const struct mail_endpoint *peer = mailbox_plugin_find_peer(conn);

	if (!peer)
		conn_fail(conn, TUTTI_ERR_PEER, "rank %d had left when rank %d connected to it",
			  conn->base.peer, endpoint_of(conn)->rank);
	else if (find_in(peer->closed, conn))
		conn_fail(conn, TUTTI_ERR_PEER,
			  "rank %d had closed its connection to rank %d before they met",
			  conn->base.peer, endpoint_of(conn)->rank);
}

static int mail_progress(struct tutti_endpoint *endpoint, struct tutti_done *done)
{
	struct mail_endpoint *ep = (struct mail_endpoint *)endpoint;
	struct tutti_io *io;
	int moved = 0;

	pthread_mutex_lock(&lock);
	for (struct mail_conn *conn = ep->conns; conn; conn = conn->next) {
		if (conn->other)
			moved |= mailbox_plugin_deliver(conn, conn->other) |
				 mailbox_plugin_deliver(conn->other, conn);
		else if (conn->base.status == TUTTI_OK)
			look_for_peer(conn);
	}
	while ((io = tutti_done_pop(&ep->finished))) {
		tutti_done_push(done, io, io->status);
		moved = 1;
	}
	pthread_mutex_unlock(&lock);
	return moved;
}

static void mail_destroy(struct tutti_endpoint *endpoint)
{
	struct mail_endpoint *ep = (struct mail_endpoint *)endpoint;

	if (!ep)
		return;
	assert(!ep->conns);
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++)
		if (endpoints[i] == ep)
			endpoints[i] = NULL;
	pthread_mutex_unlock(&lock);
	for (struct mail_conn *conn = ep->closed, *next; conn; conn = next) {
		next = conn->next;
		free(conn);
	}
	free(ep);
}

/* The peer's end of this conn, if it is there and still alone. */
static struct mail_conn *find_other(const struct mail_conn *conn)
{
	const struct mail_endpoint *peer = mailbox_plugin_find_peer(conn);
	struct mail_conn *other = peer ? find_in(peer->conns, conn) : NULL;

	return other && other->base.status == TUTTI_OK ? other : NULL;
}

static tutti_status mail_connect(struct tutti_endpoint *endpoint, int peer, int channel,
				 const uint8_t *address, size_t address_bytes,
				 struct tutti_conn **out)
{
	struct mail_endpoint *ep = (struct mail_endpoint *)endpoint;
	struct mail_conn *conn;

	if (!mail_reach(endpoint, peer, address, address_bytes))
		return TUTTI_ERR_UNSUPPORTED;
	conn = calloc(1, sizeof *conn);
	if (!conn)
		return TUTTI_ERR_MEMORY;
	conn->base.endpoint = endpoint;
	conn->base.peer = peer;
	conn->base.channel = channel;
	tutti_done_init(&conn->sends);
	tutti_done_init(&conn->recvs);
	pthread_mutex_lock(&lock);
	conn->other = find_other(conn);
	if (conn->other)
		conn->other->other = conn;
	conn->next = ep->conns;
	ep->conns = conn;
	pthread_mutex_unlock(&lock);
	*out = &conn->base;
	return TUTTI_OK;
}

static void mailbox_plugin_post(struct mail_conn *conn, struct tutti_done *queue,
				struct tutti_io *io)
{
	io->conn = &conn->base;
	tutti_io_rewind(io);
	pthread_mutex_lock(&lock);
	if (conn->base.status == TUTTI_OK)
		tutti_done_push(queue, io, TUTTI_OK);
	else
		tutti_done_push(&endpoint_of(conn)->finished, io, conn->base.status);
	pthread_mutex_unlock(&lock);
}

static void mail_send(struct tutti_conn *conn, struct tutti_io *io)
{
	mailbox_plugin_post((struct mail_conn *)conn, &((struct mail_conn *)conn)->sends, io);
}

static void mail_recv(struct tutti_conn *conn, struct tutti_io *io)
{
	mailbox_plugin_post((struct mail_conn *)conn, &((struct mail_conn *)conn)->recvs, io);
}

/* Rule "ownership": from here on none of this conn's ios is touched, not even those that have ended
 * but were not reported yet. */
static void mail_close(struct tutti_conn *base)
{
	struct mail_conn *conn = (struct mail_conn *)base, **at;
	struct tutti_done all;
	struct tutti_io *io;

	if (!conn)
		return;
	pthread_mutex_lock(&lock);
	tutti_done_init(&all);
	while ((io = tutti_done_pop(&endpoint_of(conn)->finished)))
		tutti_done_push(&all, io, io->status);
	while ((io = tutti_done_pop(&all)))
		if (io->conn != base)
			tutti_done_push(&endpoint_of(conn)->finished, io, io->status);
	for (at = &endpoint_of(conn)->conns; *at != conn; at = &(*at)->next)
		;
	*at = conn->next;
	if (conn->other) {
		conn->other->other = NULL;
		if (conn->other->base.status == TUTTI_OK)
			conn_fail(conn->other, TUTTI_ERR_PEER,
				  "rank %d closed its connection to rank %d",
				  conn->other->base.peer, conn->base.peer);
		free(conn);
	} else {
		conn->next = endpoint_of(conn)->closed;
		endpoint_of(conn)->closed = conn;
	}
	pthread_mutex_unlock(&lock);
}

static const struct tutti_transport mailbox = {
	.abi = TUTTI_TRANSPORT_ABI,
	.name = "mailbox",
	.kinds = 1u << TUTTI_MEMORY_HOST,
	.open = mail_open,
	.reach = mail_reach,
	.connect = mail_connect,
	.send = mail_send,
	.recv = mail_recv,
	.progress = mail_progress,
	.close = mail_close,
	.destroy = mail_destroy,
};

__attribute__((visibility("default"))) const struct tutti_transport *tutti_transport_plugin(void);

const struct tutti_transport *tutti_transport_plugin(void)
{
	return &mailbox;
}
