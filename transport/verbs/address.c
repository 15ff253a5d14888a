/* An endpoint's address: oob's, and behind it how packets reach its ports. */
#include "transport/verbs/verbs.h"

#include <string.h>

#define MAGIC 0x31627276u /* "vrb1" */

/* MB/s. More than ucx and tcp say, less than shared memory. */
#define REACH 12000
/* A device that is no InfiniBand and no RoCE (iWARP) is for those who ask for it: its queue pairs
 * may connect by librdmacm alone, which this transport does not use. */
#define REACH_OTHER 500

struct trailer {
	uint32_t magic;
	uint8_t wires;         /* bits 1 << enum verbs_wire */
	uint8_t has_immediate; /* all of its devices */
	uint16_t reserved;
	uint64_t subnet; /* of its first InfiniBand port */
};

_Static_assert(sizeof(struct trailer) <= OOB_ROOM_BYTES, "it fits behind oob's address");

void verbs_address_make(struct verbs_endpoint *endpoint)
{
	const struct tutti_endpoint *tcp = oob_tcp(endpoint->oob);
	struct trailer own = {.magic = MAGIC, .has_immediate = 1};

	for (int i = endpoint->port_count - 1; i >= 0; i--) {
		const struct verbs_port *port = &endpoint->ports[i];
		own.wires |= (uint8_t)(1u << port->wire);
		own.has_immediate &= port->device->has_immediate;
		if (port->wire == VERBS_INFINIBAND)
			own.subnet = port->gid.global.subnet_prefix;
	}
	memcpy(endpoint->base.address, tcp->address, tcp->address_bytes);
	memcpy(endpoint->base.address + tcp->address_bytes, &own, sizeof own);
	endpoint->base.address_bytes = tcp->address_bytes + sizeof own;
}

size_t verbs_address_oob(size_t bytes)
{
	return bytes < sizeof(struct trailer) ? 0 : bytes - sizeof(struct trailer);
}

int verbs_address_reach(const struct verbs_endpoint *endpoint, int peer, const uint8_t *address,
			size_t bytes)
{
	const struct tutti_endpoint *base = &endpoint->base;
	size_t oob_bytes = verbs_address_oob(bytes);
	struct trailer own, theirs;

	if (base->address_bytes == 0 || oob_bytes == 0)
		return 0;
	memcpy(&own, base->address + verbs_address_oob(base->address_bytes), sizeof own);
	memcpy(&theirs, address + oob_bytes, sizeof theirs);
	if (theirs.magic != MAGIC || !oob_reaches(endpoint->oob, peer, address, oob_bytes))
		return 0;
	uint8_t both = own.wires & theirs.wires;
	if (own.subnet != theirs.subnet)
		both &= (uint8_t) ~(1u << VERBS_INFINIBAND);
	if (!both)
		return 0;
	return own.has_immediate && theirs.has_immediate ? REACH : REACH_OTHER;
}
