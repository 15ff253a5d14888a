/* What both ends of a connection prove to each other. */
#include "transport/tcp/tcp.h"

#include <string.h>

void tcp_context(uint8_t context[AUTH_CONTEXT_BYTES], const struct tcp_endpoint *ep, int from,
		 int to, int channel, int32_t terms)
{
	const int32_t numbers[4] = {from, to, channel, terms};

	_Static_assert(sizeof ep->comm_id + sizeof numbers == AUTH_CONTEXT_BYTES, "context");
	memcpy(context, ep->comm_id, sizeof ep->comm_id);
	memcpy(context + sizeof ep->comm_id, numbers, sizeof numbers);
}

int32_t tcp_terms(const struct tcp_endpoint *ep, bool reconnects, uint32_t epoch)
{
	const uint32_t version = 2;

	return (int32_t)(version | (uint32_t)tcp_has_checksums(ep) << 8 |
			 (uint32_t)reconnects << 9 | (uint32_t)ep->has_tls << 10 |
			 epoch << TCP_EPOCH_SHIFT);
}
