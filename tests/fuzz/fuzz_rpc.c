/* Would break: a rank, by a message of another rank's rpc: sizes and names that lie outside of it,
 * or pieces that do not add up. */
#include "fuzz.h"

#include "rpc/message.h"

#include <string.h>

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	struct rpc_message m = {0};
	uint64_t sum = 0;

	input_bytes(&in, &m, n < sizeof m ? n : sizeof m);
	if (!rpc_message_is_sound(&m))
		return;
	MUST(m.slot < RPC_CALLS_MAX && m.id > 0);
	if (m.kind == RPC_REQUEST) {
		const char *name = rpc_message_name(&m);
		MUST(name >= (const char *)m.data && m.name_bytes <= RPC_NAME_BYTES);
		MUST(name + m.name_bytes == (const char *)m.data + sizeof m.data);
	}
	if (m.kind != RPC_REQUEST && m.kind != RPC_REPLY && m.kind != RPC_OFFER)
		return;
	MUST(m.num_pieces <= TUTTI_RPC_PIECES);
	for (int i = 0; i < m.num_pieces; i++)
		sum += rpc_message_piece(&m, i);
	MUST(!m.num_pieces || sum == m.bytes);
	MUST(!m.comes_along || (m.num_pieces == 1 && m.bytes <= RPC_ALONG_BYTES));
	MUST(m.num_pieces || m.is_dropped || m.bytes <= sizeof m.data);
}
