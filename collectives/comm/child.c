/* The parts that a communicator takes over from the one that it is split, copied or shrunk from. */
#include "collectives/comm/join.h"
#include "collectives/control/control.h"

#include "core/auth.h"

#include <stdlib.h>
#include <string.h>

/* child has no ancestors yet: it holds its parent's, and its parent's consensus if that misses a
 * rank. */
static tutti_status keep_ancestors(struct tutti_comm *child, const struct tutti_comm *comm)
{
	size_t most = (size_t)comm->recovery.ancestor_count + 1;

	child->recovery.ancestors = calloc(most, sizeof(struct consensus *));
	if (!child->recovery.ancestors)
		return fail(TUTTI_ERR_MEMORY, "no memory for %zu ancestors", most);
	for (int i = 0; i < comm->recovery.ancestor_count; i++)
		child->recovery.ancestors[child->recovery.ancestor_count++] =
			consensus_hold(comm->recovery.ancestors[i]);
	if (consensus_misses(comm->recovery.consensus))
		child->recovery.ancestors[child->recovery.ancestor_count++] =
			consensus_hold(comm->recovery.consensus);
	return TUTTI_OK;
}

tutti_status comm_new_child(struct tutti_comm **out, const struct tutti_comm *parent,
			    const tutti_config *config, int rank, int size)
{
	struct tutti_comm *child;

	TRY(comm_new(&child, config, &parent->settings.env, rank, size));
	*out = child;
	memcpy(child->place.host_id, parent->place.host_id, sizeof child->place.host_id);
	child->place.ranks_on_host = parent->place.ranks_on_host;
	child->place.cores = parent->place.cores;
	child->recovery.origin = origin_hold(parent->recovery.origin);
	if (!config->device) {
		child->settings.device = parent->settings.device;
		child->settings.device_memory = parent->settings.device_memory;
	}
	child->select = parent->select;
	child->select.nodes = NULL; /* those were the parent's; a child of one rank has none */
	child->select.num_nodes = 1;
	child->parent.ranks = calloc((size_t)size, sizeof *child->parent.ranks);
	if (!child->parent.ranks)
		return fail(TUTTI_ERR_MEMORY, "no memory for a communicator of %d ranks", size);
	return keep_ancestors(child, parent);
}

void comm_derive_identity(struct tutti_comm *child, const struct tutti_comm *parent,
			  const char *key_name, const char *id_name, const void *of, size_t bytes)
{
	uint8_t id[TUTTI_KEY_BYTES];

	auth_derive(child->identity.key, parent->identity.key, key_name, of, bytes);
	auth_derive(id, parent->identity.key, id_name, of, bytes);
	memcpy(child->identity.id, id, sizeof child->identity.id);
}

tutti_status comm_keep_job(struct tutti_comm *child, const struct tutti_comm *parent)
{
	const int *numbers = parent->parent.numbers;

	child->parent.job = job_hold(parent->parent.job);
	child->parent.numbers = calloc((size_t)child->size, sizeof *child->parent.numbers);
	if (!child->parent.numbers)
		return fail(TUTTI_ERR_MEMORY, "no memory for a communicator of %d ranks",
			    child->size);
	for (int r = 0; r < child->size; r++) {
		int rank = child->parent.ranks[r];
		child->parent.numbers[r] = numbers ? numbers[rank] : rank;
	}
	return TUTTI_OK;
}
