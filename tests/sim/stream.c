/* How a message moves: from the sender's queue to the head receive, or early into the network's own
 * memory; and what becomes of both queues when an end fails or leaves. */
#include "tests/sim/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* What the network buffers, over all links. */
#define COPIED_BYTES_MAX ((size_t)4 << 20)

static struct sim_message *message_new(struct sim *sim)
{
	struct sim_message *m = sim->free_messages;

	if (m)
		sim->free_messages = m->next;
	else
		m = malloc(sizeof(*m));
	return m;
}

static void message_free(struct sim *sim, struct sim_message *m)
{
	if (m->copy) {
		sim->copied_bytes -= m->bytes;
		free(m->copy);
	}
	m->next = sim->free_messages;
	sim->free_messages = m;
}

bool sim_stream_push(struct sim *sim, struct sim_stream *stream, struct tutti_io *io)
{
	struct sim_message *m = message_new(sim);

	if (!m)
		return false;
	*m = (struct sim_message){.io = io, .bytes = io->bytes, .tag = io->tag};
	m->wants_copy = sim->config.order == SIM_RANDOM && sim_random(sim) % 2;
	m->arrives_ns = sim_cost_depart_ns(sim, stream, io->bytes);
	*stream->tail = m;
	stream->tail = &m->next;
	if (!stream->unsent)
		stream->unsent = m;
	if (!stream->flying && sim->config.has_ports && sim->config.order == SIM_TIMED)
		stream->flying = m;
	return true;
}

static void pop_message(struct sim *sim, struct sim_stream *stream)
{
	struct sim_message *m = stream->head;

	if (!(stream->head = m->next))
		stream->tail = &stream->head;
	if (stream->unsent == m)
		stream->unsent = m->next;
	message_free(sim, m);
}

void sim_stream_drop_sends(struct sim *sim, struct sim_stream *stream, bool is_completing,
			   tutti_status status)
{
	struct sim_message **at = &stream->head;

	while (*at && (*at)->io == NULL)
		at = &(*at)->next;
	stream->tail = at;
	stream->unsent = stream->flying = NULL; /* a copied one never flies */
	for (struct sim_message *m = *at, *next; m; m = next) {
		next = m->next;
		if (is_completing)
			sim_conn_complete(stream->sender, m->io, status);
		message_free(sim, m);
	}
	*at = NULL;
	sim_stream_refresh(sim, stream);
}

/* All that is on the wire is lost. Sends that wait still belong to their conn. */
void sim_stream_drop_messages(struct sim *sim, struct sim_stream *stream)
{
	while (stream->head && !stream->head->io)
		pop_message(sim, stream);
}

bool sim_stream_can_deliver(const struct sim *sim, const struct sim_stream *stream)
{
	return stream->head && stream->recvs.head &&
	       (sim->config.order == SIM_TIMED || stream->head->arrives_ns <= sim->now_ns);
}

bool sim_stream_can_copy(const struct sim *sim, const struct sim_stream *stream)
{
	const struct sim_message *m = stream->unsent;
	return m && m->wants_copy && sim->copied_bytes + m->bytes <= COPIED_BYTES_MAX;
}

/* When something happens on it next; UINT64_MAX: nothing. */
static uint64_t next_due_ns(const struct sim_stream *stream)
{
	uint64_t due_ns = UINT64_MAX;

	if (stream->head && stream->recvs.head && stream->head != stream->flying)
		due_ns = stream->head->arrives_ns;
	if (stream->flying && stream->flying->arrives_ns < due_ns)
		due_ns = stream->flying->arrives_ns;
	return due_ns;
}

static void refresh_with_ports(struct sim *sim, struct sim_stream *stream)
{
	struct agenda_entry *entry = &stream->entry;
	uint64_t due_ns = next_due_ns(stream);

	if (due_ns < sim->now_ns)
		due_ns = sim->now_ns;
	if (entry->due_at && entry->due_ns == due_ns)
		return;
	agenda_set_not_due(&sim->agenda, entry);
	if (due_ns != UINT64_MAX)
		agenda_set_due(&sim->agenda, entry, due_ns);
}

bool sim_stream_can_land(const struct sim *sim, const struct sim_stream *stream)
{
	return stream->flying && stream->flying->arrives_ns <= sim->now_ns;
}

void sim_stream_land(struct sim *sim, struct sim_stream *stream)
{
	stream->flying->arrives_ns = sim_cost_land_ns(sim, stream, stream->flying);
	stream->flying = stream->flying->next;
	refresh_with_ports(sim, stream);
}

void sim_stream_refresh(struct sim *sim, struct sim_stream *stream)
{
	struct agenda *agenda = &sim->agenda;

	if (sim->config.has_ports && sim->config.order == SIM_TIMED) {
		refresh_with_ports(sim, stream);
		return;
	}
	bool is_matched = stream->head && stream->recvs.head;
	uint64_t arrives_ns = is_matched ? stream->head->arrives_ns : 0;

	if (!is_matched || (sim->config.order == SIM_RANDOM && arrives_ns <= sim->now_ns))
		agenda_set_not_due(agenda, &stream->entry);
	else if (!stream->entry.due_at)
		agenda_set_due(agenda, &stream->entry,
			       arrives_ns > sim->now_ns ? arrives_ns : sim->now_ns);
	if (sim->config.order == SIM_RANDOM)
		agenda_set_ready(agenda, &stream->entry,
				 sim_stream_can_deliver(sim, stream) ||
					 sim_stream_can_copy(sim, stream));
}

/* The other end is gone for good and nothing of it is left to receive. */
static void check_drained(struct sim_conn *conn)
{
	if (conn->base.status == TUTTI_OK && conn->in->sender_gone && !conn->in->head)
		sim_conn_fail(conn, TUTTI_ERR_PEER,
			      "rank %d (sim) closed its connection to rank %d", conn->base.peer,
			      conn->in->link->to);
}

void sim_stream_deliver(struct sim *sim, struct sim_stream *stream)
{
	struct sim_message *m = stream->head;
	struct tutti_io *recv = stream->recvs.head;
	struct sim_conn *receiver = stream->receiver;

	sim->messages++;
	agenda_set_not_due(&sim->agenda, &stream->entry);
	if (sim->config.order == SIM_RANDOM)
		sim->now_ns += sim_cost_ns(stream->link, m->bytes);
	if (m->bytes != recv->bytes || m->tag != recv->tag) {
		size_t bytes = m->bytes;
		uint32_t tag = m->tag;
		if (m->io)
			sim_conn_complete(stream->sender, m->io, TUTTI_OK);
		pop_message(sim, stream);
		sim_conn_fail(
			receiver, TUTTI_ERR_MISMATCH,
			"rank %d sent %zu bytes (tag %#x) where rank %d expects %zu bytes (tag "
			"%#x; sim): the ranks did not make the same calls",
			stream->link->from, bytes, tag, stream->link->to, recv->bytes, recv->tag);
		return;
	}
	if (!sim->config.dry) {
		struct tutti_io copied = {.buf = m->copy, .bytes = m->bytes};
		tutti_io_copy(recv, m->io ? m->io : &copied);
	}
	if (m->io)
		sim_conn_complete(stream->sender, m->io, TUTTI_OK);
	tutti_done_pop(&stream->recvs);
	sim_conn_complete(receiver, recv, TUTTI_OK);
	pop_message(sim, stream);
	sim_stream_refresh(sim, stream);
	check_drained(receiver);
}

/* The send completes now, with its bytes in the network's memory. */
void sim_stream_copy(struct sim *sim, struct sim_stream *stream)
{
	struct sim_message *m = stream->unsent;

	m->wants_copy = false;
	if (!sim->config.dry && m->bytes) {
		if (!(m->copy = malloc(m->bytes))) {
			sim_stream_refresh(sim, stream); /* then it waits for its receive */
			return;
		}
		struct tutti_io copy = {.buf = m->copy, .bytes = m->bytes};
		tutti_io_copy(&copy, m->io);
		sim->copied_bytes += m->bytes;
	}
	sim_conn_complete(stream->sender, m->io, TUTTI_OK);
	m->io = NULL;
	stream->unsent = m->next;
	sim_stream_refresh(sim, stream);
}

void sim_conn_complete(struct sim_conn *conn, struct tutti_io *io, tutti_status status)
{
	struct sim_endpoint *endpoint = (struct sim_endpoint *)conn->base.endpoint;
	struct sim *sim = endpoint->sim;

	tutti_done_push(&endpoint->done, io, status);
	if (endpoint->has_news)
		return;
	endpoint->has_news = true;
	endpoint->next_news = NULL;
	*sim->news_tail = endpoint;
	sim->news_tail = &endpoint->next_news;
}

void sim_conn_fail(struct sim_conn *conn, tutti_status status, const char *format, ...)
{
	struct sim *sim = sim_of(conn);
	struct tutti_io *recv;
	va_list args;

	va_start(args, format);
	vsnprintf(conn->base.error, sizeof conn->base.error, format, args);
	va_end(args);
	conn->base.status = status;
	sim_stream_drop_sends(sim, conn->out, true, status);
	while ((recv = tutti_done_pop(&conn->in->recvs)))
		sim_conn_complete(conn, recv, status);
	sim_conn_leave(conn);
}

/* What has completed stays in the streams for the other end. What it still sends goes nowhere:
 * those sends complete, because a send says no more than that its buffer is free. */
void sim_conn_leave(struct sim_conn *conn)
{
	struct sim *sim = sim_of(conn);
	struct sim_conn *other = conn->out->receiver;

	tutti_done_init(&conn->in->recvs);
	sim_stream_refresh(sim, conn->in);
	sim_stream_drop_sends(sim, conn->out, false, TUTTI_OK);
	if (conn->out->sender_gone)
		return;
	conn->out->sender_gone = true;
	conn->in->receiver_gone = true;
	if (!other || other->base.status != TUTTI_OK)
		return;
	check_drained(other);
	if (other->base.status == TUTTI_OK)
		sim_stream_drop_sends(sim, other->out, true, TUTTI_OK);
}
