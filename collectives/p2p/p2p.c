/* Point-to-point as the engine knows it: what is kept for an engine and for each peer, and a send's
 * or recv's way in and out. Other files send and receive the messages. */
#include "collectives/p2p/p2p_internal.h"

#include "collectives/control/control.h"
#include "collectives/engine/direct.h"
#include "collectives/p2p/p2p.h"

#include "core/clock.h"
#include "core/poison.h"
#include "transport/guarded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct engine_user user;
static const struct io_owner owner;

static struct p2p *p2p_of(struct engine *e)
{
	if (e->p2p)
		return e->p2p;
	struct p2p *p = calloc(1, sizeof *p);
	if (p)
		p->peers = calloc((size_t)e->config.size, sizeof(struct p2p_peer *));
	if (!p || !p->peers) {
		free(p);
		fail(TUTTI_ERR_MEMORY, "rank %d: no memory for point-to-point messages",
		     e->config.rank);
		return NULL;
	}
	p->engine = e;
	p->any.tail = &p->any.head;
	p->owner = &owner;
	p2p_stages_init(p);
	e->user = &user;
	return e->p2p = p;
}

static void p2p_free_peer(struct p2p_peer *peer)
{
	p2p_forget_unexpected(peer);
	if (peer->slots)
		free(peer->slots[0].data);
	free(peer->slots);
	if (peer->kept)
		free(peer->kept[0].data);
	free(peer->kept);
	free(peer);
}

static void p2p_init_peer(struct p2p_peer *peer, struct p2p *p, int rank)
{
	struct p2p_queue *queues[] = {&peer->outbox, &peer->requested, &peer->posted,
				      &peer->receiving};
	peer->p2p = p;
	peer->rank = rank;
	for (int i = 0; i < 4; i++)
		queues[i]->tail = &queues[i]->head;
	peer->unexpected_tail = &peer->unexpected;
}

/* NULL: the engine has failed. */
static struct p2p_peer *p2p_open_peer(struct p2p *p, int rank)
{
	struct engine *e = p->engine;
	if (p->peers[rank])
		return p->peers[rank];
	struct p2p_peer *peer = calloc(1, sizeof *peer);
	if (!peer) {
		fail(TUTTI_ERR_MEMORY, "rank %d has no memory for messages from and to rank %d",
		     e->config.rank, rank);
		engine_set_failure(e, TUTTI_ERR_MEMORY, FAILURE_NO_RANK, last_error());
		return NULL;
	}
	p2p_init_peer(peer, p, rank);
	if (rank != e->config.rank && !(peer->conn = engine_connect(e, rank, P2P_CHANNEL))) {
		free(peer);
		return NULL;
	}
	p->peers[rank] = peer;
	if (peer->conn)
		p2p_listen(peer);
	return peer;
}

static struct p2p_message *p2p_new_message(struct p2p *p)
{
	struct p2p_message *m = p->free_messages;
	if (m)
		p->free_messages = m->next;
	else if (!(m = malloc(sizeof *m)))
		return NULL;
	memset(m, 0, sizeof *m);
	return m;
}

static tutti_status p2p_begin_send(struct p2p *p, struct p2p_message *m)
{
	if (!(m->peer = p2p_open_peer(p, p2p_spec(m)->p2p.peer)))
		return engine_status(p->engine);
	p2p_push(&m->peer->outbox, m);
	p2p_send_on(m->peer);
	return TUTTI_OK;
}

/* A recv from TUTTI_ANY listens to all ranks. */
static tutti_status p2p_begin_recv(struct p2p *p, struct p2p_message *m)
{
	int rank = p2p_spec(m)->p2p.peer;
	m->stamp = ++p->stamp;
	if (rank != TUTTI_ANY && !(m->peer = p2p_open_peer(p, rank)))
		return engine_status(p->engine);
	for (int r = 0; rank == TUTTI_ANY && r < p->engine->config.size; r++)
		if (!p2p_open_peer(p, r))
			return engine_status(p->engine);
	p2p_post(m);
	return TUTTI_OK;
}

/* The mapping of a message's buffer, from or into which its data may go; NULL: it needs a copy in
 * host memory. A short message has one anyway, and a recv from any rank does not know by which wire
 * its message comes. */
static struct direct_map *p2p_take_map(struct engine *e, const struct task_spec *spec,
				       const struct p2p_message *m)
{
	int peer = spec->p2p.peer, kind = spec->memory->id;

	if (!spec->direct_kind || kind != spec->direct_kind || m->bytes <= P2P_EAGER_BYTES ||
	    peer == TUTTI_ANY || peer == e->config.rank ||
	    p2p_way_of(e, peer, kind) != P2P_BY_ADAPTERS)
		return NULL;
	return direct_take(e, spec->memory, m->buf, m->bytes);
}

static tutti_status p2p_begin(struct engine *e, struct tutti_work *work)
{
	const struct task_spec *spec = &work->spec;
	bool sends = spec->p2p.side == P2P_SEND;
	struct p2p *p = p2p_of(e);
	struct p2p_message *m = p ? p2p_new_message(p) : NULL;

	if (!m)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a %s", e->config.rank,
			    spec->name);
	work_task(work)->message = m;
	m->work = work;
	m->bytes = sends ? spec->send_bytes : spec->recv_bytes;
	m->buf = sends ? (uint8_t *)(uintptr_t)spec->args.send : spec->args.recv;
	m->is_staged = p2p_may_stage(e, spec);
	m->map = m->is_staged ? NULL : p2p_take_map(e, spec, m);
	TRY(bounce_prepare(
		e, work,
		(struct bounce_needs){.copies = !m->is_staged && !m->map, .is_early = !sends}));
	p2p_use_copies(m);
	m->is_ready = work->stage == WORK_RUNS;
	tutti_status status = sends ? p2p_begin_send(p, m) : p2p_begin_recv(p, m);
	/* engine_pass looks at stop after this and cleans up. */
	return e->failure.stop ? engine_status(e) : status;
}

static void p2p_prepared(struct engine *e, struct tutti_work *work)
{
	struct p2p_message *m = work_message(work);
	(void)e;

	m->is_ready = true;
	if (m->is_met) /* and has got host copies then */
		p2p_send_pieces(m);
	else
		p2p_send_on(m->peer);
}

static void p2p_work_released(struct engine *e, struct tutti_work *work)
{
	struct p2p_message *m = work_message(work);
	(void)e;

	if (m->is_staged && m->is_met)
		p2p_staged_on(m);
	else
		p2p_released(m);
}

/* A recv on the list of those that wait has met no message. */
static bool p2p_cancel(struct engine *e, struct tutti_work *work)
{
	struct p2p_message *m = work_message(work);
	struct p2p_queue *q = m->peer ? &m->peer->posted : &e->p2p->any;

	if (work->spec.p2p.side == P2P_SEND || !p2p_has(q, m))
		return false;
	p2p_remove(q, m);
	return true;
}

static void p2p_finish(struct engine *e, struct tutti_work *work)
{
	struct p2p_message *m = work_message(work);

	if (!m)
		return; /* it did not begin */
	direct_give(e, m->map);
	poison(m, sizeof *m);
	m->next = e->p2p->free_messages;
	e->p2p->free_messages = m;
	work_task(work)->message = NULL;
}

static void p2p_io_done(struct engine *e, struct engine_io *io)
{
	struct p2p_io *own = (struct p2p_io *)io;
	(void)e;
	if (own->what == P2P_COPY) {
		p2p_copied(own);
		return;
	}
	own->peer->is_up = true;
	if (own->what == P2P_MAIL_IN) {
		own->peer->awaits_mail = false;
		p2p_take_mail(own->peer);
	} else if (own->what == P2P_HEADER_IN)
		p2p_heard(own->peer);
	else if (own->what == P2P_PAYLOAD_IN)
		p2p_landed(own->peer);
	else
		p2p_sent(own);
}

static void p2p_lose_leg(struct p2p_leg *leg)
{
	leg->flying--;
	if (leg->message->is_misfit)
		p2p_end_misfit(leg->message);
}

/* A lost peer is a failure only for calls that wait for it. A message that was done for its caller
 * and is lost for another reason is a failure of the communicator. */
static void p2p_io_failed(struct engine *e, struct engine_io *io)
{
	struct p2p_io *own = (struct p2p_io *)io;
	struct p2p_peer *peer = own->peer;
	tutti_status status = io->op.io.status;

	if (own->what == P2P_COPY) {
		const struct p2p_leg *leg = own->of;
		engine_fail_in(e, leg->message->work, status,
			       engine_queue_error(e, memory_kind(TUTTI_MEMORY_CUDA), status));
		return;
	}
	p2p_take_mail(peer); /* what it has sent before */
	p2p_lose(peer, &io->op.io);
	if (own->what == P2P_MESSAGE_OUT)
		p2p_lose_leg(own->of);
	else if (own->what != P2P_HEADER_IN && own->what != P2P_PAYLOAD_IN &&
		 own->what != P2P_MAIL_IN)
		p2p_sent(own);
	bool is_late = status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT;
	if (!is_late || (own->what == P2P_SLOT_OUT && status != TUTTI_ERR_PEER))
		engine_set_failure(e, status, FAILURE_NO_RANK, peer->why);
}

static bool p2p_is_drained(struct engine *e)
{
	const struct p2p *p = e->p2p;
	if (p->unsent == 0)
		return true;
	/* In the simulator only engine_progress moves the engine, so there is nothing to wait for.
	 */
	return e->config.now_ns || clock_now_ns() >= p->unsent_until_ns;
}

static bool p2p_any_leaving(const struct p2p *p)
{
	for (int r = 0; r < p->engine->config.size; r++)
		if (p->peers[r] && p->peers[r]->leaving.is_flying)
			return true;
	return false;
}

static void p2p_say_goodbye(struct p2p *p)
{
	for (int r = 0; r < p->engine->config.size && !p->engine->failure.stop; r++) {
		struct p2p_peer *peer = p->peers[r];
		if (peer && peer->conn && peer->is_up && !p2p_is_gone(peer))
			p2p_note(peer, &peer->leaving, P2P_LEAVING);
	}
}

static void p2p_disconnect(struct p2p *p)
{
	for (int r = 0; r < p->engine->config.size; r++) {
		struct p2p_peer *peer = p->peers[r];
		if (!peer || !peer->conn)
			continue;
		transport_close(peer->conn);
		peer->conn = NULL;
	}
}

static void p2p_close_all(struct engine *e)
{
	struct p2p *p = e->p2p;

	p2p_disconnect(p);
	for (int r = 0; r < e->config.size; r++)
		if (p->peers[r]) {
			p2p_free_peer(p->peers[r]);
			p->peers[r] = NULL;
		}
	p->any = (struct p2p_queue){NULL, &p->any.head};
	p->staging = (struct p2p_queue){NULL, &p->staging.head};
	p->unsent = 0;
	if (e->loose)
		atomic_fetch_sub(&e->help.async_works, 1);
	e->loose = 0;
}

static void p2p_leave(struct engine *e)
{
	uint64_t deadline = deadline_after_ms(LEAVING_MS);
	struct wait w;

	wait_begin(&w, e->config.policy);
	engine_lock(e);
	if (!e->failure.stop)
		p2p_say_goodbye(e->p2p);
	while (!e->failure.stop && !e->config.now_ns && p2p_any_leaving(e->p2p) &&
	       clock_now_ns() < deadline) {
		if (engine_pass(e, false) || wait_again(&w))
			continue;
		engine_unlock(e);
		engine_sleep(e);
		engine_lock(e);
	}
	if (!e->failure.is_clean)
		p2p_close_all(e);
	engine_unlock(e);
}

static void p2p_free_all(struct engine *e)
{
	struct p2p *p = e->p2p;

	while (p->free_messages) {
		struct p2p_message *m = p->free_messages;
		p->free_messages = m->next;
		free(m);
	}
	while (p->free_arrivals) {
		struct p2p_arrival *a = p->free_arrivals;
		p->free_arrivals = a->next;
		free(a);
	}
	free(p->peers);
	free(p);
	e->user = NULL;
	e->p2p = NULL;
}

bool p2p_at_once(struct engine *e, const struct send_recv *m, bool *may_come)
{
	struct p2p_peer *peer = e->p2p && m->peer >= 0 ? e->p2p->peers[m->peer] : NULL;

	*may_come = false;
	if (!peer || !peer->conn || p2p_is_gone(peer))
		return false;
	if (m->side == P2P_RECV)
		return p2p_recv_at_once(peer, m, may_come);
	return !peer->outbox.head && p2p_mail_put(peer, m->buf, m->bytes, m->dtype, m->tag);
}

static const struct engine_user user = {.is_drained = p2p_is_drained,
					.leave = p2p_leave,
					.close = p2p_close_all,
					.free = p2p_free_all};

static const struct io_owner owner = {.done = p2p_io_done, .failed = p2p_io_failed};

const struct task_kind p2p_tasks = {.begin = p2p_begin,
				    .prepared = p2p_prepared,
				    .released = p2p_work_released,
				    .finish = p2p_finish,
				    .explain = p2p_explain,
				    .words = p2p_in_words,
				    .cancel = p2p_cancel,
				    .why = p2p_why};
