/* Messages: what makes one sound, and the sizes of pieces in it. */
#include "rpc/message.h"

#include "core/memory_left.h"
#include "core/status.h"

#include <string.h>

enum { LOOK_AT_MEMORY_BYTES = 64 << 20 }; /* more bytes are compared with what is left */

bool rpc_memory_has(uint64_t bytes)
{
	uint64_t left = bytes > LOOK_AT_MEMORY_BYTES ? memory_left("") : 0;

	return !left || bytes < left;
}

tutti_status rpc_pieces_check(const char *what, const tutti_rpc_piece *pieces, int num_pieces)
{
	size_t left = RPC_BYTES_MOST;

	if (num_pieces < 0 || num_pieces > TUTTI_RPC_PIECES)
		return fail_invalid("%s: %d pieces: there may be %d", what, num_pieces,
				    TUTTI_RPC_PIECES);
	if (num_pieces && !pieces)
		return fail_invalid("%s: pieces is NULL, and num_pieces is %d", what, num_pieces);
	for (int i = 0; i < num_pieces; i++) {
		if (pieces[i].bytes && !pieces[i].data)
			return fail_invalid("%s: piece %d has %zu bytes, and data is NULL", what, i,
					    pieces[i].bytes);
		if (pieces[i].bytes > left)
			return fail_invalid("%s: the pieces have more bytes than a memory can",
					    what);
		left -= pieces[i].bytes;
	}
	return TUTTI_OK;
}

size_t rpc_message_piece(const struct rpc_message *m, int piece)
{
	uint64_t bytes;

	memcpy(&bytes, m->data + (size_t)piece * sizeof bytes, sizeof bytes);
	return (size_t)bytes;
}

void rpc_message_set_pieces(struct rpc_message *m, const tutti_rpc_piece *pieces, int n)
{
	m->num_pieces = (uint8_t)n;
	for (int i = 0; i < n; i++) {
		uint64_t bytes = pieces[i].bytes;
		memcpy(m->data + (size_t)i * sizeof bytes, &bytes, sizeof bytes);
	}
}

static bool pieces_are_sound(const struct rpc_message *m)
{
	uint64_t left = m->bytes;

	if (m->num_pieces > TUTTI_RPC_PIECES)
		return false;
	for (int i = 0; i < m->num_pieces; i++) {
		size_t piece = rpc_message_piece(m, i);
		if (piece == 0 || piece > left)
			return false;
		left -= piece;
	}
	return left == 0 && m->bytes <= RPC_BYTES_MOST;
}

bool rpc_message_is_sound(const struct rpc_message *m)
{
	size_t name_bytes = m->kind == RPC_REQUEST ? m->name_bytes : 0;

	if (m->kind < RPC_REQUEST || m->kind > RPC_STATE || m->slot >= RPC_CALLS_MAX || m->id == 0)
		return false;
	if (m->kind == RPC_REQUEST && (name_bytes < 1 || name_bytes > RPC_NAME_BYTES))
		return false;
	if (m->kind != RPC_REQUEST && m->kind != RPC_REPLY && m->kind != RPC_OFFER)
		return true;
	if (m->status < TUTTI_OK || m->status == TUTTI_IN_PROGRESS ||
	    m->status > TUTTI_ERR_INTERNAL)
		return false;
	if (m->cancelled > RPC_BEFORE_IT_ENDED)
		return false;
	if (m->comes_along && (m->num_pieces != 1 || m->bytes > RPC_ALONG_BYTES))
		return false;
	if (m->num_pieces)
		return pieces_are_sound(m);
	return m->kind != RPC_OFFER && (m->is_dropped || m->bytes <= rpc_room_beside(name_bytes));
}
