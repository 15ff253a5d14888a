/* Receiving on a channel: a header is always posted, and a payload when the header before it has
 * announced one. The payload lands in the buffer of its recv, or in its slot. Which message is for
 * which recv: by (peer, tag), in the order in which messages were sent and recvs were posted. */
#include "collectives/engine/direct.h"
#include "collectives/p2p/p2p_internal.h"
#include "core/memory/dtype.h"
#include "core/poison.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int64_t p2p_receive_key_of(const struct p2p_message *m)
{
	return p2p_key(p2p_spec(m)->p2p.tag, p2p_spec(m)->captured != NULL);
}

static struct p2p_message *p2p_first_of(const struct p2p_queue *q, int64_t key)
{
	struct p2p_message *m = q->head;
	while (m && p2p_receive_key_of(m) != key)
		m = m->next;
	return m;
}

/* The recv that a message is for, taken off its list; NULL if there is none yet. */
static struct p2p_message *p2p_find_recv(struct p2p_peer *peer, int64_t key)
{
	struct p2p_message *m = p2p_first_of(&peer->posted, key);
	struct p2p_message *any = p2p_first_of(&peer->p2p->any, key);

	if (any && (!m || any->stamp < m->stamp)) {
		p2p_remove(&peer->p2p->any, any);
		return any;
	}
	if (m)
		p2p_remove(&peer->posted, m);
	return m;
}

static bool p2p_fits(const struct p2p_message *m, const struct p2p_header *h)
{
	const struct task_spec *spec = p2p_spec(m);
	return h->count == spec->args.count && h->dtype == (uint32_t)spec->args.dtype;
}

static struct p2p_arrival *p2p_match_keep(struct p2p_peer *peer, struct p2p_arrival *a,
					  const struct p2p_header *h)
{
	uint8_t *data = a->data;
	*a = (struct p2p_arrival){.peer = peer, .header = *h, .data = data, .is_used = true};
	a->stamp = ++peer->p2p->stamp;
	*peer->unexpected_tail = a;
	peer->unexpected_tail = &a->next;
	return a;
}

static bool p2p_receive_make_kept(struct p2p_peer *peer)
{
	struct p2p_arrival *kept = calloc(P2P_SLOTS, sizeof *kept);
	uint8_t *data = kept ? malloc(p2p_slot_offset(P2P_SLOTS)) : NULL;

	if (!data) {
		free(kept);
		fail(TUTTI_ERR_MEMORY,
		     "rank %d has no memory for messages of rank %d that no recv has asked for yet",
		     p2p_engine(peer)->config.rank, peer->rank);
		engine_set_failure(p2p_engine(peer), TUTTI_ERR_MEMORY, FAILURE_NO_RANK,
				   last_error());
		return false;
	}
	for (uint32_t i = 0; i < P2P_SLOTS; i++)
		kept[i].data = data + p2p_slot_offset(i);
	peer->kept = kept;
	return true;
}

/* The slot is free: the sender uses a slot again only when it was given back. */
static struct p2p_arrival *p2p_keep_eager(struct p2p_peer *peer, const struct p2p_header *h)
{
	if (!peer->kept && !p2p_receive_make_kept(peer))
		return NULL;
	assert(!peer->kept[h->id].is_used);
	return p2p_match_keep(peer, &peer->kept[h->id], h);
}

static struct p2p_arrival *p2p_keep_request(struct p2p_peer *peer, const struct p2p_header *h)
{
	struct p2p *p = peer->p2p;
	struct p2p_arrival *a = p->free_arrivals;

	if (peer->requests == P2P_REQUESTS) {
		p2p_nonsense(peer, "more requests than a rank may have");
		return NULL;
	}
	if (a)
		p->free_arrivals = a->next;
	else
		a = malloc(sizeof *a);
	if (!a) {
		fail(TUTTI_ERR_MEMORY, "rank %d has no memory for the requests of rank %d",
		     p->engine->config.rank, peer->rank);
		engine_set_failure(p->engine, TUTTI_ERR_MEMORY, FAILURE_NO_RANK, last_error());
		return NULL;
	}
	a->data = NULL;
	peer->requests++;
	return p2p_match_keep(peer, a, h);
}

static void p2p_receive_take_off(struct p2p_arrival *a)
{
	struct p2p_peer *peer = a->peer;
	struct p2p_arrival **at = &peer->unexpected;
	while (*at != a)
		at = &(*at)->next;
	if (!(*at = a->next))
		peer->unexpected_tail = at;
}

/* Of the mailbox: its memory is its own. */
static bool p2p_receive_is_mail(const struct p2p_arrival *a)
{
	return a->header.kind == P2P_EAGER && a->header.id == P2P_BY_MAIL;
}

/* An eager one belongs to its slot. */
static void p2p_match_forget(struct p2p_arrival *a)
{
	struct p2p *p = a->peer->p2p;
	if (p2p_receive_is_mail(a)) {
		free(a);
		return;
	}
	if (a->data)
		return;
	a->peer->requests--;
	poison(a, sizeof *a);
	a->next = p->free_arrivals;
	p->free_arrivals = a;
}

void p2p_forget_unexpected(struct p2p_peer *peer)
{
	while (peer->unexpected) {
		struct p2p_arrival *a = peer->unexpected;
		p2p_receive_take_off(a);
		p2p_match_forget(a);
	}
}

/* recv has another count or dtype than the message h, whose sender is told. */
static void p2p_refuse(struct p2p_message *recv, struct p2p_peer *peer, const struct p2p_header *h)
{
	struct p2p_header own =
		p2p_header_of(recv, h->kind == P2P_EAGER ? P2P_UNFIT : P2P_MISMATCH, h->id);

	recv->peer = peer;
	if (own.kind == P2P_UNFIT && own.id == P2P_BY_MAIL) {
		own.bytes = h->bytes;
		own.mail_dtype = (uint8_t)h->dtype;
	}
	if (!p2p_is_gone(peer) && !p2p_is_self(peer))
		p2p_send_this_header(recv, &own);
	p2p_misfit(recv, peer, h);
}

/* Eager, unwanted: the slot is free once it has landed. */
static void p2p_drop(struct p2p_arrival *a)
{
	a->is_unwanted = true;
	if (!a->has_landed)
		return;
	a->is_used = false;
	p2p_give_back(a->peer, a->header.id);
}

static void p2p_receive_meet_misfit(struct p2p_message *m, struct p2p_arrival *a)
{
	struct p2p_header own = p2p_header_of(m, P2P_MISMATCH, 0);

	if (a->own)
		p2p_misfit(a->own, a->peer, &own);
	p2p_refuse(m, a->peer, &a->header);
	if (a->data)
		p2p_drop(a);
}

static void p2p_receive_copy(struct p2p_message *m, const void *data)
{
	if (!p2p_unstage(m))
		return;
	if (m->bytes)
		memcpy(m->buf, data, m->bytes);
	m->moved = m->bytes;
	m->is_met = false; /* on no list */
	p2p_receive_on(m);
}

/* Eager, copied: its place is the sender's again. */
static void p2p_receive_return(struct p2p_arrival *a)
{
	a->is_used = false;
	p2p_give_back(a->peer, a->header.id);
	p2p_match_forget(a);
}

/* Eager, landed: copies. */
static void p2p_hand_over(struct p2p_arrival *a, struct p2p_message *m)
{
	p2p_receive_copy(m, a->data);
	p2p_receive_return(a);
}

/* m is on no list, a is kept. */
static void p2p_meet(struct p2p_message *m, struct p2p_arrival *a)
{
	struct p2p_peer *peer = a->peer;

	p2p_receive_take_off(a);
	if (!p2p_fits(m, &a->header)) {
		p2p_receive_meet_misfit(m, a);
		p2p_match_forget(a);
		return;
	}
	m->peer = peer;
	if (a->data) {
		a->taker = m;
		if (a->has_landed)
			p2p_hand_over(a, m);
		else if (peer->is_lost)
			p2p_check_gone(peer->p2p);
		return;
	}
	if (a->own) {
		p2p_receive_copy(m, a->own->buf);
		p2p_done(a->own);
	} else if (p2p_is_gone(peer)) {
		p2p_check_gone(peer->p2p);
	} else {
		m->is_met = true;
		p2p_send_clear(m, &a->header);
	}
	p2p_match_forget(a);
}

static struct p2p_arrival *p2p_receive_find_arrival(const struct p2p_peer *peer, int64_t key)
{
	struct p2p_arrival *a = peer ? peer->unexpected : NULL;
	while (a && p2p_key_of(&a->header) != key)
		a = a->next;
	return a;
}

/* The oldest, so no sender waits for ever. */
static struct p2p_arrival *p2p_receive_find_any_arrival(const struct p2p *p, int64_t key)
{
	struct p2p_arrival *first = NULL;
	for (int r = 0; r < p->engine->config.size; r++) {
		struct p2p_arrival *a = p2p_receive_find_arrival(p->peers[r], key);
		if (a && (!first || a->stamp < first->stamp))
			first = a;
	}
	return first;
}

void p2p_post(struct p2p_message *m)
{
	struct p2p *p = m->work->engine->p2p;
	struct p2p_peer *peer = m->peer;
	int64_t key = p2p_receive_key_of(m);
	struct p2p_arrival *a =
		peer ? p2p_receive_find_arrival(peer, key) : p2p_receive_find_any_arrival(p, key);

	if (a) {
		p2p_meet(m, a);
		return;
	}
	p2p_push(peer ? &peer->posted : &p->any, m);
	if (!peer || p2p_is_gone(peer))
		p2p_check_gone(p);
}

void p2p_send_self(struct p2p_message *m)
{
	struct p2p_peer *peer = m->peer;
	struct p2p_header h = p2p_header_of(m, P2P_EAGER, 0);
	struct p2p_message *recv = p2p_find_recv(peer, p2p_key_of(&h));
	struct p2p_slot *slot;

	if (recv && !p2p_fits(recv, &h)) {
		struct p2p_header other = p2p_header_of(recv, P2P_MISMATCH, 0);
		p2p_misfit(recv, peer, &h);
		p2p_misfit(m, peer, &other);
	} else if (recv) {
		recv->peer = peer;
		p2p_receive_copy(recv, m->buf);
		p2p_done(m);
	} else if ((slot = p2p_take_slot(peer, m->bytes))) {
		h.id = p2p_slot_id(slot, peer);
		slot->is_lent = true;
		struct p2p_arrival *a = p2p_keep_eager(peer, &h);
		if (!a)
			return;
		if (m->bytes)
			memcpy(a->data, m->buf, m->bytes);
		a->has_landed = true;
		p2p_done(m);
	} else {
		struct p2p_arrival *a = p2p_keep_request(peer, &h);
		if (a)
			a->own = m;
	}
}

static void p2p_receive_mail_taken(struct p2p_peer *peer)
{
	peer->mailbox_received++;
	peer->is_up = peer->is_heard = true;
}

/* No recv matches it, or one of another count or dtype does (m). */
static bool p2p_receive_mail_keep(struct p2p_peer *peer, struct mailbox_reader *box,
				  const struct mail *mail, const struct p2p_header *h,
				  struct p2p_message *m)
{
	struct engine *e = p2p_engine(peer);
	struct p2p_arrival *a = malloc(sizeof *a + mail->bytes);

	if (!a) {
		fail(TUTTI_ERR_MEMORY,
		     "rank %d has no memory for messages of rank %d that no recv has asked for yet",
		     e->config.rank, peer->rank);
		engine_set_failure(e, TUTTI_ERR_MEMORY, FAILURE_NO_RANK, last_error());
		return false;
	}
	a->data = (uint8_t *)(a + 1);
	mailbox_take(box, mail, a->data);
	p2p_match_keep(peer, a, h)->has_landed = true;
	if (m)
		p2p_meet(m, a);
	return true;
}

static bool p2p_receive_mail_meet(struct p2p_peer *peer, struct mailbox_reader *box,
				  const struct mail *mail, struct p2p_message *m)
{
	m->peer = peer;
	if (!p2p_unstage(m))
		return false;
	mailbox_take(box, mail, m->buf);
	mailbox_deliver(box);
	m->moved = m->bytes;
	p2p_receive_on(m);
	return true;
}

/* The message is the next one of all. */
static bool p2p_receive_mail_is_next(const struct p2p_peer *peer, const struct mail *mail)
{
	return mail->after == peer->headers_received && !peer->lands_in && !peer->lands_at;
}

/* EMPTY: or the engine has failed. HELD: p2p_take_mail is called again when its turn has come. */
enum mail_look { MAIL_EMPTY, MAIL_HELD, MAIL_TAKEN };

static enum mail_look p2p_receive_mail_take_one(struct p2p_peer *peer)
{
	struct mailbox_reader *box = peer->conn ? shm_mail_reader(peer->conn) : NULL;
	struct mail mail;

	if (p2p_engine(peer)->failure.stop || !box || !mailbox_peek(box, &mail))
		return MAIL_EMPTY;
	if (!p2p_receive_mail_is_next(peer, &mail))
		return MAIL_HELD;
	size_t element = dtype_bytes((tutti_dtype)mail.dtype);
	if (!element || mail.bytes % element) {
		p2p_nonsense(peer, "a short message whose dtype or length is out of range");
		return MAIL_EMPTY;
	}
	struct p2p_header h = {.kind = P2P_EAGER,
			       .tag = mail.tag,
			       .dtype = mail.dtype,
			       .id = P2P_BY_MAIL,
			       .count = mail.bytes / element,
			       .bytes = mail.bytes};
	struct p2p_message *m = p2p_find_recv(peer, p2p_key_of(&h));
	p2p_receive_mail_taken(peer);
	bool is_taken = m && p2p_fits(m, &h) ? p2p_receive_mail_meet(peer, box, &mail, m)
					     : p2p_receive_mail_keep(peer, box, &mail, &h, m);
	return is_taken ? MAIL_TAKEN : MAIL_EMPTY;
}

void p2p_take_mail(struct p2p_peer *peer)
{
	enum mail_look look;

	while ((look = p2p_receive_mail_take_one(peer)) == MAIL_TAKEN)
		continue;
	if (look == MAIL_HELD || peer->awaits_mail || !peer->conn || peer->is_lost)
		return;
	p2p_ready_io(&peer->mail_in, P2P_MAIL_IN, peer, NULL);
	peer->awaits_mail = shm_mail_await(peer->conn, &peer->mail_in.base.op.io);
}

/* Takes mailbox messages until so many have been taken. */
static bool p2p_receive_mail_up_to(struct p2p_peer *peer, uint32_t after)
{
	while (peer->mailbox_received != after)
		if (p2p_receive_mail_take_one(peer) != MAIL_TAKEN) {
			p2p_nonsense(peer,
				     "a header that counts more mailbox messages than have come");
			return false;
		}
	return true;
}

static void p2p_receive_complete(struct p2p_peer *peer, const struct send_recv *m)
{
	engine_add_traffic(&p2p_engine(peer)->traffic.received_bytes, m->bytes);
	if (m->source)
		*m->source = peer->rank;
}

/* The message came before its recv. False: it has to be fetched, or does not fit. */
static bool p2p_receive_kept_at_once(struct p2p_arrival *a, const struct send_recv *m)
{
	if (!a->data || !a->has_landed || a->header.count != m->count ||
	    a->header.dtype != (uint32_t)m->dtype)
		return false;
	p2p_receive_take_off(a);
	if (m->bytes)
		memcpy(m->buf, a->data, m->bytes);
	p2p_receive_complete(a->peer, m);
	p2p_receive_return(a);
	return true;
}

/* Not while a recv is posted that may match the next message first. */
bool p2p_recv_at_once(struct p2p_peer *peer, const struct send_recv *m, bool *may_come)
{
	struct engine *e = p2p_engine(peer);
	struct mailbox_reader *box = shm_mail_reader(peer->conn);
	struct p2p_arrival *a;
	struct mail mail;

	if (!box || peer->posted.head || peer->p2p->any.head)
		return false;
	if (peer->unexpected && (a = p2p_receive_find_arrival(peer, p2p_key(m->tag, false))))
		return p2p_receive_kept_at_once(a, m);
	if (!mailbox_peek(box, &mail)) {
		*may_come = m->bytes <= MAILBOX_MESSAGE_BYTES && peer->mailbox_received &&
			    !e->loose && !e->works.newest;
		return false;
	}
	if (!p2p_receive_mail_is_next(peer, &mail) || mail.tag != m->tag ||
	    mail.dtype != (uint32_t)m->dtype || mail.bytes != m->bytes)
		return false;
	mailbox_take(box, &mail, m->buf);
	mailbox_deliver(box);
	p2p_receive_mail_taken(peer);
	p2p_receive_complete(peer, m);
	return true;
}

void p2p_listen(struct p2p_peer *peer)
{
	p2p_ready_io(&peer->header_in, P2P_HEADER_IN, peer, NULL);
	p2p_ready_io(&peer->payload_in, P2P_PAYLOAD_IN, peer, NULL);
	p2p_post_io(peer, &peer->header_in, false, &peer->in, sizeof peer->in);
	p2p_take_mail(peer);
}

/* The transport keeps the order: the next header ends after this payload. */
static void p2p_receive_land(struct p2p_peer *peer, void *buf, size_t bytes)
{
	if (bytes)
		p2p_post_io(peer, &peer->payload_in, false, buf, bytes);
	else
		p2p_landed(peer);
}

/* The bytes of an adapter are there for the device. */
static bool p2p_receive_has_come(const struct p2p_message *m)
{
	return !m->map || p2p_spec(m)->memory->landed(m->buf + m->moved) == TUTTI_OK;
}

static void p2p_receive_end_landing(struct p2p_peer *peer)
{
	struct p2p_message *m = peer->lands_in;
	struct p2p_arrival *a = peer->lands_at;

	peer->lands_in = NULL;
	peer->lands_at = NULL;
	if (m && !p2p_receive_has_come(m)) {
		engine_fail_in(p2p_engine(peer), m->work, TUTTI_ERR_DEVICE, last_error());
		return;
	}
	if (m) {
		m->moved += peer->payload_in.base.op.io.bytes;
		p2p_receive_on(m);
		return;
	}
	a->has_landed = true;
	if (a->taker)
		p2p_hand_over(a, a->taker);
	else if (a->is_unwanted)
		p2p_drop(a);
}

void p2p_landed(struct p2p_peer *peer)
{
	p2p_receive_end_landing(peer);
	p2p_take_mail(peer);
}

static bool p2p_receive_is_sound(const struct p2p_header *h)
{
	size_t element = dtype_bytes((tutti_dtype)h->dtype);
	return element && h->is_captured <= 1 && h->count <= (size_t)PTRDIFF_MAX / element &&
	       h->bytes == h->count * element;
}

/* Used, or free but not yet told to the sender. */
static bool p2p_receive_is_lent(const struct p2p_peer *peer, uint32_t slot)
{
	return peer->is_returned[slot] || (peer->kept && peer->kept[slot].is_used);
}

static void p2p_receive_take_eager(struct p2p_peer *peer, const struct p2p_header *h)
{
	if (!p2p_receive_is_sound(h) || h->id >= P2P_SLOTS ||
	    h->bytes > p2p_classes[p2p_class_of(h->id)].bytes) {
		p2p_nonsense(peer,
			     "a short message whose dtype, count, tag or slot is out of range");
		return;
	}
	if (p2p_receive_is_lent(peer, h->id)) {
		p2p_nonsense(peer, "a message in a slot that it has not got back");
		return;
	}
	struct p2p_message *m = p2p_find_recv(peer, p2p_key_of(h));
	peer->payload_in.base.op.io.bytes = h->bytes;
	if (m && p2p_fits(m, h)) {
		m->peer = peer;
		peer->lands_in = m;
		p2p_give_back(peer, h->id);
		p2p_receive_land(peer, m->buf, h->bytes);
		return;
	}
	struct p2p_arrival *a = peer->lands_at = p2p_keep_eager(peer, h);
	if (!a)
		return;
	if (m)
		p2p_meet(m, a);
	p2p_receive_land(peer, a->data, h->bytes);
}

static void p2p_receive_take_request(struct p2p_peer *peer, const struct p2p_header *h)
{
	if (!p2p_receive_is_sound(h)) {
		p2p_nonsense(peer, "a request whose dtype, count or tag is out of range");
		return;
	}
	struct p2p_message *m = p2p_find_recv(peer, p2p_key_of(h));
	if (!m) {
		p2p_keep_request(peer, h);
	} else if (p2p_fits(m, h)) {
		m->peer = peer;
		m->is_met = true;
		p2p_send_clear(m, h);
	} else {
		p2p_refuse(m, peer, h);
	}
}

static void p2p_receive_take_data(struct p2p_peer *peer, const struct p2p_header *h)
{
	struct p2p_message *m = p2p_find_id(&peer->receiving, h->id);
	/* Into stages it comes otherwise; into mapped memory not before it was asked for. */
	bool is_asked = m && !m->is_staged && !(m->map && m->work->bounce.is_held);
	if (!is_asked || h->bytes == 0 || h->bytes > m->bytes - m->moved) {
		p2p_nonsense(peer, "data that this rank has not asked for");
		return;
	}
	peer->lands_in = m;
	p2p_post_data(peer, &peer->payload_in, false,
		      &(struct tutti_io){.buf = m->buf + m->moved,
					 .bytes = h->bytes,
					 .map = direct_map_of(m->map),
					 .asks = h->is_mapped});
}

/* EAGER or REQUEST: takes the mailbox messages that were sent before it first. */
static void p2p_receive_take_message_header(struct p2p_peer *peer, const struct p2p_header *h)
{
	if (!p2p_receive_mail_up_to(peer, h->after))
		return;
	peer->headers_received++;
	if (h->kind == P2P_EAGER)
		p2p_receive_take_eager(peer, h);
	else
		p2p_receive_take_request(peer, h);
	p2p_take_mail(peer);
}

static void p2p_receive_take_header(struct p2p_peer *peer, const struct p2p_header *h)
{
	if (h->returned_count > sizeof h->returned) {
		p2p_nonsense(peer, "more returned slots than a header holds");
		return;
	}
	for (int i = 0; i < h->returned_count; i++)
		p2p_take_back(peer, h->returned[i]);
	if (p2p_engine(peer)->failure.stop)
		return;
	switch (h->kind) {
	case P2P_EAGER:
	case P2P_REQUEST:
	case P2P_REQUEST_STAGED:
		p2p_receive_take_message_header(peer, h);
		break;
	case P2P_CLEAR:
	case P2P_CLEAR_STAGED:
		p2p_cleared(peer, h);
		break;
	case P2P_STAGED:
		p2p_stage_filled(peer, h);
		break;
	case P2P_TAKEN:
		p2p_stage_taken(peer, h);
		break;
	case P2P_DATA:
		p2p_receive_take_data(peer, h);
		break;
	case P2P_CREDIT:
		break;
	case P2P_MISMATCH:
		p2p_refused(peer, h);
		break;
	case P2P_UNFIT:
		p2p_unfit(peer, h);
		break;
	case P2P_LEAVING:
		p2p_take_mail(peer);
		peer->has_left = peer->p2p->any_gone = true;
		p2p_check_gone(peer->p2p);
		break;
	default:
		p2p_nonsense(peer, "a header of an unknown kind");
	}
}

/* LEAVING is the last message of a peer. */
void p2p_heard(struct p2p_peer *peer)
{
	struct p2p_header h = peer->in;
	assert(!peer->lands_in && !peer->lands_at);
	peer->is_heard = true;
	p2p_receive_take_header(peer, &h);
	if (!peer->has_left && !p2p_engine(peer)->failure.stop)
		p2p_post_io(peer, &peer->header_in, false, &peer->in, sizeof peer->in);
}
