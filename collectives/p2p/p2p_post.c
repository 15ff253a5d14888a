/* Lists of messages, ios that belong to no work, and posting what goes out: headers, control
 * messages, and the slots of short messages with the credit for them. */
#include "collectives/p2p/p2p_internal.h"

#include "core/poison.h"
#include "transport/guarded.h"

#include <assert.h>
#include <stdlib.h>

const struct p2p_class p2p_classes[P2P_CLASSES] = {
	{256, 128, 16}, {2048, 32, 8}, {P2P_EAGER_BYTES, 10, 2}};

size_t p2p_slot_offset(uint32_t slot)
{
	size_t at = 0;

	for (int c = 0; slot; c++) {
		uint32_t n = slot < p2p_classes[c].count ? slot : p2p_classes[c].count;
		at += (size_t)n * p2p_classes[c].bytes;
		slot -= n;
	}
	return at;
}

void p2p_push(struct p2p_queue *q, struct p2p_message *m)
{
	m->next = NULL;
	*q->tail = m;
	q->tail = &m->next;
}

bool p2p_has(const struct p2p_queue *q, const struct p2p_message *m)
{
	const struct p2p_message *at = q->head;
	while (at && at != m)
		at = at->next;
	return at;
}

struct p2p_message *p2p_find_id(const struct p2p_queue *q, uint32_t id)
{
	struct p2p_message *m = q->head;
	while (m && m->id != id)
		m = m->next;
	return m;
}

void p2p_remove(struct p2p_queue *q, struct p2p_message *m)
{
	struct p2p_message **at = &q->head;
	while (*at != m)
		at = &(*at)->next;
	if (!(*at = m->next))
		q->tail = at;
}

void p2p_ready_io(struct p2p_io *io, enum p2p_what what, struct p2p_peer *peer, void *of)
{
	io->base.owner = peer->p2p->owner;
	io->base.work = NULL;
	io->what = what;
	io->peer = peer;
	io->of = of;
}

/* The helper serves engines that have asynchronous works, so these ios count as one. */
void p2p_hold(struct p2p *p, int ios)
{
	if (p->engine->loose == 0)
		atomic_fetch_add(&p->engine->help.async_works, 1);
	p->engine->loose += ios;
}

void p2p_let_go(struct p2p *p)
{
	if (--p->engine->loose == 0)
		atomic_fetch_sub(&p->engine->help.async_works, 1);
}

void p2p_name_source(struct p2p_message *m, int rank)
{
	const struct p2p_args *args = &m->work->spec.p2p;

	if (args->side == P2P_RECV && args->source)
		*args->source = rank;
}

void p2p_count_sent(struct engine *e, size_t bytes)
{
	engine_add_traffic(&e->traffic.messages, 1);
	engine_add_traffic(&e->traffic.sent_bytes, bytes);
}

void p2p_use_copies(struct p2p_message *m)
{
	const struct bounce_copies *c = m->work->bounce.copies;

	if (c)
		m->buf = p2p_spec(m)->p2p.side == P2P_SEND ? c->send : c->recv;
}

bool p2p_unstage(struct p2p_message *m)
{
	struct engine *e = m->work->engine;

	if (!m->is_staged)
		return true;
	m->is_staged = false;
	m->is_ready = p2p_spec(m)->p2p.side == P2P_RECV;
	tutti_status status = bounce_copy_late(e, m->work);
	if (status != TUTTI_OK) {
		engine_fail_in(e, m->work, status, last_error());
		return false;
	}
	p2p_use_copies(m);
	return true;
}

void p2p_done(struct p2p_message *m)
{
	p2p_name_source(m, m->peer->rank);
	engine_work_ended(m->work->engine, m->work);
}

/* The ios of its answers must have ended before the work ends. */
void p2p_receive_on(struct p2p_message *m)
{
	struct p2p_peer *peer = m->peer;
	if (m->moved < m->bytes || p2p_is_flying(m))
		return;
	if (m->is_met)
		p2p_remove(&peer->receiving, m);
	engine_add_traffic(&m->work->engine->traffic.received_bytes, m->bytes);
	p2p_done(m);
}

bool p2p_mail_put(struct p2p_peer *peer, const void *data, size_t bytes, tutti_dtype dtype, int tag)
{
	struct mail mail = {
		.bytes = (uint32_t)bytes, .dtype = dtype, .tag = tag, .after = peer->headers_sent};

	if (bytes > MAILBOX_MESSAGE_BYTES || !shm_mail_send(peer->conn, &mail, data))
		return false;
	peer->mailbox_sent++;
	peer->is_up = true;
	p2p_count_sent(p2p_engine(peer), mail.bytes);
	return true;
}

void p2p_deliver_mail(struct p2p_peer *peer)
{
	struct mailbox_reader *box = peer->conn ? shm_mail_reader(peer->conn) : NULL;

	if (box)
		mailbox_deliver(box);
}

void p2p_post_data(struct p2p_peer *peer, struct p2p_io *io, bool sends,
		   const struct tutti_io *data)
{
	struct tutti_io *t = &io->base.op.io;

	*t = *data;
	t->tag = P2P_TAG;
	if (sends)
		transport_send(peer->conn, t);
	else
		transport_recv(peer->conn, t);
}

void p2p_post_io(struct p2p_peer *peer, struct p2p_io *io, bool sends, void *buf, size_t bytes)
{
	p2p_post_data(peer, io, sends, &(struct tutti_io){.buf = buf, .bytes = bytes});
}

/* Every header carries credit for slots that are free again. */
void p2p_post_header(struct p2p_peer *peer, struct p2p_io *io, struct p2p_header *h)
{
	uint32_t n = peer->returned_count;
	if (h->kind == P2P_EAGER || h->kind == P2P_REQUEST || h->kind == P2P_REQUEST_STAGED) {
		h->after = peer->mailbox_sent;
		peer->headers_sent++;
	}
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

static void p2p_post_make_slots(struct p2p_peer *peer)
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
		p2p_post_make_slots(peer);
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
		p2p_nonsense(peer, "back a slot that it did not have");
		return;
	}
	peer->slots[id].is_lent = false;
	p2p_free_slot(peer, &peer->slots[id]);
}

/* Credit goes back in batches. A sender without slots sends requests meanwhile. */
static void p2p_post_send_credit(struct p2p_peer *peer, int c)
{
	if (peer->returned_of[c] >= p2p_classes[c].returned && !peer->credit.is_flying &&
	    !p2p_is_gone(peer))
		p2p_note(peer, &peer->credit, P2P_CREDIT);
}

void p2p_give_back(struct p2p_peer *peer, uint32_t id)
{
	if (id == P2P_BY_MAIL) {
		p2p_deliver_mail(peer);
		return;
	}
	if (p2p_is_self(peer)) {
		p2p_take_back(peer, id);
		return;
	}
	int c = p2p_class_of(id);
	peer->returned[peer->returned_count++] = (uint8_t)id;
	peer->is_returned[id] = true;
	peer->returned_of[c]++;
	p2p_post_send_credit(peer, c);
}

struct p2p_header p2p_header_of(const struct p2p_message *m, enum p2p_kind kind, uint32_t id)
{
	const struct task_spec *spec = p2p_spec(m);
	return (struct p2p_header){.kind = kind,
				   .tag = spec->p2p.tag,
				   .dtype = spec->args.dtype,
				   .id = id,
				   .count = spec->args.count,
				   .bytes = m->bytes,
				   .is_mapped = m->map != NULL,
				   .is_captured = spec->captured != NULL};
}

void p2p_send_header(struct p2p_message *m, enum p2p_kind kind, uint32_t id)
{
	struct p2p_header h = p2p_header_of(m, kind, id);

	p2p_send_this_header(m, &h);
}

void p2p_send_this_header(struct p2p_message *m, const struct p2p_header *h)
{
	struct p2p_leg *leg = &m->legs[0];
	leg->message = m;
	leg->header = *h;
	leg->flying = 1;
	p2p_ready_io(&leg->header_io, P2P_MESSAGE_OUT, m->peer, leg);
	p2p_post_header(m->peer, &leg->header_io, &leg->header);
}

void p2p_send_clear(struct p2p_message *m, const struct p2p_header *request)
{
	bool is_staged = m->is_staged && request->kind == P2P_REQUEST_STAGED &&
			 p2p_stages_reach(m->work->engine, m->peer->rank);

	if (!is_staged && !p2p_unstage(m))
		return;
	m->id = request->id;
	p2p_push(&m->peer->receiving, m);
	if (!m->map || !m->work->bounce.is_held)
		p2p_send_header(m, is_staged ? P2P_CLEAR_STAGED : P2P_CLEAR, m->id);
}

void p2p_released(struct p2p_message *m)
{
	if (m->map && m->is_met && !p2p_is_gone(m->peer))
		p2p_send_header(m, P2P_CLEAR, m->id);
}

void p2p_note_sent(struct p2p_peer *peer, struct p2p_note *note)
{
	note->is_flying = false;
	p2p_let_go(peer->p2p);
	for (int c = 0; c < P2P_CLASSES && note == &peer->credit; c++)
		p2p_post_send_credit(peer, c);
}
