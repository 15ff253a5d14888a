/* The socket into posted receives. Small messages are read many at a time into the connection's
 * read-ahead buffer; large payloads go straight to where they belong. */
#include "transport/tcp/conn.h"

#include "core/crc32c.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define DIRECT_BYTES   8192u        /* from here on a payload is not read ahead */
#define READ_BYTES     (512u << 10) /* of one system call at most: sending gets its turn */
#define AHEAD_MESSAGES 32           /* most messages that one system call reads */
#define EAGER_BYTES    8192u        /* read in one call though less is posted */
#define READS          4            /* system calls in one visit */
#define PIECES         128          /* of a message, filled by one system call */

void tcp_recv(struct tutti_conn *conn, struct tutti_io *io)
{
	struct tcp_conn *c = (struct tcp_conn *)conn;
	tcp_conn_post(c, &c->recvs, io);
}

bool tcp_can_take(const struct tcp_conn *c)
{
	return c->recvs.head && tcp_read_ahead(c) >= (c->in_payload ? 1 : tcp_header_bytes(c));
}

static void tcp_mismatch(struct tcp_conn *c, uint64_t bytes, uint32_t tag)
{
	const struct tutti_io *io = c->recvs.head;

	tcp_conn_fail(c, TUTTI_ERR_MISMATCH,
		      "rank %d sent %llu bytes (tag %#x) where rank %d expects %zu bytes (tag %#x; "
		      "tcp, channel %d, message %u): the ranks did not make the same calls",
		      c->base.peer, (unsigned long long)bytes, tag, tcp_endpoint_of(c)->rank,
		      io->bytes, io->tag, c->base.channel, c->received);
}

static void tcp_damaged(struct tcp_conn *c, const char *what, uint32_t sum, uint32_t expected)
{
	tcp_conn_fail(
		c, TUTTI_ERR_SYSTEM,
		"the %s of message %u from rank %d to rank %d (tcp %s, channel %d) was damaged "
		"on its way: its CRC-32C is %08x instead of %08x (a network card or a switch may "
		"be broken)",
		what, c->received, c->base.peer, tcp_endpoint_of(c)->rank, c->where,
		c->base.channel, sum, expected);
}

/* Checks a header before any of its fields is used. */
static bool tcp_receive_check_header(struct tcp_conn *c, const uint8_t header[TCP_SUMMED_BYTES])
{
	uint32_t sum = crc32c(0, header, TCP_SUMMED_BYTES - 4), words[2];

	memcpy(words, header + TCP_HEADER_BYTES, sizeof words);
	c->sum = 0;
	c->sum_expected = le32toh(words[0]);
	if (sum == le32toh(words[1]))
		return true;
	tcp_damaged(c, "header", sum, le32toh(words[1]));
	return false;
}

/* Returns false when the connection has failed. */
static bool tcp_take_header(struct tcp_conn *c, const uint8_t *header)
{
	const struct tutti_io *io = c->recvs.head;
	uint64_t bytes;
	uint32_t words[2];

	if (tcp_has_checksums(tcp_endpoint_of(c)) && !tcp_receive_check_header(c, header))
		return false;
	memcpy(&bytes, header, 8);
	memcpy(words, header + 8, 8);
	bytes = le64toh(bytes);
	words[0] = le32toh(words[0]);
	words[1] = le32toh(words[1]);
	if (words[1] != c->received) {
		tcp_conn_fail(
			c, TUTTI_ERR_INTERNAL,
			"the stream from rank %d (tcp %s, channel %d) is out of step: message %u "
			"came as number %u (have both ranks the same version of Tutti?)",
			c->base.peer, c->where, c->base.channel, c->received, words[1]);
		return false;
	}
	if (bytes != io->bytes || words[0] != io->tag) {
		tcp_mismatch(c, bytes, words[0]);
		return false;
	}
	c->in_payload = true;
	return true;
}

static void tcp_finish_if_whole(struct tcp_conn *c)
{
	if (c->recvs.head->moved < c->recvs.head->bytes)
		return;
	if (tcp_has_checksums(tcp_endpoint_of(c)) && c->sum != c->sum_expected) {
		tcp_damaged(c, "payload", c->sum, c->sum_expected);
		return;
	}
	c->in_payload = false;
	c->received++;
	tcp_conn_finish(c, &c->recvs);
}

/* So many bytes have been put where io's next ones belong. */
static void tcp_landed(struct tcp_conn *c, struct tutti_io *io, size_t bytes)
{
	if (!tcp_has_checksums(tcp_endpoint_of(c))) {
		tutti_io_moved(io, bytes);
		return;
	}
	while (bytes > 0) {
		size_t step;
		const void *data = tutti_io_here(io, &step);
		step = step < bytes ? step : bytes;
		c->sum = crc32c(c->sum, data, step);
		tutti_io_moved(io, step);
		bytes -= step;
	}
}

static void tcp_receive_take_payload(struct tcp_conn *c, struct tutti_io *io)
{
	size_t bytes;
	void *to;

	while ((to = tutti_io_here(io, &bytes)), bytes > 0 && tcp_read_ahead(c) > 0) {
		if (bytes > tcp_read_ahead(c))
			bytes = tcp_read_ahead(c);
		memcpy(to, c->ahead + c->ahead_at, bytes);
		tcp_landed(c, io, bytes);
		c->ahead_at += (uint32_t)bytes;
	}
}

/* Hands out what lies in the read-ahead buffer. */
static bool tcp_receive_take_buffered(struct tcp_conn *c)
{
	bool moved = false;

	while (tcp_can_take(c)) {
		struct tutti_io *io = c->recvs.head;
		moved = true;
		if (!c->in_payload) {
			const uint8_t *header = c->ahead + c->ahead_at;
			c->ahead_at += tcp_header_bytes(c);
			if (!tcp_take_header(c, header))
				return true;
		}
		tcp_receive_take_payload(c, io);
		tcp_finish_if_whole(c);
	}
	return moved;
}

/* Where the next bytes of the stream go: what is missing of a header, the payload, and the header
 * that comes after it. */
struct payload_places {
	struct iovec iov[PIECES + 2];
	int count;
	size_t bytes;
	size_t header, payload; /* of which */
};

static void tcp_receive_places_add(struct payload_places *p, void *data, size_t bytes)
{
	p->iov[p->count].iov_base = data;
	p->iov[p->count].iov_len = bytes;
	p->count++;
	p->bytes += bytes;
}

/* How much to read ahead: what is posted and small, and one header of what is not. A little more
 * may come with it: where a peer runs ahead of us, as a root does, one call then brings the
 * messages of many receives to come. No more than a little: what no receive waits for stays in the
 * kernel, which makes the peer wait when it is much. */
static size_t tcp_wanted(const struct tcp_conn *c)
{
	const struct tutti_io *io = c->recvs.head;
	size_t bytes = (c->in_payload ? 0 : tcp_header_bytes(c)) + io->bytes - io->moved;

	for (int i = 1; i < AHEAD_MESSAGES && (io = io->next); i++) {
		bytes += tcp_header_bytes(c);
		if (io->bytes >= DIRECT_BYTES)
			return bytes;
		bytes += io->bytes;
	}
	return bytes > EAGER_BYTES ? bytes : EAGER_BYTES;
}

static void tcp_add_payload(struct payload_places *p, const struct tutti_io *io)
{
	size_t bytes, begun = io->in_piece;

	if (!io->pieces) {
		bytes = io->bytes - io->moved;
		p->payload = bytes < READ_BYTES ? bytes : READ_BYTES;
		tcp_receive_places_add(p, (uint8_t *)io->buf + io->moved, p->payload);
		return;
	}
	for (uint32_t i = io->piece; i < io->piece_count && i - io->piece < PIECES;
	     i++, begun = 0) {
		bytes = io->pieces[i].bytes - begun;
		if (bytes > READ_BYTES - p->payload)
			bytes = READ_BYTES - p->payload;
		if (bytes == 0)
			return;
		p->payload += bytes;
		tcp_receive_places_add(p, (uint8_t *)io->pieces[i].buf + begun, bytes);
	}
}

/* Straight to where it belongs. Returns false when that is not worth it: a message in so many small
 * pieces that reading ahead takes more of it at once. */
static bool tcp_receive_plan_direct(struct tcp_conn *c, struct payload_places *p, uint32_t have)
{
	const struct tutti_io *io = c->recvs.head;

	if (!c->in_payload)
		tcp_receive_places_add(p, c->ahead + have, p->header = tcp_header_bytes(c) - have);
	tcp_add_payload(p, io);
	/* The next header with it; more would only be copied once more. */
	if (p->payload == io->bytes - io->moved && io->next)
		tcp_receive_places_add(p, c->ahead + have + p->header, tcp_header_bytes(c));
	return p->payload >= DIRECT_BYTES;
}

/* Before: everything that could be taken from the buffer was; what is left of it is a part of a
 * header, and is moved to its front. */
static void tcp_receive_plan_read(struct tcp_conn *c, struct payload_places *p)
{
	const struct tutti_io *io = c->recvs.head;
	uint32_t have = tcp_read_ahead(c);
	size_t bytes;

	p->count = 0;
	p->bytes = p->header = p->payload = 0;
	memmove(c->ahead, c->ahead + c->ahead_at, have);
	c->ahead_at = 0;
	c->ahead_end = have;
	if (io->bytes - io->moved >= DIRECT_BYTES && tcp_receive_plan_direct(c, p, have))
		return;
	p->count = 0;
	p->bytes = p->header = p->payload = 0;
	bytes = tcp_wanted(c);
	tcp_receive_places_add(p, c->ahead + have,
			       (bytes < TCP_AHEAD_BYTES ? bytes : TCP_AHEAD_BYTES) - have);
}

/* n bytes have arrived in the places. */
static void tcp_receive_accept_read(struct tcp_conn *c, const struct payload_places *p, size_t n)
{
	struct tutti_io *io = c->recvs.head;
	size_t header = n < p->header ? n : p->header;
	size_t payload = n - header < p->payload ? n - header : p->payload;

	c->ahead_end += (uint32_t)(n - payload);
	if (p->header > 0) {
		if (c->ahead_end < tcp_header_bytes(c))
			return;
		c->ahead_at += tcp_header_bytes(c);
		if (!tcp_take_header(c, c->ahead))
			return;
	}
	tcp_landed(c, io, payload);
	if (c->in_payload)
		tcp_finish_if_whole(c);
}

static ssize_t tcp_receive_read_socket(struct tcp_conn *c, struct payload_places *p)
{
	ssize_t n = tcp_stream_recv(&c->watch, p->iov, p->count);

	if (tcp_stream_may_have_more(&c->watch))
		c->may_read = true;
	else if (n < (ssize_t)p->bytes && !c->at_end)
		c->may_read = false;
	if (n > 0)
		c->resend.received += (uint64_t)n;
	return n;
}

/* The bytes that the socket before this one held come first. */
static size_t tcp_receive_read_unread(struct tcp_unread *unread, const struct payload_places *p)
{
	size_t done = 0;

	for (int i = 0; i < p->count && unread->at < unread->end; i++) {
		size_t bytes = unread->end - unread->at;
		if (bytes > p->iov[i].iov_len)
			bytes = p->iov[i].iov_len;
		memcpy(p->iov[i].iov_base, unread->bytes + unread->at, bytes);
		unread->at += bytes;
		done += bytes;
	}
	if (unread->at == unread->end)
		tcp_unread_free(unread);
	return done;
}

/* Whether the connection goes on is decided when this visit is over. */
static void tcp_receive_mark_lost(struct tcp_conn *c, int error)
{
	c->is_lost = true;
	c->lost_error = error;
}

/* One system call. Returns whether bytes came, or the end. */
static bool tcp_receive_read_once(struct tcp_conn *c)
{
	struct payload_places p;
	ssize_t n;

	tcp_receive_plan_read(c, &p);
	n = c->resend.unread.bytes ? (ssize_t)tcp_receive_read_unread(&c->resend.unread, &p)
				   : tcp_receive_read_socket(c, &p);
	if (n > 0)
		tcp_receive_accept_read(c, &p, (size_t)n);
	else if (n == 0)
		tcp_receive_mark_lost(c, c->write_error);
	else if (errno != EAGAIN)
		tcp_receive_mark_lost(c, errno);
	else
		c->may_read = false;
	return n > 0 || c->is_lost || c->state != CONN_UP;
}

bool tcp_receive_some(struct tcp_conn *c)
{
	bool moved = tcp_receive_take_buffered(c);

	for (int i = 0; i < READS && c->recvs.head; i++) {
		if (!tcp_receive_read_once(c))
			break;
		moved = true;
		tcp_receive_take_buffered(c);
		if (!c->may_read || c->is_lost || c->state != CONN_UP)
			break;
	}
	return moved;
}
