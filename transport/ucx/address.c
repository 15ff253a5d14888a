/* An endpoint's address: oob's, and behind it what decides how well its peers reach it. */
#include "transport/ucx/ucx.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

#define MAGIC 0x31786375u /* "ucx1" */

/* MB/s. More than tcp says, less than verbs. */
#define REACH 8000
/* Without RDMA, tcp and shared memory do without UCX: for those who ask for it by name. */
#define REACH_OTHER 1

struct ucx_trailer {
	uint32_t magic, has_rdma;
	uint64_t host;
};

_Static_assert(sizeof(struct ucx_trailer) <= OOB_ROOM_BYTES, "it fits behind oob's address");

static bool is_active(const char *path)
{
	FILE *file = fopen(path, "re");
	char text[32] = "";

	if (!file)
		return false;
	if (!fgets(text, sizeof text, file))
		text[0] = '\0';
	fclose(file);
	return strstr(text, "ACTIVE") != NULL;
}

bool ucx_has_rdma(void)
{
	bool has_rdma = false;
	glob_t states;

	if (glob("/sys/class/infiniband/*/ports/*/state", GLOB_NOSORT, NULL, &states) != 0)
		return false;
	for (size_t i = 0; i < states.gl_pathc; i++)
		has_rdma |= is_active(states.gl_pathv[i]);
	globfree(&states);
	return has_rdma;
}

void ucx_address_make(struct ucx_endpoint *endpoint, const char *host_id)
{
	const struct tutti_endpoint *tcp = oob_tcp(endpoint->oob);
	struct ucx_trailer own = {
		.magic = MAGIC, .has_rdma = endpoint->has_rdma, .host = 0xcbf29ce484222325u};

	for (const char *c = host_id; *c; c++)
		own.host = (own.host ^ (uint8_t)*c) * 0x100000001b3u;
	memcpy(endpoint->base.address, tcp->address, tcp->address_bytes);
	memcpy(endpoint->base.address + tcp->address_bytes, &own, sizeof own);
	endpoint->base.address_bytes = tcp->address_bytes + sizeof own;
}

size_t ucx_address_oob(size_t bytes)
{
	return bytes < sizeof(struct ucx_trailer) ? 0 : bytes - sizeof(struct ucx_trailer);
}

int ucx_address_reach(const struct ucx_endpoint *endpoint, int peer, const uint8_t *address,
		      size_t bytes)
{
	const struct tutti_endpoint *base = &endpoint->base;
	size_t oob_bytes = ucx_address_oob(bytes);
	struct ucx_trailer own, theirs;

	if (base->address_bytes == 0 || oob_bytes == 0)
		return 0;
	memcpy(&own, base->address + ucx_address_oob(base->address_bytes), sizeof own);
	memcpy(&theirs, address + oob_bytes, sizeof theirs);
	if (theirs.magic != MAGIC || !oob_reaches(endpoint->oob, peer, address, oob_bytes))
		return 0;
	return own.has_rdma && theirs.has_rdma && own.host != theirs.host ? REACH : REACH_OTHER;
}
