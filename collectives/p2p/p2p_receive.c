/* Receiving on a channel: a header is always posted, and a payload when the header before it has
 * announced one. The payload lands in the buffer of its recv, or in its slot. */
#include "collectives/engine/direct.h"
#include "collectives/p2p/p2p_internal.h"

#include "core/memory/dtype.h"

#include <assert.h>
#include <stdint.h>

void p2p_listen(struct p2p_peer *peer)
{
	p2p_ready_io(&peer->header_in, P2P_HEADER_IN, peer, NULL);
	p2p_ready_io(&peer->payload_in, P2P_PAYLOAD_IN, peer, NULL);
	p2p_post_io(peer, &peer->header_in, false, &peer->in, sizeof peer->in);
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

void p2p_landed(struct p2p_peer *peer)
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

static bool p2p_receive_is_sound(const struct p2p_header *h)
{
	size_t element = dtype_bytes((tutti_dtype)h->dtype);
	return element && h->is_captured <= 1 && h->count <= (size_t)PTRDIFF_MAX / element &&
	       h->bytes == h->count * element;
}

/* Used, or free but not yet told to the sender. */
static bool is_lent(const struct p2p_peer *peer, uint32_t slot)
{
	return peer->is_returned[slot] || (peer->kept && peer->kept[slot].is_used);
}

static void take_eager(struct p2p_peer *peer, const struct p2p_header *h)
{
	if (!p2p_receive_is_sound(h) || h->id >= P2P_SLOTS ||
	    h->bytes > p2p_classes[p2p_class_of(h->id)].bytes) {
		p2p_nonsense(peer,
			     "a short message whose dtype, count, tag or slot is out of range");
		return;
	}
	if (is_lent(peer, h->id)) {
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

static void take_request(struct p2p_peer *peer, const struct p2p_header *h)
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

static void take_data(struct p2p_peer *peer, const struct p2p_header *h)
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
		take_eager(peer, h);
		break;
	case P2P_REQUEST:
	case P2P_REQUEST_STAGED:
		take_request(peer, h);
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
		take_data(peer, h);
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
