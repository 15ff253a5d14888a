/* The sender's side: short messages through slots, requests and the data of long ones. */
#include "collectives/engine/direct.h"
#include "collectives/p2p/p2p_internal.h"
#include "core/memory/dtype.h"

#include <string.h>

/* The message is copied, so the call of its caller ends now. */
static void p2p_send_eager(struct p2p_message *m, struct p2p_slot *slot)
{
	struct p2p_peer *peer = m->peer;
	struct p2p *p = peer->p2p;

	slot->header = p2p_header_of(m, P2P_EAGER, p2p_slot_id(slot, peer));
	slot->flying = m->bytes ? 2 : 1;
	slot->is_lent = true;
	slot->is_unfit = false;
	p2p_ready_io(&slot->header_io, P2P_SLOT_OUT, peer, slot);
	p2p_ready_io(&slot->payload_io, P2P_SLOT_OUT, peer, slot);
	p2p_hold(p, slot->flying);
	p->unsent += slot->flying;
	if (m->work->deadline_ns > p->unsent_until_ns)
		p->unsent_until_ns = m->work->deadline_ns;
	p2p_count_sent(p->engine, m->bytes);
	p2p_post_header(peer, &slot->header_io, &slot->header);
	if (m->bytes) {
		memcpy(slot->data, m->buf, m->bytes);
		p2p_post_io(peer, &slot->payload_io, true, slot->data, m->bytes);
	}
	p2p_done(m);
}

/* False: it has to go by the connection. */
static bool p2p_send_mail(struct p2p_message *m)
{
	const struct task_spec *spec = p2p_spec(m);

	if (m->is_staged || spec->captured ||
	    !p2p_mail_put(m->peer, m->buf, m->bytes, spec->args.dtype, spec->p2p.tag))
		return false;
	p2p_done(m);
	return true;
}

static void p2p_send_request(struct p2p_message *m)
{
	m->id = m->peer->next_id++;
	p2p_push(&m->peer->requested, m);
	p2p_send_header(m, m->is_staged ? P2P_REQUEST_STAGED : P2P_REQUEST, m->id);
}

/* In the order of the calls. A message whose host copy is not ready holds up those behind it. */
void p2p_send_on(struct p2p_peer *peer)
{
	struct p2p_message *m;
	while ((m = peer->outbox.head) && m->is_ready && !p2p_engine(peer)->failure.stop) {
		struct p2p_slot *slot;
		if (p2p_is_gone(peer)) {
			p2p_check_gone(peer->p2p);
			return;
		}
		p2p_remove(&peer->outbox, m);
		if (p2p_is_self(peer))
			p2p_send_self(m);
		else if (p2p_send_mail(m))
			continue;
		else if ((slot = p2p_take_slot(peer, m->bytes)))
			p2p_send_eager(m, slot);
		else
			p2p_send_request(m);
	}
}

static void p2p_send_piece(struct p2p_message *m, struct p2p_leg *leg)
{
	size_t bytes = m->bytes - m->moved;
	if (bytes > P2P_PIECE_BYTES)
		bytes = P2P_PIECE_BYTES;
	leg->message = m;
	leg->header = (struct p2p_header){
		.kind = P2P_DATA, .id = m->id, .bytes = bytes, .is_mapped = m->map != NULL};
	leg->flying = 2;
	p2p_ready_io(&leg->header_io, P2P_MESSAGE_OUT, m->peer, leg);
	p2p_ready_io(&leg->payload_io, P2P_MESSAGE_OUT, m->peer, leg);
	p2p_post_header(m->peer, &leg->header_io, &leg->header);
	p2p_post_data(m->peer, &leg->payload_io, true,
		      &(struct tutti_io){.buf = m->buf + m->moved,
					 .bytes = bytes,
					 .map = direct_map_of(m->map),
					 .asks = m->asks});
	m->moved += bytes;
}

void p2p_send_pieces(struct p2p_message *m)
{
	for (int i = 0; i < P2P_LEGS; i++)
		if (!m->legs[i].flying && m->moved < m->bytes && !m->peer->is_lost)
			p2p_send_piece(m, &m->legs[i]);
	if (m->moved < m->bytes || p2p_is_flying(m))
		return;
	p2p_count_sent(m->work->engine, m->bytes);
	p2p_done(m);
}

/* The message that an answer is about. */
static struct p2p_message *p2p_send_take_requested(struct p2p_peer *peer, uint32_t id)
{
	struct p2p_message *m = p2p_find_id(&peer->requested, id);

	if (m)
		p2p_remove(&peer->requested, m);
	else
		p2p_nonsense(peer, "an answer to a request that was not made");
	return m;
}

void p2p_cleared(struct p2p_peer *peer, const struct p2p_header *h)
{
	struct p2p_message *m = p2p_send_take_requested(peer, h->id);

	if (!m)
		return;
	m->asks = h->is_mapped;
	m->is_met = true;
	if (h->kind == P2P_CLEAR_STAGED && m->is_staged)
		p2p_stage(m);
	else if (h->kind == P2P_CLEAR_STAGED)
		p2p_nonsense(peer, "an answer to a request that was not made");
	else if (!m->is_staged)
		p2p_send_pieces(m);
	else
		p2p_unstage(m);
}

void p2p_refused(struct p2p_peer *peer, const struct p2p_header *h)
{
	struct p2p_message *m = p2p_send_take_requested(peer, h->id);

	if (m)
		p2p_misfit(m, peer, h);
}

/* The peer says what it has got: this rank keeps nothing of a message in the mailbox. */
static void p2p_send_unfit_mail(struct p2p_peer *peer, const struct p2p_header *h)
{
	size_t element = dtype_bytes((tutti_dtype)h->mail_dtype);

	if (!element || peer->unfits == peer->mailbox_sent) {
		p2p_nonsense(peer, "an answer to a message that it was not sent");
		return;
	}
	peer->unfits++;
	p2p_say_unfit(peer,
		      &(struct p2p_header){
			      .tag = h->tag, .dtype = h->mail_dtype, .count = h->bytes / element},
		      h);
}

/* Once a message, so a peer cannot make this rank write without end. */
void p2p_unfit(struct p2p_peer *peer, const struct p2p_header *h)
{
	if (h->id == P2P_BY_MAIL) {
		p2p_send_unfit_mail(peer, h);
		return;
	}
	struct p2p_slot *slot = peer->slots && h->id < P2P_SLOTS ? &peer->slots[h->id] : NULL;

	if (!slot || !slot->is_lent || slot->is_unfit) {
		p2p_nonsense(peer, "an answer to a message that it was not sent");
		return;
	}
	slot->is_unfit = true;
	p2p_say_unfit(peer, &slot->header, h);
}

void p2p_sent(struct p2p_io *io)
{
	struct p2p_peer *peer = io->peer;
	if (io->what == P2P_NOTE_OUT) {
		p2p_note_sent(peer, io->of);
	} else if (io->what == P2P_SLOT_OUT) {
		struct p2p_slot *slot = io->of;
		slot->flying--;
		peer->p2p->unsent--;
		p2p_let_go(peer->p2p);
		p2p_free_slot(peer, slot);
	} else {
		struct p2p_leg *leg = io->of;
		struct p2p_message *m = leg->message;
		leg->flying--;
		if (m->is_misfit)
			p2p_end_misfit(m);
		else if (m->is_staged && m->is_met)
			p2p_staged_on(m);
		else if (p2p_spec(m)->p2p.side == P2P_RECV)
			p2p_receive_on(m);
		else if (m->is_met && m->is_ready)
			p2p_send_pieces(m);
	}
}
