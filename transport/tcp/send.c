/* Posted sends into the socket: headers and payloads of many messages in one system call. */
#include "transport/tcp/tcp.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define BATCH_MESSAGES 32
#define BATCH_BYTES    (512u << 10) /* so that receiving gets its turn */
#define BATCHES        4            /* in one visit */
#define COPY_BYTES     512          /* payloads up to this long are copied next to their header */

/* What goes into one system call. Headers and small payloads are copied side by side, for a piece
 * costs the kernel more than a copy of this size. */
struct batch {
	struct iovec iov[2 * BATCH_MESSAGES];
	int iov_count;
	size_t bytes, copied;
	uint8_t copies[BATCH_MESSAGES * (TCP_HEADER_BYTES + COPY_BYTES)];
};

static void batch_add(struct batch *b, void *data, size_t bytes)
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

static void batch_copy(struct batch *b, const void *data, size_t bytes)
{
	uint8_t *copy = b->copies + b->copied;

	memcpy(copy, data, bytes);
	b->copied += bytes;
	batch_add(b, copy, bytes);
}

static void add_header(struct batch *b, const struct tutti_io *io, uint32_t number)
{
	const struct {
		uint64_t bytes;
		uint32_t tag, number;
	} header = {htole64(io->bytes), htole32(io->tag), htole32(number)};

	_Static_assert(sizeof header == TCP_HEADER_BYTES, "header");
	batch_copy(b, (const uint8_t *)&header + io->moved, sizeof header - io->moved);
}

/* A send's moved counts its header, too. Only the first of the queue may have begun. */
static void gather(const struct tcp_conn *c, struct batch *b)
{
	uint32_t n = 0;

	b->iov_count = 0;
	b->bytes = b->copied = 0;
	for (struct tutti_io *io = c->sends.head; io; io = io->next, n++) {
		size_t begun = 0, left;
		if (n == BATCH_MESSAGES || b->bytes >= BATCH_BYTES)
			return;
		if (io->moved < TCP_HEADER_BYTES)
			add_header(b, io, c->sent + n);
		else
			begun = io->moved - TCP_HEADER_BYTES;
		left = io->bytes - begun;
		if (left > BATCH_BYTES) {
			batch_add(b, (uint8_t *)io->buf + begun, BATCH_BYTES);
			return;
		}
		if (left > COPY_BYTES)
			batch_add(b, (uint8_t *)io->buf + begun, left);
		else if (left > 0)
			batch_copy(b, (uint8_t *)io->buf + begun, left);
	}
}

static ssize_t batch_send(int fd, struct batch *b)
{
	struct msghdr message = {.msg_iov = b->iov, .msg_iovlen = (size_t)b->iov_count};
	ssize_t n;

	do
		n = b->iov_count == 1
			    ? send(fd, b->iov[0].iov_base, b->bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
			    : sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n;
}

static void account(struct tcp_conn *c, size_t bytes)
{
	while (c->sends.head) {
		struct tutti_io *io = c->sends.head;
		size_t left = TCP_HEADER_BYTES + io->bytes - io->moved;
		if (bytes < left) {
			io->moved += bytes;
			return;
		}
		bytes -= left;
		io->moved = io->bytes;
		c->sent++;
		tcp_conn_finish(c, &c->sends);
		if (bytes == 0)
			return;
	}
}

bool tcp_send_some(struct tcp_conn *c)
{
	struct batch b;
	bool moved = false;

	for (int i = 0; i < BATCHES && c->sends.head && c->may_write; i++) {
		ssize_t n;
		gather(c, &b);
		n = batch_send(c->watch.fd, &b);
		if (n > 0) {
			account(c, (size_t)n);
			moved = true;
		}
		if (n < (ssize_t)b.bytes)
			c->may_write = false;
		/* What the peer sent before it went away is still received first. */
		if (n < 0 && errno != EAGAIN)
			c->write_error = errno;
	}
	return moved;
}
