/* Lists of messages, where slots lie, and ios that belong to no work. */
#include "collectives/p2p/p2p_internal.h"

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

void p2p_done(struct p2p_message *m)
{
	struct task_spec *spec = &m->work->spec;
	if (spec->p2p.side == P2P_RECV && spec->p2p.source)
		*spec->p2p.source = m->peer->rank;
	engine_work_ended(m->work->engine, m->work);
}

/* The io of the CLEAR message must have ended before the work ends. */
void p2p_receive_on(struct p2p_message *m)
{
	struct p2p_peer *peer = m->peer;
	if (m->moved < m->bytes || m->legs[0].flying)
		return;
	if (m->is_met)
		p2p_remove(&peer->receiving, m);
	atomic_fetch_add_explicit(&m->work->engine->traffic.received_bytes, m->bytes,
				  memory_order_relaxed);
	p2p_done(m);
}
