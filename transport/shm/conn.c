/* Posted ios through the rings of one conn. A large message moves on in pieces, so that one side
 * copies in while the other copies out. */
#include "transport/shm/shm.h"

#include <stdarg.h>
#include <stdio.h>

/* The header of a payload. It begins at a multiple of 64 and so never wraps: a small message is one
 * cache line, and two messages never share one. */
struct shm_frame {
	uint64_t bytes;
	uint32_t tag;
	uint32_t number; /* of the message: it shows a peer that has lost count */
};

#define FRAME_ALIGN 64

static size_t shm_padding(uint64_t index)
{
	return (size_t)(-index & (FRAME_ALIGN - 1));
}

static size_t shm_conn_min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static bool shm_conn_has_rings(const struct shm_conn *conn)
{
	return conn->state == SHM_OPEN || conn->state == SHM_ENDED;
}

static void shm_activate(struct shm_conn *conn)
{
	if (conn->is_active)
		return;
	conn->is_active = true;
	LIST_INSERT_HEAD(&shm_endpoint_of(conn)->active, conn, active);
}

void shm_conn_deactivate(struct shm_conn *conn)
{
	if (!conn->is_active)
		return;
	conn->is_active = false;
	LIST_REMOVE(conn, active);
}

static void shm_complete(struct shm_conn *conn, struct tutti_done *queue, tutti_status status)
{
	tutti_done_push(&shm_endpoint_of(conn)->done, tutti_done_pop(queue), status);
}

static void shm_mail_done(struct shm_conn *conn, tutti_status status)
{
	if (conn->mail_io)
		tutti_done_push(&shm_endpoint_of(conn)->done, conn->mail_io, status);
	conn->mail_io = NULL;
}

void shm_conn_settle(struct shm_conn *conn)
{
	if (!conn->is_settled)
		shm_endpoint_of(conn)->unsettled--;
	conn->is_settled = true;
}

void shm_conn_fail(struct shm_conn *conn, tutti_status status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(conn->base.error, sizeof conn->base.error, format, args);
	va_end(args);
	conn->base.status = status;
	conn->state = SHM_FAILED;
	shm_endpoint_of(conn)->has_failed = true;
	while (conn->sends.head)
		shm_complete(conn, &conn->sends, status);
	while (conn->recvs.head)
		shm_complete(conn, &conn->recvs, status);
	shm_mail_done(conn, status);
	shm_conn_deactivate(conn);
	shm_conn_settle(conn);
	shm_watch_close(shm_endpoint_of(conn), &conn->watch);
	/* The rings stay until close: the mailbox may have messages yet. */
}

static void shm_publish(struct shm_conn *conn)
{
	if (byte_ring_publish(&conn->out))
		shm_ring_doorbell(conn->watch.fd);
}

static bool shm_can_send(struct shm_conn *conn)
{
	size_t want = 1;

	if (!conn->in_payload[0])
		want = shm_padding(conn->out.written) + sizeof(struct shm_frame);
	return byte_ring_room(&conn->out, want) >= want;
}

static void shm_send_frame(struct shm_conn *conn, const struct tutti_io *io)
{
	const struct shm_frame frame = {io->bytes, io->tag, conn->sent++};

	ring_write(&conn->out, NULL, shm_padding(conn->out.written));
	ring_write(&conn->out, &frame, sizeof frame);
	conn->in_payload[0] = true;
}

/* At most one ring full, so that other conns get their turn. */
static bool shm_conn_move_sends(struct shm_conn *conn)
{
	struct byte_ring_writer *out = &conn->out;
	uint64_t begin = out->written;
	struct tutti_io *io;

	while ((io = conn->sends.head) && out->written - begin < out->capacity) {
		if (!conn->in_payload[0]) {
			if (!shm_can_send(conn))
				break;
			shm_send_frame(conn, io);
		}
		size_t here;
		const void *from = tutti_io_here(io, &here);
		size_t want = shm_conn_min_size(here, SHM_PIECE_BYTES);
		size_t n = shm_conn_min_size(byte_ring_room(out, want), want);
		ring_write(out, from, n);
		tutti_io_moved(io, n);
		if (io->moved == io->bytes) {
			conn->in_payload[0] = false;
			shm_complete(conn, &conn->sends, TUTTI_OK);
		} else if (n == 0) {
			break;
		}
		if (out->written - out->published >= SHM_PIECE_BYTES)
			shm_publish(conn);
	}
	shm_publish(conn);
	return out->written != begin;
}

static void shm_release(struct shm_conn *conn)
{
	if (byte_ring_release(&conn->in))
		shm_ring_doorbell(conn->watch.fd);
}

static bool shm_conn_can_recv(struct shm_conn *conn)
{
	size_t want = 1;

	if (!conn->in_payload[1])
		want = shm_padding(conn->in.read) + sizeof(struct shm_frame);
	return byte_ring_available(&conn->in, want) >= want;
}

static void shm_damaged(struct shm_conn *conn)
{
	shm_conn_fail(
		conn, TUTTI_ERR_PEER,
		"the memory of rank %d's connection to rank %d (shared memory, channel %d) is "
		"damaged: another process has written into it",
		conn->base.peer, shm_endpoint_of(conn)->rank, conn->base.channel);
}

/* False: the conn has failed. */
static bool shm_conn_recv_frame(struct shm_conn *conn, const struct tutti_io *io)
{
	struct shm_frame frame; /* a copy: the peer can still write to the ring */

	byte_ring_read(&conn->in, NULL, shm_padding(conn->in.read));
	byte_ring_read(&conn->in, &frame, sizeof frame);
	if (frame.number != conn->received++) {
		shm_damaged(conn);
		return false;
	}
	if (frame.bytes != io->bytes || frame.tag != io->tag) {
		shm_conn_fail(
			conn, TUTTI_ERR_MISMATCH,
			"rank %d sent %llu bytes (tag %#x) where rank %d expects %zu bytes (tag "
			"%#x; shared memory, channel %d, message %u): the ranks did not make the "
			"same calls",
			conn->base.peer, (unsigned long long)frame.bytes, frame.tag,
			shm_endpoint_of(conn)->rank, io->bytes, io->tag, conn->base.channel,
			frame.number);
		return false;
	}
	conn->in_payload[1] = true;
	return true;
}

static bool shm_conn_move_recvs(struct shm_conn *conn)
{
	struct byte_ring_reader *in = &conn->in;
	uint64_t begin = in->read;
	struct tutti_io *io;

	while ((io = conn->recvs.head) && in->read - begin < in->capacity) {
		if (!conn->in_payload[1]) {
			if (!shm_conn_can_recv(conn))
				break;
			if (!shm_conn_recv_frame(conn, io))
				return true;
		}
		size_t here;
		void *to = tutti_io_here(io, &here);
		size_t want = shm_conn_min_size(here, SHM_PIECE_BYTES);
		size_t n = shm_conn_min_size(byte_ring_available(in, want), want);
		byte_ring_read(in, to, n);
		tutti_io_moved(io, n);
		if (io->moved == io->bytes) {
			conn->in_payload[1] = false;
			shm_complete(conn, &conn->recvs, TUTTI_OK);
		} else if (n == 0) {
			break;
		}
		if (in->read - in->released >= SHM_PIECE_BYTES)
			shm_release(conn);
	}
	shm_release(conn);
	return in->read != begin;
}

static bool shm_conn_has_nothing_left(struct shm_conn *conn)
{
	size_t seen = byte_ring_available(&conn->in, 0);

	return byte_ring_available(&conn->in, seen + 1) == 0;
}

static bool shm_conn_has_mail(const struct shm_conn *conn)
{
	return conn->mail_io && mailbox_has(&conn->mail_in);
}

static bool shm_conn_move_mail(struct shm_conn *conn)
{
	if (!shm_conn_has_mail(conn))
		return false;
	shm_mail_done(conn, TUTTI_OK);
	return true;
}

/* The peer is gone. The conn fails, and all that is posted with it, when what the peer left has
 * been received. While it waits for receives of the caller, sends end well: one that completes says
 * no more than that its buffer is free. */
static bool shm_move_ended(struct shm_conn *conn)
{
	bool is_moving = shm_conn_move_recvs(conn);

	if (conn->state == SHM_FAILED || (is_moving && conn->recvs.head))
		return true;
	if (shm_conn_move_mail(conn))
		return true;
	if (conn->recvs.head || shm_conn_has_nothing_left(conn)) {
		shm_conn_fail(
			conn, TUTTI_ERR_PEER,
			"rank %d (shared memory, channel %d) closed its connection to rank %d",
			conn->base.peer, conn->base.channel, shm_endpoint_of(conn)->rank);
		return true;
	}
	while (conn->sends.head) {
		shm_complete(conn, &conn->sends, TUTTI_OK);
		is_moving = true;
	}
	return is_moving;
}

bool shm_conn_move(struct shm_conn *conn)
{
	bool is_moving = false;

	if (conn->state == SHM_ENDED) {
		is_moving = shm_move_ended(conn);
	} else {
		is_moving |= shm_conn_move_mail(conn);
		if (conn->sends.head)
			is_moving |= shm_conn_move_sends(conn);
		if (conn->recvs.head)
			is_moving |= shm_conn_move_recvs(conn);
	}
	if (conn->state == SHM_FAILED)
		return true;
	if (conn->out.is_broken || conn->in.is_broken || conn->mail_out.is_broken ||
	    conn->mail_in.is_broken) {
		shm_damaged(conn);
		return true;
	}
	if (!conn->sends.head && !conn->recvs.head && !conn->mail_io)
		shm_conn_deactivate(conn);
	return is_moving;
}

void shm_conn_opened(struct shm_conn *conn)
{
	conn->state = SHM_OPEN;
	if (conn->sends.head || conn->recvs.head || conn->mail_io)
		shm_activate(conn);
}

void shm_conn_ended(struct shm_conn *conn)
{
	shm_conn_settle(conn);
	conn->state = SHM_ENDED;
	shm_conn_move(conn);
}

void shm_conn_post(struct shm_conn *conn, struct tutti_io *io, bool is_send)
{
	struct tutti_done *queue = is_send ? &conn->sends : &conn->recvs;
	bool is_first = !queue->head;

	io->conn = &conn->base;
	tutti_io_rewind(io);
	tutti_done_push(queue, io, TUTTI_IN_PROGRESS);
	if (conn->state == SHM_FAILED) {
		shm_complete(conn, queue, conn->base.status);
		return;
	}
	if (!shm_conn_has_rings(conn))
		return;
	shm_activate(conn);
	/* The peer may wait for it: into the ring at once. */
	if (is_send && is_first)
		shm_conn_move(conn);
}

void shm_conn_sleeps(struct shm_conn *conn, bool sleeps)
{
	if (!sleeps || conn->recvs.head || conn->mail_io)
		byte_ring_reader_sleeps(&conn->in, sleeps);
	if (!sleeps || conn->sends.head)
		byte_ring_writer_sleeps(&conn->out, sleeps);
}

bool shm_conn_has_work(struct shm_conn *conn)
{
	return conn->state == SHM_ENDED || conn->in.is_broken || conn->out.is_broken ||
	       conn->mail_in.is_broken || conn->mail_out.is_broken || shm_conn_has_mail(conn) ||
	       (conn->recvs.head && shm_conn_can_recv(conn)) ||
	       (conn->sends.head && shm_can_send(conn));
}

void shm_conn_await_mail(struct shm_conn *conn, struct tutti_io *io)
{
	io->conn = &conn->base;
	conn->mail_io = io;
	if (conn->state == SHM_FAILED)
		shm_mail_done(conn, conn->base.status);
	else if (shm_conn_has_rings(conn))
		shm_activate(conn);
}
