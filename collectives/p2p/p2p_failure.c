/* Failures between two ranks: peers that are gone, a send and a recv that do not fit,
 * nonsense; and how sends and recvs are put into words. */
#include "collectives/p2p/p2p_internal.h"

#include "core/log.h"
#include "core/rank_list.h"
#include "core/memory/dtype.h"

#include <stdio.h>

/* Two lists of ranks and the reason of the last one: with room for eight ranks or so in each, that
 * is about the length which engine_in_words leaves for them. */
#define RANKS_BYTES 84
#define GONE_BYTES  (RANKS_BYTES + 60)
#define WHY_BYTES   (2 * GONE_BYTES + 200)

bool p2p_is_gone(const struct p2p_peer *peer)
{
	return peer->is_lost || peer->has_left;
}

static bool p2p_failure_all_gone(const struct p2p *p)
{
	for (int r = 0; r < p->engine->config.size; r++)
		if (r != p->engine->config.rank && (!p->peers[r] || !p2p_is_gone(p->peers[r])))
			return false;
	return p->engine->config.size > 1;
}

/* The peer because of which m cannot end any more, or NULL. A recv from any rank goes on when a
 * rank has left in peace or never spoke here, as long as another one is there; but not when a
 * rank that spoke has died. */
static struct p2p_peer *p2p_failure_waits_in_vain(const struct p2p *p, const struct p2p_message *m)
{
	struct p2p_peer *last = NULL;
	if (m->is_misfit)
		return NULL; /* it ends when the io of its answer has ended */
	if (m->peer)
		return p2p_is_gone(m->peer) ? m->peer : NULL;
	for (int r = 0; r < p->engine->config.size; r++) {
		struct p2p_peer *peer = p->peers[r];
		if (!peer || !p2p_is_gone(peer))
			continue;
		if (!last || !peer->has_left)
			last = peer;
		if (peer->is_heard && !peer->has_left)
			return peer;
	}
	return p2p_failure_all_gone(p) ? last : NULL;
}

/* "ranks 1, 3 have left": those that said so, or those that did not. Returns how many. */
static int p2p_failure_list_gone(const struct p2p *p, bool has_left, char *text, size_t text_bytes)
{
	char ranks[RANKS_BYTES];
	struct rank_list list;

	rank_list_begin(&list, ranks, sizeof ranks);
	for (int r = 0; r < p->engine->config.size; r++) {
		const struct p2p_peer *peer = p->peers[r];
		if (r != p->engine->config.rank && peer && peer->has_left == has_left)
			rank_list_add(&list, r);
	}
	snprintf(text, text_bytes, "%s %s", rank_list_end(&list),
		 has_left ? (list.count > 1 ? "have left the communicator (tutti_comm_destroy)"
					    : "has left the communicator (tutti_comm_destroy)")
		 : list.count > 1 ? "have closed their connections"
				  : "has closed its connection");
	return list.count;
}

/* Why a recv from any rank fails: the names of all ranks, and how the last of them was lost. */
static void p2p_failure_nobody_left(const struct p2p_peer *last, char *why, size_t why_bytes)
{
	char left[GONE_BYTES] = "", lost[GONE_BYTES] = "";
	int n = p2p_failure_list_gone(last->p2p, true, left, sizeof left);
	int m = p2p_failure_list_gone(last->p2p, false, lost, sizeof lost);

	if (m == 0)
		snprintf(why, why_bytes, "no rank is left that could send: %s", left);
	else
		snprintf(why, why_bytes, "no rank is left that could send: %s%s%s (%.150s)",
			 n ? left : "", n ? "; " : "", lost, last->why);
}

static void p2p_failure_fail_for(struct p2p_peer *peer, const struct tutti_work *work)
{
	struct engine *e = p2p_engine(peer);
	char why[WHY_BYTES];

	if (!work_message(work)->peer && p2p_failure_all_gone(peer->p2p))
		p2p_failure_nobody_left(peer, why, sizeof why);
	else if (peer->has_left)
		snprintf(why, sizeof why, "rank %d has left the communicator (tutti_comm_destroy)",
			 peer->rank);
	else
		snprintf(why, sizeof why, "%s", peer->why);
	if (peer->has_left && e->config.control)
		control_hear_first(e->config.control, peer->rank);
	if (peer->has_left)
		engine_fail_in(e, work, TUTTI_ERR_PEER, why);
	else
		engine_lost(e, work, peer->rank, peer->status, why);
}

void p2p_check_gone(struct p2p *p)
{
	struct p2p_peer *peer = NULL;
	struct tutti_work *oldest = NULL;

	if (!p->any_gone)
		return;
	for (struct tutti_work *work = p->engine->works.newest; work; work = work->next) {
		const struct p2p_message *m = work_message(work);
		struct p2p_peer *gone =
			m && work->stage != WORK_CLEANS_UP ? p2p_failure_waits_in_vain(p, m) : NULL;
		if (!gone)
			continue;
		peer = gone;
		oldest = work;
	}
	if (peer)
		p2p_failure_fail_for(peer, oldest);
}

void p2p_lose(struct p2p_peer *peer, const struct tutti_io *io)
{
	if (peer->is_lost)
		return;
	peer->is_lost = peer->p2p->any_gone = true;
	peer->status = io->status;
	snprintf(peer->why, sizeof peer->why, "%s",
		 io->conn->status != TUTTI_OK ? io->conn->error : tutti_status_string(io->status));
	p2p_check_gone(peer->p2p);
}

void p2p_nonsense(struct p2p_peer *peer, const char *what)
{
	char text[200];
	snprintf(text, sizeof text, "rank %d: rank %d sent %s: point-to-point messages are broken",
		 p2p_engine(peer)->config.rank, peer->rank, what);
	engine_set_failure(p2p_engine(peer), TUTTI_ERR_INTERNAL, FAILURE_NO_RANK, text);
}

void p2p_end_misfit(struct p2p_message *m)
{
	if (p2p_is_flying(m))
		return;
	p2p_name_source(m, m->work->spec.p2p.peer);
	engine_work_failed(m->work->engine, m->work, TUTTI_ERR_MISMATCH);
}

void p2p_misfit(struct p2p_message *m, struct p2p_peer *peer, const struct p2p_header *other)
{
	struct p2p_args *args = &m->work->spec.p2p;

	m->is_misfit = true;
	args->peer = peer->rank;
	args->other_count = other->count;
	args->other_dtype = other->dtype;
	p2p_end_misfit(m);
}

struct shape {
	uint64_t count;
	uint32_t dtype;
};

/* A send or recv of this rank, and the peer's call that it has met. */
struct misfit {
	bool sends;
	int peer, tag;
	struct shape own, other;
};

/* The same message on both ranks. */
static void p2p_failure_misfit_words(const struct engine *e, const struct misfit *m, char *text,
				     size_t text_bytes)
{
	const struct shape *send = m->sends ? &m->own : &m->other;
	const struct shape *recv = m->sends ? &m->other : &m->own;
	const char *name = e->config.name;

	snprintf(text, text_bytes,
		 "rank %d called send(%s, %llu, tag %d) to rank %d%s%s, which called recv(%s, "
		 "%llu, tag %d) for it: count and dtype of both must be equal",
		 m->sends ? e->config.rank : m->peer, dtype_name((tutti_dtype)send->dtype),
		 (unsigned long long)send->count, m->tag, m->sends ? m->peer : e->config.rank,
		 name[0] ? " of " : "", name, dtype_name((tutti_dtype)recv->dtype),
		 (unsigned long long)recv->count, m->tag);
}

void p2p_say_unfit(const struct p2p_peer *peer, const struct p2p_header *send,
		   const struct p2p_header *recv)
{
	char text[320];

	p2p_failure_misfit_words(p2p_engine(peer),
				 &(struct misfit){true,
						  peer->rank,
						  send->tag,
						  {send->count, send->dtype},
						  {recv->count, recv->dtype}},
				 text, sizeof text);
	log_notice("%s; the send had ended with TUTTI_OK", text);
}

/* Tags below 0 are those of comm_create_from, whose messages callers do not know. */
static void p2p_failure_call_words(const struct tutti_work *work, enum p2p_side side, char *text,
				   size_t bytes)
{
	const struct task_spec *spec = &work->spec;

	if (spec->p2p.tag < 0) {
		snprintf(text, bytes, "%s (tag %d)", spec->name, -1 - spec->p2p.tag);
		return;
	}
	snprintf(text, bytes, "%s%s(%s, %zu, tag %d)", spec->captured ? "captured " : "",
		 side == P2P_SEND ? "send" : "recv", dtype_name(spec->args.dtype), spec->args.count,
		 spec->p2p.tag);
}

static const char *p2p_failure_peer_words(const struct tutti_work *work, char *text, size_t bytes)
{
	int peer = work->spec.p2p.peer;
	if (peer == TUTTI_ANY)
		snprintf(text, bytes, "any rank");
	else if (peer == work->engine->config.rank)
		snprintf(text, bytes, "rank %d itself", peer);
	else
		snprintf(text, bytes, "rank %d", peer);
	return text;
}

const char *p2p_in_words(const struct tutti_work *work, char *text, size_t text_bytes)
{
	char call[80], peer[40];
	enum p2p_side side = work->spec.p2p.side;
	p2p_failure_call_words(work, side, call, sizeof call);
	const char *name = work->engine->config.name;
	const char *with = work->spec.p2p.tag < 0 ? "with" : side == P2P_SEND ? "to" : "from";
	snprintf(text, text_bytes, "%s %s %s%s%s", call, with,
		 p2p_failure_peer_words(work, peer, sizeof peer), name[0] ? " of " : "", name);
	return text;
}

void p2p_why(const struct tutti_work *work, char *text, size_t text_bytes)
{
	const struct task_spec *spec = &work->spec;
	char call[140];

	if (work->own_status == TUTTI_ERR_MISMATCH)
		p2p_failure_misfit_words(
			work->engine,
			&(struct misfit){spec->p2p.side == P2P_SEND,
					 spec->p2p.peer,
					 spec->p2p.tag,
					 {spec->args.count, spec->args.dtype},
					 {spec->p2p.other_count, spec->p2p.other_dtype}},
			text, text_bytes);
	else
		snprintf(text, text_bytes, "rank %d: %s was cancelled (tutti_work_cancel)",
			 work->engine->config.rank, p2p_in_words(work, call, sizeof call));
}

int p2p_explain(struct engine *e, const struct tutti_work *work, char *text, size_t text_bytes)
{
	const struct p2p_message *m = work_message(work);
	bool sends = work->spec.p2p.side == P2P_SEND;
	char other[80], peer[40];
	(void)e;

	p2p_failure_call_words(work, sends ? P2P_RECV : P2P_SEND, other, sizeof other);
	p2p_failure_peer_words(work, peer, sizeof peer);
	if (sends && p2p_is_self(m->peer))
		snprintf(text, text_bytes,
			 "for %s of its own: post the recv first, or put both into a group", other);
	else if (m->is_met)
		snprintf(text, text_bytes, "%s rank %d: %zu of %zu bytes are through; is it alive?",
			 sends ? "to send to" : "for the data of", m->peer->rank, m->moved,
			 m->bytes);
	else
		snprintf(text, text_bytes, "for %s %s %s; is it alive, and does it make that call?",
			 other, sends ? "on" : "from", peer);
	return work->spec.p2p.peer;
}
