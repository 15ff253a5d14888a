/* Posted sends into the socket: headers and payloads of many messages in one system call. */
#include "transport/tcp/tcp.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define BATCH_MESSAGES 32
#define BATCH_BYTES    (512u << 10) /* so that receiving gets its turn                       */
#define BATCHES        4            /* in one visit                                          */

/* What goes into one sendmsg. */
struct batch {
	struct iovec iov[2 * BATCH_MESSAGES];
	int iov_count;
	size_t bytes;
	uint8_t headers[BATCH_MESSAGES][TCP_HEADER_BYTES];
};

static void header_write(uint8_t header[TCP_HEADER_BYTES], const struct tutti_io *io,
			 uint32_t number)
{
	const uint64_t bytes = htole64(io->bytes);
	const uint32_t words[2] = {htole32(io->tag), htole32(number)};

	memcpy(header, &bytes, 8);
	memcpy(header + 8, words, 8);
}

static void batch_add(struct batch *b, void *data, size_t bytes)
{
	b->iov[b->iov_count].iov_base = data;
	b->iov[b->iov_count].iov_len = bytes;
	b->iov_count++;
	b->bytes += bytes;
}

/* A send's moved counts its header, too. Only the first of the queue may have begun. */
static void gather(const struct tcp_conn *c, struct batch *b)
{
	uint32_t n = 0;

	b->iov_count = 0;
	b->bytes = 0;
	for (struct tutti_io *io = c->sends.head; io; io = io->next, n++) {
		size_t skip = io->moved, left;
		if (n == BATCH_MESSAGES || b->bytes >= BATCH_BYTES)
			return;
		if (skip < TCP_HEADER_BYTES) {
			header_write(b->headers[n], io, c->sent + n);
			batch_add(b, b->headers[n] + skip, TCP_HEADER_BYTES - skip);
			skip = TCP_HEADER_BYTES;
		}
		skip -= TCP_HEADER_BYTES;
		left = io->bytes - skip;
		if (left > BATCH_BYTES) {
			batch_add(b, (uint8_t *)io->buf + skip, BATCH_BYTES);
			return;
		}
		if (left > 0)
			batch_add(b, (uint8_t *)io->buf + skip, left);
	}
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
		struct msghdr message = {.msg_iov = b.iov};
		ssize_t n;
		gather(c, &b);
		message.msg_iovlen = (size_t)b.iov_count;
		do
			n = sendmsg(c->watch.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
		while (n < 0 && errno == EINTR);
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
