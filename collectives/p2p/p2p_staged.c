/* Long messages from GPU to GPU, where the receiver maps memory of the sender's: a few pieces, its
 * stages, through which all its messages go. The sender copies a part of the message into a stage
 * and tells; the receiver copies it out and says so. The memory kind copies; no byte goes by the
 * transport, and the hosts need no copies. */
#include "collectives/engine/direct.h"
#include "collectives/p2p/p2p.h"
#include "collectives/p2p/p2p_internal.h"

#include <assert.h>
#include <string.h>

static const struct engine_stages *p2p_staged_stages_of(const struct engine *e)
{
	return e->config.device.stages;
}

enum p2p_way p2p_way_of(const struct engine *e, int peer, int kind)
{
	if (kind == TUTTI_MEMORY_CUDA && p2p_stages_reach(e, peer))
		return P2P_BY_STAGES;
	return direct_reaches(e, peer, kind) ? P2P_BY_ADAPTERS : P2P_BY_COPIES;
}

bool p2p_may_stage(const struct engine *e, const struct task_spec *spec)
{
	int me = e->config.rank, peer = spec->p2p.peer;
	size_t bytes = spec->p2p.side == P2P_SEND ? spec->send_bytes : spec->recv_bytes;

	if (!p2p_staged_stages_of(e) || spec->memory->id != TUTTI_MEMORY_CUDA ||
	    bytes <= P2P_EAGER_BYTES || peer == me)
		return false;
	return peer == TUTTI_ANY || p2p_way_of(e, peer, spec->memory->id) == P2P_BY_STAGES;
}

void p2p_stages_init(struct p2p *p)
{
	const struct engine_stages *s = p2p_staged_stages_of(p->engine);

	p->staging.tail = &p->staging.head;
	if (s) {
		assert(s->count < 32);
		p->free_stages = (1u << s->count) - 1;
	}
}

static void *stage_at(const struct engine *e, int rank, uint32_t stage)
{
	const struct engine_stages *s = p2p_staged_stages_of(e);

	return (char *)s->of[rank] + (size_t)stage * s->bytes;
}

static void p2p_staged_post_copy(struct p2p_message *m, struct p2p_leg *leg, void *dst,
				 const void *src, size_t bytes)
{
	struct engine *e = m->work->engine;
	struct memory_queue *q = e->links.queues[TUTTI_MEMORY_CUDA];
	struct memory_io *op = &leg->payload_io.base.op;

	p2p_ready_io(&leg->payload_io, P2P_COPY, m->peer, leg);
	leg->copied = src;
	op->op = MEMORY_COPY;
	op->dst = dst;
	op->src = &leg->copied;
	op->n_src = 1;
	op->count = bytes;
	q->kind->post(q, op, &e->links.done);
}

/* ---- the sender ---- */

static struct p2p_leg *p2p_staged_free_leg(struct p2p_message *m)
{
	for (int i = 0; i < P2P_LEGS; i++)
		if (!m->legs[i].flying)
			return &m->legs[i];
	return NULL;
}

static void p2p_staged_fill_stage(struct p2p_message *m, struct p2p_leg *leg)
{
	struct p2p *p = m->peer->p2p;
	uint32_t stage = (uint32_t)__builtin_ctz(p->free_stages);
	size_t bytes = m->bytes - m->moved, most = p2p_staged_stages_of(p->engine)->bytes;

	if (bytes > most)
		bytes = most;
	p->free_stages &= ~(1u << stage);
	leg->message = m;
	leg->flying = 3; /* the copy, its header, and the answer */
	leg->is_taken = false;
	leg->header = (struct p2p_header){.kind = P2P_STAGED,
					  .id = m->id,
					  .tag = (int32_t)(leg - m->legs),
					  .dtype = stage,
					  .count = m->moved,
					  .bytes = bytes};
	p2p_staged_post_copy(m, leg, stage_at(p->engine, p->engine->config.rank, stage),
			     m->buf + m->moved, bytes);
	m->moved += bytes;
	p->staged_bytes += bytes;
}

/* Messages take turns, a stage each. */
static void p2p_staged_fill_stages(struct p2p *p)
{
	struct p2p_message *m = p->staging.head;

	while (m && p->free_stages && !p->engine->failure.stop) {
		struct p2p_leg *leg = m->moved < m->bytes ? p2p_staged_free_leg(m) : NULL;
		if (leg) {
			p2p_staged_fill_stage(m, leg);
			p2p_remove(&p->staging, m);
			p2p_push(&p->staging, m);
		}
		m = leg ? p->staging.head : m->next;
	}
}

void p2p_stage(struct p2p_message *m)
{
	p2p_push(&m->peer->p2p->staging, m);
	p2p_staged_fill_stages(m->peer->p2p);
}

static void p2p_staged_send_on(struct p2p_message *m)
{
	struct p2p *p = m->peer->p2p;

	if (m->moved == m->bytes && !p2p_is_flying(m)) {
		p2p_remove(&p->staging, m);
		p2p_count_sent(p->engine, m->bytes);
		p2p_done(m);
	}
	p2p_staged_fill_stages(p);
}

static struct p2p_message *p2p_staged_find_staging(const struct p2p_peer *peer, uint32_t id)
{
	struct p2p_message *m = peer->p2p->staging.head;

	while (m && (m->peer != peer || m->id != id))
		m = m->next;
	return m;
}

void p2p_stage_taken(struct p2p_peer *peer, const struct p2p_header *h)
{
	struct p2p_message *m = p2p_staged_find_staging(peer, h->id);
	struct p2p_leg *leg = m && h->tag >= 0 && h->tag < P2P_LEGS ? &m->legs[h->tag] : NULL;

	if (!leg || leg->header.kind != P2P_STAGED || !leg->flying || leg->is_taken) {
		p2p_nonsense(peer, "an answer to data that it was not sent");
		return;
	}
	leg->is_taken = true;
	leg->flying--;
	peer->p2p->free_stages |= 1u << leg->header.dtype;
	p2p_staged_send_on(m);
}

/* ---- the receiver ---- */

/* The first may come before the caller's stream has come to the recv, and another before the io of
 * the answer to the one before is over. */
static void p2p_staged_receive_on(struct p2p_message *m)
{
	struct p2p_peer *peer = m->peer;

	for (int i = 0; i < P2P_LEGS; i++) {
		struct p2p_leg *leg = &m->legs[i];
		const struct p2p_header *h = &leg->came;
		if (leg->stage == STAGE_IS_FULL && m->work->bounce.preparing == 0) {
			leg->stage = STAGE_IS_COPIED;
			p2p_staged_post_copy(m, leg, m->buf + h->count,
					     stage_at(m->work->engine, peer->rank, h->dtype),
					     h->bytes);
		} else if (leg->stage == STAGE_IS_EMPTY && !leg->flying) {
			leg->stage = STAGE_IS_UNUSED;
			leg->message = m;
			leg->flying = 1;
			leg->header = (struct p2p_header){
				.kind = P2P_TAKEN, .id = m->id, .tag = (int32_t)i};
			p2p_ready_io(&leg->header_io, P2P_MESSAGE_OUT, peer, leg);
			p2p_post_header(peer, &leg->header_io, &leg->header);
		}
	}
	p2p_receive_on(m);
}

void p2p_stage_filled(struct p2p_peer *peer, const struct p2p_header *h)
{
	const struct engine_stages *s = p2p_staged_stages_of(p2p_engine(peer));
	struct p2p_message *m = p2p_find_id(&peer->receiving, h->id);
	struct p2p_leg *leg = m && h->tag >= 0 && h->tag < P2P_LEGS ? &m->legs[h->tag] : NULL;

	/* Parts come in order: so none is missing, and none lies on another. */
	if (!leg || !m->is_staged || leg->stage != STAGE_IS_UNUSED || h->dtype >= s->count ||
	    h->bytes == 0 || h->bytes > s->bytes || h->count != m->announced ||
	    h->bytes > m->bytes - m->announced) {
		p2p_nonsense(peer, "data on its GPU that this rank has not asked for");
		return;
	}
	m->announced += h->bytes;
	leg->came = *h;
	leg->message = m;
	leg->stage = STAGE_IS_FULL;
	p2p_staged_receive_on(m);
}

/* ---- both ---- */

void p2p_copied(struct p2p_io *io)
{
	struct p2p_leg *leg = io->of;
	struct p2p_message *m = leg->message;

	if (p2p_spec(m)->p2p.side == P2P_RECV) {
		leg->stage = STAGE_IS_EMPTY;
		m->moved += leg->came.bytes;
		p2p_staged_receive_on(m);
		return;
	}
	leg->flying--;
	p2p_ready_io(&leg->header_io, P2P_MESSAGE_OUT, m->peer, leg);
	p2p_post_header(m->peer, &leg->header_io, &leg->header);
}

void p2p_staged_on(struct p2p_message *m)
{
	if (p2p_spec(m)->p2p.side == P2P_RECV)
		p2p_staged_receive_on(m);
	else
		p2p_staged_send_on(m);
}
