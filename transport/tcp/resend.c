/* Why no byte of a connection is lost or doubled when its socket breaks.
 *
 * An io is done when its bytes have gone into the kernel, and some of them may be on their way
 * then. So the last bytes that went into the socket are kept in a ring, as many as the kernel
 * says (SIOCOUTQ) the peer's kernel has not got yet. Bytes that the peer's kernel has are not
 * lost: they can be read from a socket that was reset, and are, before the socket is closed. Then
 * each end says how many bytes it has received, and the other goes on from there: first the bytes
 * in the ring, then new ones. No acknowledgement is ever sent, and a receiver that reads nothing
 * for long holds up no other rank. */
#include "transport/tcp/conn.h"

#include <endian.h>
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

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

bool tcp_resend_some(struct tcp_conn *c)
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
