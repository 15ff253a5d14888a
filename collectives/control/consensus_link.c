/* Connections of the consensus: see consensus_internal.h. */
#include "collectives/control/consensus_internal.h"
#include "collectives/control/deadlines.h"

#include "core/clock.h"
#include "transport/guarded.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC         0x746e6331u
#define TAG           0xc0417c11u
#define FIRST_CHANNEL 3
#define LAST_CHANNEL  250 /* a transport has 256 */
#define REFUSALS      2   /* one alone may be the network's fault */
#define FAILURES      8   /* from then on a rest lies between two */
#define RECORD_MAX    (64u << 10)

static size_t consensus_link_body_bytes(const struct consensus_head *h, int size)
{
	size_t bytes = 0;

	if (h->kind == AGREEMENT_PROPOSE)
		bytes += (size_t)size;
	if (h->kind == AGREEMENT_JOIN)
		bytes += h->record_bytes;
	if (h->has_value)
		bytes += agreement_value_bytes(size, h->record_bytes);
	return bytes;
}

static bool consensus_link_needs_value(uint32_t kind)
{
	return kind == AGREEMENT_PROPOSE || kind == AGREEMENT_DECIDE || kind == AGREEMENT_HOPELESS;
}

static bool consensus_link_is_right(const struct consensus_head *h, int size)
{
	return h->magic == MAGIC && h->kind > AGREEMENT_NOTHING && h->kind <= CONSENSUS_LATE &&
	       h->record_bytes <= RECORD_MAX &&
	       h->body_bytes == consensus_link_body_bytes(h, size) &&
	       (h->has_value || (!consensus_link_needs_value(h->kind) &&
				 (h->kind != AGREEMENT_JOIN || h->accepted == 0)));
}

static bool consensus_link_make_room(uint8_t **bytes, size_t *room, size_t needed)
{
	if (needed <= *room)
		return true;
	uint8_t *more = realloc(*bytes, needed);
	if (!more)
		return false;
	*bytes = more;
	*room = needed;
	return true;
}

void consensus_link_listen(struct consensus_link *l)
{
	l->has_message = false;
	if (!l->conn)
		return;
	l->in_head = (struct tutti_io){.buf = &l->in, .bytes = sizeof l->in, .tag = TAG};
	transport_recv(l->conn, &l->in_head);
}

bool consensus_link_open(struct consensus_link *l)
{
	if (l->conn)
		return true;
	if (l->channel == 0)
		l->channel = FIRST_CHANNEL;
	if (l->failures > FAILURES && clock_now_ns() < l->rests_until_ns)
		return false;
	if (l->channel > LAST_CHANNEL || l->address_bytes == 0 ||
	    transport_connect(l->endpoint, l->peer, l->channel, l->address, l->address_bytes,
			      &l->conn) != TUTTI_OK)
		return false;
	l->channel++;
	l->was_heard = l->is_lost = l->is_sending = false;
	consensus_link_listen(l);
	return true;
}

bool consensus_link_is_refused(const struct consensus_link *l)
{
	return l->refusals >= REFUSALS;
}

tutti_status consensus_link_send(struct consensus_link *l, uint64_t number, size_t record_bytes,
				 const struct agreement_message *m)
{
	size_t value = m->value ? agreement_value_bytes(l->size, record_bytes) : 0;
	uint8_t *at;

	l->out = (struct consensus_head){.magic = MAGIC,
					 .kind = (uint32_t)m->kind,
					 .number = number,
					 .ballot = m->ballot,
					 .accepted = m->accepted,
					 .is_fresh = m->is_fresh,
					 .has_value = m->value != NULL,
					 .record_bytes = (uint32_t)record_bytes};
	l->out.body_bytes = (uint32_t)consensus_link_body_bytes(&l->out, l->size);
	if (!consensus_link_make_room(&l->out_bytes, &l->out_room, l->out.body_bytes))
		return fail(TUTTI_ERR_MEMORY, "no memory for a message of %u bytes to rank %d",
			    l->out.body_bytes, l->peer);
	at = l->out_bytes;
	if (m->gone)
		memcpy(at, m->gone, (size_t)l->size);
	at += m->gone ? l->size : 0;
	if (m->record)
		memcpy(at, m->record, record_bytes);
	at += m->record ? record_bytes : 0;
	if (m->value)
		memcpy(at, m->value, value);
	l->is_sending = true;
	l->out_head = (struct tutti_io){.buf = &l->out, .bytes = sizeof l->out, .tag = TAG};
	l->out_body =
		(struct tutti_io){.buf = l->out_bytes, .bytes = l->out.body_bytes, .tag = TAG + 1};
	transport_send(l->conn, &l->out_head);
	if (l->out.body_bytes)
		transport_send(l->conn, &l->out_body);
	return TUTTI_OK;
}

static void consensus_link_take_head(struct consensus_link *l)
{
	if (!consensus_link_is_right(&l->in, l->size) ||
	    !consensus_link_make_room(&l->in_bytes, &l->in_room, l->in.body_bytes)) {
		l->is_lost = true;
		return;
	}
	l->was_heard = true;
	l->has_message = l->in.body_bytes == 0;
	if (l->has_message)
		return;
	l->in_body =
		(struct tutti_io){.buf = l->in_bytes, .bytes = l->in.body_bytes, .tag = TAG + 1};
	transport_recv(l->conn, &l->in_body);
}

void consensus_link_done(struct consensus_link *l, const struct tutti_io *io)
{
	if (io->status != TUTTI_OK)
		l->is_lost = true;
	else if (io == &l->in_head)
		consensus_link_take_head(l);
	else if (io == &l->in_body)
		l->has_message = true;
	else if (io == &l->out_body || l->out.body_bytes == 0)
		l->is_sending = false;
}

/* Both ends count channels: a connection that fails at one of them fails at the other, too, even if
 * the other has not connected it yet. So both come to the same next one. */
bool consensus_link_settle(struct consensus_link *l)
{
	if (!l->is_lost || l->has_message) /* what came before the end is heard first */
		return false;
	tutti_status status = l->conn->status;
	bool was_there = l->conn->where[0] != '\0';
	/* Another process may listen there by now. */
	bool is_refused = !was_there && (status == TUTTI_ERR_PEER || status == TUTTI_ERR_AUTH);
	if (l->was_heard)
		l->refusals = l->failures = 0;
	l->refusals += !l->was_heard && is_refused;
	l->failures += !l->was_heard;
	l->rests_until_ns = deadline_after_ms(LINK_REST_MS);
	consensus_link_close(l);
	return true;
}

struct agreement_message consensus_link_message(const struct consensus_link *l)
{
	struct agreement_message m = {.kind = (enum agreement_kind)l->in.kind,
				      .is_fresh = l->in.is_fresh,
				      .ballot = l->in.ballot,
				      .accepted = l->in.accepted};
	const uint8_t *at = l->in_bytes;

	if (m.kind == AGREEMENT_PROPOSE) {
		m.gone = at;
		at += l->size;
	}
	if (m.kind == AGREEMENT_JOIN) {
		m.record = at;
		at += l->in.record_bytes;
	}
	if (l->in.has_value)
		m.value = at;
	return m;
}

void consensus_link_close(struct consensus_link *l)
{
	if (l->conn)
		transport_close(l->conn);
	l->conn = NULL;
	l->is_lost = l->is_sending = l->has_message = false;
}
