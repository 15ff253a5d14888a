/* Posting what goes out: headers, control messages, and the slots of short messages with the credit
 * for them. */
#include "collectives/p2p/p2p_internal.h"

#include "core/poison.h"

#include <assert.h>
#include <stdlib.h>

void p2p_post_io(struct p2p_peer *peer, struct p2p_io *io, bool sends, void *buf, size_t bytes)
{
	const struct tutti_transport *transport = peer->conn->endpoint->transport;
	struct tutti_io *t = &io->base.op.io;

	*t = (struct tutti_io){.buf = buf, .bytes = bytes, .tag = P2P_TAG};
	(sends ? transport->send : transport->recv)(peer->conn, t);
}

/* Every header carries credit for slots that are free again. */
void p2p_post_header(struct p2p_peer *peer, struct p2p_io *io, struct p2p_header *h)
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
	p2p_post_io(peer, io, true, h, sizeof *h);
}

void p2p_note(struct p2p_peer *peer, struct p2p_note *note, enum p2p_kind kind)
{
	assert(!note->is_flying);
	note->header.kind = kind;
	note->is_flying = true;
	p2p_ready_io(&note->io, P2P_NOTE_OUT, peer, note);
	p2p_hold(peer->p2p, 1);
	p2p_post_header(peer, &note->io, &note->header);
}

static void make_slots(struct p2p_peer *peer)
{
	struct p2p_slot *slots = calloc(P2P_SLOTS, sizeof *slots);
	uint8_t *data = slots ? malloc(p2p_slot_offset(P2P_SLOTS)) : NULL;

	if (!data) {
		free(slots); /* without slots every message goes by request */
		return;
	}
	peer->slots = slots;
	for (uint32_t i = P2P_SLOTS; i-- > 0;) {
		slots[i].data = data + p2p_slot_offset(i);
		p2p_free_slot(peer, &slots[i]);
	}
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

uint32_t p2p_slot_id(const struct p2p_slot *slot, const struct p2p_peer *peer)
{
	return (uint32_t)(slot - peer->slots);
}

void p2p_free_slot(struct p2p_peer *peer, struct p2p_slot *slot)
{
	if (slot->flying || slot->is_lent)
		return;
	int c = p2p_class_of(p2p_slot_id(slot, peer));
	struct p2p_slot **list = &peer->free_slots[c];
	poison(&slot->header, sizeof slot->header);
	poison(slot->data, p2p_classes[c].bytes);
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
	p2p_free_slot(peer, &peer->slots[id]);
}

/* Credit goes back in batches. A sender without slots sends requests meanwhile. */
static void send_credit(struct p2p_peer *peer, int c)
{
	if (peer->returned_of[c] >= p2p_classes[c].returned && !peer->credit.is_flying &&
	    !p2p_is_gone(peer))
		p2p_note(peer, &peer->credit, P2P_CREDIT);
}

void p2p_give_back(struct p2p_peer *peer, uint32_t id)
{
	int c = p2p_class_of(id);
	if (p2p_is_self(peer)) {
		p2p_take_back(peer, id);
		return;
	}
	peer->returned[peer->returned_count++] = (uint8_t)id;
	peer->is_returned[id] = true;
	peer->returned_of[c]++;
	send_credit(peer, c);
}

struct p2p_header p2p_header_of(const struct p2p_message *m, enum p2p_kind kind, uint32_t id)
{
	const struct task_spec *spec = p2p_spec(m);
	return (struct p2p_header){.kind = kind,
				   .tag = spec->p2p.tag,
				   .dtype = spec->args.dtype,
				   .id = id,
				   .count = spec->args.count,
				   .bytes = m->bytes};
}

void p2p_send_header(struct p2p_message *m, enum p2p_kind kind, uint32_t id)
{
	struct p2p_leg *leg = &m->legs[0];
	leg->message = m;
	leg->header = p2p_header_of(m, kind, id);
	leg->flying = 1;
	p2p_ready_io(&leg->header_io, P2P_MESSAGE_OUT, m->peer, leg);
	p2p_post_header(m->peer, &leg->header_io, &leg->header);
}

void p2p_send_clear(struct p2p_message *m, uint32_t id)
{
	m->id = id;
	p2p_push(&m->peer->receiving, m);
	p2p_send_header(m, P2P_CLEAR, id);
}

void p2p_note_sent(struct p2p_peer *peer, struct p2p_note *note)
{
	note->is_flying = false;
	p2p_let_go(peer->p2p);
	if (note == &peer->mismatch)
		p2p_fail_mismatch(peer, false, &note->header);
	for (int c = 0; c < P2P_CLASSES && note == &peer->credit; c++)
		send_credit(peer, c);
}
