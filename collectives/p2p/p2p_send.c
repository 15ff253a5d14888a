/* What goes out: short messages through slots, requests and the data of long ones, control
 * messages. */
#include "collectives/p2p/p2p_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- posting -------------------------------------------------------------------------------- */

static void post(struct p2p_peer *peer, struct p2p_io *io, void *buf, size_t bytes)
{
	struct tutti_io *t = &io->base.op.io;
	*t = (struct tutti_io){.buf = buf, .bytes = bytes, .tag = P2P_TAG};
	peer->conn->endpoint->transport->send(peer->conn, t);
}

/* Every header takes with it what there is to give back. */
static void post_header(struct p2p_peer *peer, struct p2p_io *io, struct p2p_header *h)
{
	uint32_t n = peer->returned_count;
	if (n > sizeof h->returned)
		n = sizeof h->returned;
	h->returned_count = (uint8_t)n;
	for (uint32_t i = 0; i < n; i++) {
		h->returned[i] = peer->returned[--peer->returned_count];
		peer->is_returned[h->returned[i]] = false;
		peer->returned_of[p2p_class_of(h->returned[i])]--;
	}
	post(peer, io, h, sizeof *h);
}

void p2p_note(struct p2p_peer *peer, struct p2p_note *note, enum p2p_kind kind)
{
	assert(!note->is_flying);
	note->header.kind = kind;
	note->is_flying = true;
	p2p_ready_io(&note->io, P2P_NOTE_OUT, peer, note);
	p2p_hold(peer->p2p, 1);
	post_header(peer, &note->io, &note->header);
}

static void count_sent(struct engine *e, size_t bytes)
{
	atomic_fetch_add_explicit(&e->messages, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&e->sent_bytes, bytes, memory_order_relaxed);
}

/* ---- slots ---------------------------------------------------------------------------------- */

static void make_slots(struct p2p_peer *peer)
{
	struct p2p_slot *slots = calloc(P2P_SLOTS, sizeof *slots);
	size_t bytes = 0, at = 0;

	for (int c = 0; c < P2P_CLASSES; c++)
		bytes += (size_t)p2p_classes[c].bytes * p2p_classes[c].count;
	uint8_t *data = slots ? malloc(bytes) : NULL;
	if (!data) {
		free(slots); /* then everything goes by request */
		return;
	}
	for (uint32_t i = 0; i < P2P_SLOTS; i++) {
		slots[i].data = data + at;
		at += p2p_classes[p2p_class_of(i)].bytes;
	}
	for (uint32_t i = P2P_SLOTS; i-- > 0;) {
		struct p2p_slot **list = &peer->free_slots[p2p_class_of(i)];
		slots[i].next_free = *list;
		*list = &slots[i];
	}
	peer->slots = slots;
}

struct p2p_slot *p2p_take_slot(struct p2p_peer *peer, size_t bytes)
{
	if (bytes > P2P_EAGER_BYTES)
		return NULL;
	if (!peer->slots)
		make_slots(peer);
	for (int c = 0; c < P2P_CLASSES; c++) {
		struct p2p_slot *slot = peer->free_slots[c];
		if (!slot || bytes > p2p_classes[c].bytes)
			continue;
		peer->free_slots[c] = slot->next_free;
		return slot;
	}
	return NULL;
}

static uint32_t slot_id(const struct p2p_slot *slot, const struct p2p_peer *peer)
{
	return (uint32_t)(slot - peer->slots);
}

static void free_slot_if_unused(struct p2p_peer *peer, struct p2p_slot *slot)
{
	if (slot->flying || slot->is_lent)
		return;
	struct p2p_slot **list = &peer->free_slots[p2p_class_of(slot_id(slot, peer))];
	slot->next_free = *list;
	*list = slot;
}

void p2p_take_back(struct p2p_peer *peer, uint32_t id)
{
	if (!peer->slots || id >= P2P_SLOTS || !peer->slots[id].is_lent) {
		p2p_nonsense(peer, "a slot back that it does not have");
		return;
	}
	peer->slots[id].is_lent = false;
	free_slot_if_unused(peer, &peer->slots[id]);
}

/* Not one by one: a sender that runs out of slots goes on by request. */
void p2p_give_back(struct p2p_peer *peer, uint32_t id)
{
	int c = p2p_class_of(id);
	if (p2p_is_self(peer)) {
		p2p_take_back(peer, id);
		return;
	}
	peer->returned[peer->returned_count++] = (uint8_t)id;
	peer->is_returned[id] = true;
	if (++peer->returned_of[c] >= p2p_classes[c].returned && !peer->credit.is_flying &&
	    !peer->is_lost && !peer->has_left)
		p2p_note(peer, &peer->credit, P2P_CREDIT);
}

/* ---- messages ------------------------------------------------------------------------------- */

static struct p2p_header header_of(const struct p2p_message *m, enum p2p_kind kind, uint32_t id)
{
	const struct job_spec *spec = p2p_spec(m);
	return (struct p2p_header){.kind = kind,
				   .tag = spec->p2p.tag,
				   .dtype = spec->args.dtype,
				   .id = id,
				   .count = spec->args.count,
				   .bytes = m->bytes};
}

/* Copied, and so done for its caller. */
static void send_eager(struct p2p_message *m, struct p2p_slot *slot)
{
	struct p2p_peer *peer = m->peer;
	struct p2p *p = peer->p2p;

	slot->header = header_of(m, P2P_EAGER, slot_id(slot, peer));
	slot->flying = m->bytes ? 2 : 1;
	slot->is_lent = true;
	p2p_ready_io(&slot->header_io, P2P_SLOT_OUT, peer, slot);
	p2p_ready_io(&slot->payload_io, P2P_SLOT_OUT, peer, slot);
	p2p_hold(p, slot->flying);
	p->unsent += slot->flying;
	if (m->work->deadline_ns > p->unsent_until_ns)
		p->unsent_until_ns = m->work->deadline_ns;
	count_sent(p->engine, m->bytes);
	post_header(peer, &slot->header_io, &slot->header);
	if (m->bytes) {
		memcpy(slot->data, m->buf, m->bytes);
		post(peer, &slot->payload_io, slot->data, m->bytes);
	}
	p2p_done(m);
}

static void send_header(struct p2p_message *m, enum p2p_kind kind, uint32_t id)
{
	struct p2p_leg *leg = &m->legs[0];
	leg->message = m;
	leg->header = header_of(m, kind, id);
	leg->flying = 1;
	p2p_ready_io(&leg->header_io, P2P_MESSAGE_OUT, m->peer, leg);
	post_header(m->peer, &leg->header_io, &leg->header);
}

static void send_request(struct p2p_message *m)
{
	m->id = m->peer->next_id++;
	p2p_push(&m->peer->requested, m);
	send_header(m, P2P_REQUEST, m->id);
}

void p2p_send_clear(struct p2p_message *m, uint32_t id)
{
	m->id = id;
	p2p_push(&m->peer->receiving, m);
	send_header(m, P2P_CLEAR, id);
}

/* In the order of the calls: one whose buffer is still being staged holds up those behind it. */
void p2p_send_on(struct p2p_peer *peer)
{
	struct p2p_message *m;
	while ((m = peer->outbox.head) && m->is_ready && !p2p_engine(peer)->stop) {
		struct p2p_slot *slot;
		if (peer->is_lost || peer->has_left) {
			p2p_check_gone(peer->p2p);
			return;
		}
		p2p_remove(&peer->outbox, m);
		if (p2p_is_self(peer))
			p2p_send_self(m);
		else if ((slot = p2p_take_slot(peer, m->bytes)))
			send_eager(m, slot);
		else
			send_request(m);
	}
}

/* ---- long ones ------------------------------------------------------------------------------ */

static void send_piece(struct p2p_message *m, struct p2p_leg *leg)
{
	size_t bytes = m->bytes - m->moved;
	if (bytes > P2P_PIECE_BYTES)
		bytes = P2P_PIECE_BYTES;
	leg->message = m;
	leg->header = (struct p2p_header){.kind = P2P_DATA, .id = m->id, .bytes = bytes};
	leg->flying = 2;
	p2p_ready_io(&leg->header_io, P2P_MESSAGE_OUT, m->peer, leg);
	p2p_ready_io(&leg->payload_io, P2P_MESSAGE_OUT, m->peer, leg);
	post_header(m->peer, &leg->header_io, &leg->header);
	post(m->peer, &leg->payload_io, m->buf + m->moved, bytes);
	m->moved += bytes;
}

static bool is_flying(const struct p2p_message *m)
{
	for (int i = 0; i < P2P_LEGS; i++)
		if (m->legs[i].flying)
			return true;
	return false;
}

static void send_pieces(struct p2p_message *m)
{
	for (int i = 0; i < P2P_LEGS; i++)
		if (!m->legs[i].flying && m->moved < m->bytes && !m->peer->is_lost)
			send_piece(m, &m->legs[i]);
	if (m->moved < m->bytes || is_flying(m))
		return;
	count_sent(m->work->engine, m->bytes);
	p2p_done(m);
}

void p2p_cleared(struct p2p_peer *peer, uint32_t id)
{
	struct p2p_message *m = peer->requested.head;
	while (m && m->id != id)
		m = m->next;
	if (!m) {
		p2p_nonsense(peer, "an answer to a request that was not made");
		return;
	}
	p2p_remove(&peer->requested, m);
	m->is_met = true;
	send_pieces(m);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void note_sent(struct p2p_peer *peer, struct p2p_note *note)
{
	note->is_flying = false;
	p2p_let_go(peer->p2p);
	if (note == &peer->verdict)
		p2p_verdict_sent(peer);
	for (int c = 0; c < P2P_CLASSES && note == &peer->credit; c++)
		if (peer->returned_of[c] >= p2p_classes[c].returned && !note->is_flying &&
		    !peer->is_lost && !peer->has_left)
			p2p_note(peer, note, P2P_CREDIT);
}

/* An io of ours has ended, well or not. */
void p2p_sent(struct p2p_io *io)
{
	struct p2p_peer *peer = io->peer;
	if (io->what == P2P_NOTE_OUT) {
		note_sent(peer, io->of);
	} else if (io->what == P2P_SLOT_OUT) {
		struct p2p_slot *slot = io->of;
		slot->flying--;
		peer->p2p->unsent--;
		p2p_let_go(peer->p2p);
		free_slot_if_unused(peer, slot);
	} else {
		struct p2p_leg *leg = io->of;
		leg->flying--;
		if (p2p_spec(leg->message)->p2p.side == P2P_RECV)
			p2p_receive_on(leg->message);
		else if (leg->message->is_met)
			send_pieces(leg->message);
	}
}
