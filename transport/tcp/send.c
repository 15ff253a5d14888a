/* Posted sends into the socket: headers and payloads of many messages in one system call. */
#include "transport/tcp/conn.h"

#include "core/crc32c.h"

#include <endian.h>
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* Why no byte of a connection is lost or doubled when its socket breaks.
 *
 * An io is done when its bytes have gone into the kernel, and some of them may be on their way
 * then. So the last bytes that went into the socket are kept in a ring, as many as the kernel
 * says (SIOCOUTQ) the peer's kernel has not got yet. Bytes that the peer's kernel has are not
 * lost: they can be read from a socket that was reset, and are, before the socket is closed. Then
 * each end says how many bytes it has received, and the other goes on from there: first the bytes
 * in the ring, then new ones. No acknowledgement is ever sent, and a receiver that reads nothing
 * for long holds up no other rank. */

#define REST_STEP  65536u
#define ASK_BYTES  16384u /* from here on asking what is delivered costs less than copying it */
#define KEPT_FIRST 65536u /* bytes of sent ones that are kept, ... */
#define KEPT_MOST  (64u << 20) /* ... as far as the kernel says that the peer lacks them */

uint64_t tcp_position_read(const uint8_t bytes[TCP_POSITION_BYTES])
{
	uint64_t position;

	memcpy(&position, bytes, sizeof position);
	return le64toh(position);
}

void tcp_unread_free(struct tcp_unread *unread)
{
	free(unread->bytes);
	*unread = (struct tcp_unread){0};
}

static bool unread_grow(struct tcp_unread *unread)
{
	size_t room = unread->room ? 2 * unread->room : REST_STEP;
	uint8_t *bytes = realloc(unread->bytes, room);

	if (!bytes)
		return false;
	unread->bytes = bytes;
	unread->room = room;
	return true;
}

bool tcp_unread_take(struct tcp_unread *unread, const struct tcp_watch *watch)
{
	for (;;) {
		struct iovec room;
		ssize_t n;
		if (unread->end == unread->room && !unread_grow(unread))
			return false;
		room = (struct iovec){unread->bytes + unread->end, unread->room - unread->end};
		n = tcp_stream_recv(watch, &room, 1);
		if (n <= 0)
			break;
		unread->end += (size_t)n;
	}
	if (unread->at == unread->end)
		tcp_unread_free(unread);
	return true;
}

static void tcp_ring_write(uint8_t *ring, size_t ring_bytes, uint64_t position, const uint8_t *from,
			   size_t bytes)
{
	while (bytes > 0) {
		size_t at = position & (ring_bytes - 1), step = ring_bytes - at;
		step = step < bytes ? step : bytes;
		memcpy(ring + at, from, step);
		position += step;
		from += step;
		bytes -= step;
	}
}

/* A larger ring with the same bytes. Without memory for it the older ones are not kept; whether
 * they were needed shows if the socket breaks. */
static void ring_grow(struct tcp_resend *r, uint64_t needed)
{
	size_t bytes = KEPT_FIRST, old = r->kept_bytes;
	uint8_t *ring;

	while (bytes < needed && bytes < KEPT_MOST)
		bytes *= 2;
	ring = bytes > old ? malloc(bytes) : NULL;
	if (!ring)
		return;
	for (uint64_t p = r->kept_from; p < r->sent;) {
		size_t at = p & (old - 1), step = old - at;
		step = step < r->sent - p ? step : (size_t)(r->sent - p);
		tcp_ring_write(ring, bytes, p, r->kept + at, step);
		p += step;
	}
	free(r->kept);
	r->kept = ring;
	r->kept_bytes = bytes;
}

/* For so many bytes more, which the socket has already. Returns how many of them need not be kept:
 * the first ones. */
static size_t tcp_make_room(struct tcp_conn *c, size_t bytes)
{
	struct tcp_resend *r = &c->resend;
	uint64_t end = r->sent + bytes;
	int undelivered = 0;
	size_t skip;

	if (bytes < ASK_BYTES && end - r->delivered <= r->kept_bytes)
		return 0;
	if (ioctl(c->watch.fd, SIOCOUTQ, &undelivered) == 0) {
		/* Of TLS a record of which a byte is missing is as good as none; and a greeting may
		 * be among what is on its way. */
		uint64_t lacking = (uint64_t)undelivered + (c->watch.tls ? TLS_RECORD_BYTES : 0);
		if (r->delivered + lacking < end)
			r->delivered = end - lacking;
	}
	if (end - r->delivered > r->kept_bytes || r->kept_bytes == 0)
		ring_grow(r, end - r->delivered);
	skip = bytes > r->kept_bytes ? bytes - r->kept_bytes : 0;
	if (r->delivered > r->sent + skip)
		skip = (size_t)(r->delivered - r->sent);
	return skip;
}

void tcp_resend_keep(struct tcp_conn *c, const struct iovec *iov, size_t bytes)
{
	struct tcp_resend *r = &c->resend;
	size_t skip = tcp_make_room(c, bytes);

	if (skip > 0)
		r->kept_from = r->sent + skip;
	for (; bytes > 0; iov++) {
		const uint8_t *from = iov->iov_base;
		size_t step = iov->iov_len < bytes ? iov->iov_len : bytes;
		size_t skipped = skip < step ? skip : step;
		if (step > skipped)
			tcp_ring_write(r->kept, r->kept_bytes, r->sent + skipped, from + skipped,
				       step - skipped);
		skip -= skipped;
		r->sent += step;
		bytes -= step;
	}
	r->again = r->sent;
	if (r->sent - r->kept_from > r->kept_bytes)
		r->kept_from = r->sent - r->kept_bytes;
}

bool tcp_resend_from(struct tcp_resend *r, uint64_t position)
{
	if (position < r->kept_from || position > r->sent)
		return false;
	r->again = r->delivered = position;
	return true;
}

/* Sends what is to be sent again. Returns whether anything moved. */
static bool tcp_resend_some(struct tcp_conn *c)
{
	struct tcp_resend *r = &c->resend;
	bool moved = false;

	while (tcp_must_resend(c) && c->may_write) {
		size_t at = r->again & (r->kept_bytes - 1), step = r->kept_bytes - at;
		struct iovec rest;
		ssize_t n;
		step = step < r->sent - r->again ? step : (size_t)(r->sent - r->again);
		rest = (struct iovec){r->kept + at, step};
		n = tcp_stream_send(&c->watch, &rest, 1);
		if (n > 0) {
			r->again += (uint64_t)n;
			moved = true;
		} else if (n < 0) {
			c->may_write = false;
			if (errno != EAGAIN && !c->write_error)
				c->write_error = errno;
		}
	}
	return moved;
}

void tcp_resend_free(struct tcp_resend *r)
{
	free(r->kept);
	tcp_unread_free(&r->unread);
}

#define BATCH_PLACES 128          /* that their bytes lie in */
#define BATCH_BYTES  (512u << 10) /* so that receiving gets its turn */
#define BATCHES      4            /* in one visit */
#define COPY_BYTES   512          /* pieces up to this long are copied next to their header */
#define COPIES_BYTES (TCP_BATCH * (TCP_SUMMED_BYTES + COPY_BYTES))

void tcp_send(struct tutti_conn *conn, struct tutti_io *io)
{
	struct tcp_conn *c = (struct tcp_conn *)conn;
	tcp_conn_post(c, &c->sends, io);
}

/* The parts that one system call sends. Headers and small payloads are copied side by side, for a
 * place costs the kernel more than a copy of this size. */
struct tcp_batch {
	struct iovec iov[BATCH_PLACES];
	int iov_count;
	size_t bytes, copied;
	uint8_t copies[COPIES_BYTES];
};

static void batch_add(struct tcp_batch *b, void *data, size_t bytes)
{
	struct iovec *last = b->iov_count > 0 ? &b->iov[b->iov_count - 1] : NULL;

	b->bytes += bytes;
	if (last && (uint8_t *)last->iov_base + last->iov_len == data) {
		last->iov_len += bytes;
		return;
	}
	b->iov[b->iov_count].iov_base = data;
	b->iov[b->iov_count].iov_len = bytes;
	b->iov_count++;
}

static void batch_copy(struct tcp_batch *b, const void *data, size_t bytes)
{
	uint8_t *copy = b->copies + b->copied;

	memcpy(copy, data, bytes);
	b->copied += bytes;
	batch_add(b, copy, bytes);
}

/* Each message needs room for its header and something more. */
static bool tcp_is_full(const struct tcp_batch *b)
{
	return b->bytes >= BATCH_BYTES || b->iov_count > BATCH_PLACES - 2 ||
	       b->copied > COPIES_BYTES - TCP_SUMMED_BYTES - COPY_BYTES;
}

/* Of a message that has not begun, so that moved is at its beginning. */
static uint32_t sum_payload(const struct tutti_io *io)
{
	struct tutti_io at = *io;
	uint32_t sum = 0;
	size_t bytes;

	for (const void *data; (data = tutti_io_here(&at, &bytes)), bytes > 0;) {
		sum = crc32c(sum, data, bytes);
		tutti_io_moved(&at, bytes);
	}
	return sum;
}

/* A message is gathered again when the socket had no room for it; its sum is kept. */
static uint32_t tcp_sum_of(struct tcp_conn *c, const struct tutti_io *io, uint32_t number)
{
	if (number == c->summed) {
		c->sums[number % TCP_BATCH] = sum_payload(io);
		c->summed++;
	}
	return c->sums[number % TCP_BATCH];
}

static void add_header(struct tcp_conn *c, struct tcp_batch *b, const struct tutti_io *io,
		       uint32_t number, uint32_t begun)
{
	struct {
		uint64_t bytes;
		uint32_t tag, number, payload_sum, sum;
	} header = {htole64(io->bytes), htole32(io->tag), htole32(number), 0, 0};

	_Static_assert(sizeof header == TCP_SUMMED_BYTES, "header");
	if (tcp_has_checksums(tcp_endpoint_of(c))) {
		header.payload_sum = htole32(tcp_sum_of(c, io, number));
		header.sum = htole32(crc32c(0, &header, TCP_SUMMED_BYTES - 4));
	}
	batch_copy(b, (const uint8_t *)&header + begun, tcp_header_bytes(c) - begun);
}

/* Bytes are left of whole. Returns false when a part of it must wait for the next batch. Whether it
 * is copied does not depend on how much is left, so that a batch that is gathered again ends no
 * sooner than before. */
static bool tcp_add_piece(struct tcp_batch *b, void *data, size_t bytes, size_t whole)
{
	size_t part = bytes < BATCH_BYTES ? bytes : BATCH_BYTES;

	if (whole > COPY_BYTES && part > 0)
		batch_add(b, data, part);
	else if (part > 0)
		batch_copy(b, data, part);
	return part == bytes;
}

static bool tcp_send_add_payload(struct tcp_batch *b, const struct tutti_io *io)
{
	size_t begun = io->in_piece;

	if (!io->pieces)
		return tcp_add_piece(b, (uint8_t *)io->buf + io->moved, io->bytes - io->moved,
				     io->bytes);
	for (uint32_t i = io->piece; i < io->piece_count; i++, begun = 0) {
		const struct tutti_piece *piece = &io->pieces[i];
		if (tcp_is_full(b) || !tcp_add_piece(b, (uint8_t *)piece->buf + begun,
						     piece->bytes - begun, piece->bytes))
			return false;
	}
	return true;
}

/* Only the first of the queue may have begun. */
static void tcp_gather(struct tcp_conn *c, struct tcp_batch *b)
{
	uint32_t n = 0, begun = c->header_sent;

	b->iov_count = 0;
	b->bytes = b->copied = 0;
	for (struct tutti_io *io = c->sends.head; io; io = io->next, n++, begun = 0) {
		if (n == TCP_BATCH || tcp_is_full(b))
			return;
		if (begun < tcp_header_bytes(c))
			add_header(c, b, io, c->sent + n, begun);
		if (!tcp_send_add_payload(b, io))
			return;
	}
}

static void tcp_account(struct tcp_conn *c, size_t bytes)
{
	while (c->sends.head) {
		struct tutti_io *io = c->sends.head;
		size_t header = tcp_header_bytes(c) - c->header_sent, left = io->bytes - io->moved;
		if (bytes < header) {
			c->header_sent += (uint32_t)bytes;
			return;
		}
		bytes -= header;
		if (bytes < left) {
			c->header_sent = tcp_header_bytes(c);
			tutti_io_moved(io, bytes);
			return;
		}
		bytes -= left;
		io->moved = io->bytes;
		c->header_sent = 0;
		c->sent++;
		tcp_conn_finish(c, &c->sends);
		if (bytes == 0)
			return;
	}
}

bool tcp_send_some(struct tcp_conn *c)
{
	struct tcp_batch b;
	bool moved = false;

	if (tcp_must_resend(c)) {
		moved = tcp_resend_some(c);
		if (tcp_must_resend(c))
			return moved;
	}
	for (int i = 0; i < BATCHES && c->sends.head && c->may_write; i++) {
		ssize_t n;
		tcp_gather(c, &b);
		n = tcp_stream_send(&c->watch, b.iov, b.iov_count);
		if (n > 0) {
			if (c->reconnects)
				tcp_resend_keep(c, b.iov, (size_t)n);
			tcp_account(c, (size_t)n);
			moved = true;
		}
		if (n < (ssize_t)b.bytes)
			c->may_write = false;
		/* Messages that the peer sent before it went away are still received first. Only
		 * the first error says what happened. */
		if (n < 0 && errno != EAGAIN && !c->write_error)
			c->write_error = errno;
	}
	return moved;
}
