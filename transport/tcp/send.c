/* Posted sends into the socket: headers and payloads of many messages in one system call. */
#include "transport/tcp/conn.h"

#include "core/crc32c.h"

#include <endian.h>
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

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

static void tcp_send_batch_add(struct tcp_batch *b, void *data, size_t bytes)
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

static void tcp_send_batch_copy(struct tcp_batch *b, const void *data, size_t bytes)
{
	uint8_t *copy = b->copies + b->copied;

	memcpy(copy, data, bytes);
	b->copied += bytes;
	tcp_send_batch_add(b, copy, bytes);
}

/* Each message needs room for its header and something more. */
static bool tcp_is_full(const struct tcp_batch *b)
{
	return b->bytes >= BATCH_BYTES || b->iov_count > BATCH_PLACES - 2 ||
	       b->copied > COPIES_BYTES - TCP_SUMMED_BYTES - COPY_BYTES;
}

/* Of a message that has not begun, so that moved is at its beginning. */
static uint32_t tcp_send_sum_payload(const struct tutti_io *io)
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
		c->sums[number % TCP_BATCH] = tcp_send_sum_payload(io);
		c->summed++;
	}
	return c->sums[number % TCP_BATCH];
}

static void tcp_send_add_header(struct tcp_conn *c, struct tcp_batch *b, const struct tutti_io *io,
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
	tcp_send_batch_copy(b, (const uint8_t *)&header + begun, tcp_header_bytes(c) - begun);
}

/* Bytes are left of whole. Returns false when a part of it must wait for the next batch. Whether it
 * is copied does not depend on how much is left, so that a batch that is gathered again ends no
 * sooner than before. */
static bool tcp_add_piece(struct tcp_batch *b, void *data, size_t bytes, size_t whole)
{
	size_t part = bytes < BATCH_BYTES ? bytes : BATCH_BYTES;

	if (whole > COPY_BYTES && part > 0)
		tcp_send_batch_add(b, data, part);
	else if (part > 0)
		tcp_send_batch_copy(b, data, part);
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
			tcp_send_add_header(c, b, io, c->sent + n, begun);
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
