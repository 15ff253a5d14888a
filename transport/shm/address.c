/* The address that a shm endpoint gives its peers, and which peers share its node: the same machine
 * since the same boot, network namespace (it holds the abstract sockets), user, and host id (which
 * tests and users set to make one machine count as several). */
#include "transport/shm/shm.h"

#include "core/machine.h"
#include "core/status.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct shm_address {
	uint64_t identity[2];
	char name[40];
};

_Static_assert(sizeof(struct shm_address) <= TUTTI_ADDRESS_BYTES, "an address fits");

/* FNV-1a, twice with different starts: against chance only; other users are kept out elsewhere. */
static void identity_add(uint64_t identity[2], const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	for (size_t i = 0; i < n; i++)
		for (int k = 0; k < 2; k++)
			identity[k] = (identity[k] ^ p[i]) * 0x100000001b3u;
}

/* A half that cannot be read stays zero: then the host id alone tells machines apart. */
static tutti_status identity_of(uint64_t identity[2], const char *host_id)
{
	char boot[MACHINE_BOOT_BYTES] = "";
	uint64_t network = machine_namespace("net");
	uid_t uid = geteuid();

	TRY(machine_boot(boot));
	identity[0] = 0xcbf29ce484222325u;
	identity[1] = 0x84222325cbf29ce4u;
	identity_add(identity, boot, strlen(boot));
	identity_add(identity, &network, sizeof network);
	identity_add(identity, &uid, sizeof uid);
	if (host_id)
		identity_add(identity, host_id, strlen(host_id));
	return TUTTI_OK;
}

tutti_status shm_address_make(struct tutti_endpoint *endpoint, const char *host_id,
			      const char *name)
{
	struct shm_address address = {0};

	TRY(identity_of(address.identity, host_id));
	snprintf(address.name, sizeof address.name, "%s", name);
	memcpy(endpoint->address, &address, sizeof address);
	endpoint->address_bytes = sizeof address;
	return TUTTI_OK;
}

bool shm_address_read(const struct tutti_endpoint *endpoint, const uint8_t *bytes,
		      size_t address_bytes, char name[40])
{
	struct shm_address mine, theirs;

	if (address_bytes != sizeof theirs)
		return false;
	memcpy(&mine, endpoint->address, sizeof mine);
	memcpy(&theirs, bytes, sizeof theirs);
	if (memcmp(mine.identity, theirs.identity, sizeof mine.identity) != 0)
		return false;
	theirs.name[sizeof theirs.name - 1] = '\0';
	memcpy(name, theirs.name, sizeof theirs.name);
	return true;
}
