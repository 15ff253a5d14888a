/* A rank reads what the others have told it: whether all have the same settings, which of them
 * share its node, and which transport reaches each. */
#include "collectives/comm/join.h"
#include "collectives/control/control.h"
#include "collectives/engine/engine.h"

#include "core/log.h"
#include "transport/guarded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tutti_status topology_differ(int rank, const char *what, const char *theirs,
				    const char *ours)
{
	return fail(TUTTI_ERR_INVALID, "rank %d has %s %s, rank 0 has %s: all ranks need the same",
		    rank, what, theirs[0] ? theirs : "unset", ours[0] ? ours : "unset");
}

static tutti_status topology_differ_number(int rank, const char *what, int64_t theirs, int64_t ours)
{
	char a[24], b[24];
	snprintf(a, sizeof a, "%lld", (long long)theirs);
	snprintf(b, sizeof b, "%lld", (long long)ours);
	return topology_differ(rank, what, a, b);
}

/* A member came from the network: its texts must have an end, and lengths must fit. */
static bool topology_is_sound(const struct member *m)
{
	bool texts_end = memchr(m->version, 0, sizeof m->version) &&
			 memchr(m->host_id, 0, sizeof m->host_id) &&
			 memchr(m->host, 0, sizeof m->host) && memchr(m->algo, 0, sizeof m->algo) &&
			 memchr(m->transports, 0, sizeof m->transports);

	if (!texts_end || m->control.bytes > TUTTI_ADDRESS_BYTES ||
	    m->consensus.bytes > TUTTI_ADDRESS_BYTES)
		return false;
	for (int i = 0; i < TRANSPORTS_MAX; i++)
		if (m->address[i].bytes > TUTTI_ADDRESS_BYTES)
			return false;
	return m->status == TUTTI_OK || status_is_error(m->status);
}

static tutti_status topology_check_sound(const struct member *members, int size)
{
	for (int r = 0; r < size; r++)
		if (!topology_is_sound(&members[r]))
			return fail(TUTTI_ERR_MISMATCH,
				    "what rank %d says of itself makes no sense: do all ranks have "
				    "the same version of Tutti, on machines of the same kind?",
				    r);
	return TUTTI_OK;
}

static tutti_status topology_check_alike(const struct member *members, int size)
{
#define NAME(name, value) name,
	static const char *const names[MEMBER_SETTINGS_COUNT] = {MEMBER_SETTINGS(NAME)};
	const struct member *m0 = &members[0];
	for (int r = 0; r < size; r++) {
		const struct member *m = &members[r];
		if (m->status != TUTTI_OK)
			return fail((tutti_status)m->status, "rank %d could not join: %s", r,
				    tutti_status_string((tutti_status)m->status));
		if (strcmp(m->version, m0->version) != 0)
			return topology_differ(r, "Tutti", m->version, m0->version);
		if (strcmp(m->algo, m0->algo) != 0)
			return topology_differ(r, "TUTTI_ALGO", m->algo, m0->algo);
		if (strcmp(m->transports, m0->transports) != 0)
			return topology_differ(r, "transports", m->transports, m0->transports);
		for (int i = 0; i < MEMBER_SETTINGS_COUNT; i++)
			if (m->settings[i] != m0->settings[i])
				return topology_differ_number(r, names[i], m->settings[i],
							      m0->settings[i]);
	}
	return TUTTI_OK;
}

/* number[r]: rank r's node, counted in the order in which they first appear. Returns how many there
 * are. */
static int topology_number_nodes(const struct member *members, int size, int *number, int *first)
{
	int nodes = 0;
	for (int r = 0; r < size; r++) {
		int k = 0;
		while (k < nodes && strcmp(members[first[k]].host_id, members[r].host_id) != 0)
			k++;
		if (k == nodes)
			first[nodes++] = r;
		number[r] = k;
	}
	return nodes;
}

/* Whether the ranks' nodes are as n says. */
static bool topology_are_nodes(struct nodes n, const int *number, int size)
{
	for (int r = 0; r < size; r++)
		if (node_of(&n, r) != number[r])
			return false;
	return true;
}

/* Nodes of equally many ranks in a regular order, for the algorithms of two levels. */
static void topology_find_order(struct tutti_comm *comm, const int *number)
{
	struct comm_place *place = &comm->place;
	int count = place->num_nodes, local = comm->size / count;
	struct nodes by_node = {count, local, local, 1}, in_turn = {count, local, 1, count};

	comm->select.num_nodes = count;
	if (count == 1 || local < 2 || count * local != comm->size)
		return;
	if (topology_are_nodes(by_node, number, comm->size))
		place->nodes = by_node;
	else if (topology_are_nodes(in_turn, number, comm->size))
		place->nodes = in_turn;
	else
		return;
	comm->select.nodes = &place->nodes;
}

/* Neighbours in a node, and the first ranks of neighbouring nodes. first: of each node. */
static void topology_find_partners(struct tutti_comm *comm, const int *number, const int *first)
{
	struct comm_place *place = &comm->place;
	int other = place->node_rank ^ 1, seen = 0;

	place->partners[LINK_LOCAL] = place->partners[LINK_NET] = -1;
	for (int r = 0; r < comm->size; r++)
		if (number[r] == place->node_rank && seen++ == (place->local_rank ^ 1))
			place->partners[LINK_LOCAL] = r;
	if (place->local_rank == 0 && other < place->num_nodes)
		place->partners[LINK_NET] = first[other];
}

static tutti_status topology_find_nodes(struct tutti_comm *comm, const struct member *members)
{
	struct comm_place *place = &comm->place;
	size_t n = (size_t)comm->size;
	int *number = calloc(2 * n, sizeof *number);
	if (!number)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the nodes of %zu ranks",
			    comm->rank, n);
	place->num_nodes = topology_number_nodes(members, comm->size, number, number + n);
	place->node_rank = number[comm->rank];
	place->local_rank = place->local_size = 0;
	for (int r = 0; r < comm->size; r++) {
		place->local_rank += number[r] == place->node_rank && r < comm->rank;
		place->local_size += number[r] == place->node_rank;
	}
	topology_find_order(comm, number);
	topology_find_partners(comm, number, number + n);
	free(number);
	return TUTTI_OK;
}

static bool topology_is_known(const struct tutti_comm *comm, const struct cpu_location *w,
			      const struct cpu_location *mine)
{
	if (w->processes != mine->processes || w->processes == 0 || w->thread == 0)
		return false;
	for (int i = 0; i < comm->place.ranks_near_count; i++)
		if (comm->place.near[i].thread == w->thread)
			return false;
	return true;
}

/* The threads of this node's ranks, if each rank can see where all of them run and they are all
 * there is of the job. Ranks that tutti_init_all has made have none yet. */
static void topology_find_near(struct tutti_comm *comm, const struct member *members)
{
	struct comm_place *place = &comm->place;
	const struct member *mine = &members[comm->rank];

	place->ranks_near_count = 0;
	if (!comm->settings.env.spread || place->local_size < place->ranks_on_host ||
	    place->local_size > CPU_LOCATIONS_MAX)
		return;
	for (int r = 0; r < comm->size; r++) {
		if (strcmp(members[r].host_id, mine->host_id) != 0)
			continue;
		if (!topology_is_known(comm, &members[r].cpu_location, &mine->cpu_location)) {
			place->ranks_near_count = 0;
			return;
		}
		place->near[place->ranks_near_count++] = members[r].cpu_location;
	}
}

/* The cores that this node's ranks may use together. A child has those of its parent, as its
 * relatives use them too. */
static tutti_status topology_find_cores(struct tutti_comm *comm, const struct member *members)
{
	const struct wait_cpus **sets;
	int n = 0;

	if (comm->parent.ranks)
		return TUTTI_OK;
	if (!(sets = malloc((size_t)comm->place.local_size * sizeof *sets)))
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the cores of %d ranks",
			    comm->rank, comm->place.local_size);
	for (int r = 0; r < comm->size; r++)
		if (strcmp(members[r].host_id, members[comm->rank].host_id) == 0)
			sets[n++] = &members[r].cpus;
	int cores = wait_cpus_together(sets, n);
	if (cores)
		comm->place.cores = cores;
	free(sets);
	return TUTTI_OK;
}

/* Fails, and says for each transport on which of the two ranks it cannot be used, or else that it
 * does not reach the peer. */
static tutti_status topology_fail_route(const struct tutti_comm *comm, const struct member *members,
					int peer)
{
	char why[300] = "";
	size_t used = 0;

	for (int i = 0; i < comm->reach.endpoint_count && used < sizeof why; i++) {
		const char *name = comm->reach.transports[i]->name, *comma = i ? ", " : "";
		bool is_here = members[comm->rank].address[i].bytes > 0;
		if (is_here && members[peer].address[i].bytes > 0)
			used += (size_t)snprintf(why + used, sizeof why - used,
						 "%s%s does not reach it", comma, name);
		else
			used += (size_t)snprintf(why + used, sizeof why - used,
						 "%s%s cannot be used on rank %d", comma, name,
						 is_here ? peer : comm->rank);
	}
	return fail(TUTTI_ERR_UNSUPPORTED,
		    "rank %d cannot reach rank %d by any of its transports: %s (TUTTI_TRANSPORTS "
		    "names those that may be used; TUTTI_LOG=info says why one cannot)",
		    comm->rank, peer, why);
}

/* The best of the transports that reach the peer. */
static tutti_status topology_find_route(struct tutti_comm *comm, const struct member *members,
					int peer)
{
	struct comm_reach *reach = &comm->reach;
	const struct member *m = &members[peer];
	struct engine_route *route = &reach->routes[peer];
	int best = 0;

	for (int i = 0; i < reach->endpoint_count; i++) {
		const struct member_address *a = &m->address[i];
		struct tutti_endpoint *ep = reach->endpoints[i];
		int how_well = transport_reach(ep, peer, a->address, a->bytes);
		if (how_well <= best)
			continue;
		best = how_well;
		*route = (struct engine_route){.endpoint = ep,
					       .address_bytes = a->bytes,
					       .maps = a->maps &
						       members[comm->rank].address[i].maps};
		memcpy(route->address, a->address, a->bytes);
	}
	if (!best)
		return topology_fail_route(comm, members, peer);
	reach->kinds_in_place &= route->endpoint->transport->kinds;
	log_debug("rank %d is reached by %s", peer, route->endpoint->transport->name);
	return TUTTI_OK;
}

/* Which messages may go between devices' memory, as both ends see it alike. */
static tutti_status topology_find_direct(struct tutti_comm *comm)
{
	struct comm_reach *reach = &comm->reach;
	int size = comm->size;
	uint32_t all = 0;

	for (int peer = 0; peer < size; peer++)
		all |= reach->routes[peer].maps;
	for (int kind = 1; kind < TUTTI_MEMORY_KINDS; kind++)
		if (all >> kind & 1)
			reach->direct_kind = kind;
	if (!reach->direct_kind)
		return TUTTI_OK;
	if (!(reach->direct = calloc((size_t)size, sizeof *reach->direct)))
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a table of %d ranks",
			    comm->rank, size);
	for (int peer = 0; peer < size; peer++)
		reach->direct[peer] = (uint8_t)reach->routes[peer].maps;
	return TUTTI_OK;
}

/* No peer dials an endpoint by which this rank does not reach it. */
static void topology_close_unused_endpoints(struct comm_reach *reach, int size)
{
	int kept = 0;

	for (int i = 0; i < reach->endpoint_count; i++) {
		struct tutti_endpoint *ep = reach->endpoints[i];
		int peer = 0;
		while (peer < size && reach->routes[peer].endpoint != ep)
			peer++;
		if (peer < size)
			reach->endpoints[kept++] = ep;
		else
			transport_destroy(ep);
	}
	reach->endpoint_count = kept;
}

/* The control ring goes by one transport; where that does not reach, the ring is open. */
static void topology_find_peer(struct tutti_comm *comm, const struct member *members, int r)
{
	const struct member *m = &members[r], *mine = &members[comm->rank];
	struct control_peer *peer = &comm->reach.peers[r];
	struct tutti_endpoint *ep = comm->reach.control_endpoint;
	const struct member_address *a = &m->control;

	peer->process = m->cpu_location.process;
	peer->is_visible = strcmp(m->host_id, mine->host_id) == 0 && m->cpu_location.processes &&
			   m->cpu_location.processes == mine->cpu_location.processes;
	memcpy(peer->host, m->host, sizeof peer->host - 1);
	if (r == comm->rank || !transport_reach(ep, r, a->address, a->bytes))
		return;
	peer->address_bytes = a->bytes;
	memcpy(peer->address, a->address, a->bytes);
}

static tutti_status topology_find_peers(struct tutti_comm *comm, const struct member *members)
{
	comm->reach.peers = calloc((size_t)comm->size, sizeof *comm->reach.peers);
	if (!comm->reach.peers)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the addresses of %d ranks",
			    comm->rank, comm->size);
	for (int r = 0; r < comm->size; r++)
		topology_find_peer(comm, members, r);
	return TUTTI_OK;
}

/* It cannot fail: without a device there is the engine. */
static tutti_status topology_find_device(struct tutti_comm *comm, const struct member *members)
{
	const struct nodes *nodes = comm->select.nodes;
	struct group ranks = {.me = comm->rank, .size = comm->size, .stride = 1};
	struct cuda_part *parts;

	if (!comm->device)
		return TUTTI_OK;
	if (nodes)
		ranks = group_in_node(nodes, comm->rank);
	if (!(parts = calloc((size_t)comm->size, sizeof *parts)))
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the GPUs of %d ranks",
			    comm->rank, comm->size);
	for (int r = 0; r < ranks.size; r++)
		parts[r] = members[member(ranks, r)].gpu;
	if ((comm->place.num_nodes > 1 && !nodes) ||
	    !device_connect(comm->device, parts, ranks, nodes)) {
		device_close(comm->device);
		comm->device = NULL;
	}
	free(parts);
	return TUTTI_OK;
}

tutti_status comm_meet(struct tutti_comm *comm, const struct member *members)
{
	struct comm_reach *reach = &comm->reach;
	struct comm_place *place = &comm->place;
	reach->kinds_in_place = ~0u;
	if (comm->size == 1)
		return topology_find_device(comm, members);
	TRY(topology_check_sound(members, comm->size));
	TRY(topology_check_alike(members, comm->size));
	TRY(topology_find_nodes(comm, members));
	TRY(topology_find_cores(comm, members));
	if (place->ranks_on_host < place->local_size)
		place->ranks_on_host = place->local_size;
	topology_find_near(comm, members);
	reach->may_have_window =
		reach->may_have_window && comm->settings.env.window && place->num_nodes == 1;
	reach->routes = calloc((size_t)comm->size, sizeof *reach->routes);
	if (!reach->routes)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for %d routes", comm->rank,
			    comm->size);
	for (int peer = 0; peer < comm->size; peer++)
		if (peer != comm->rank)
			TRY(topology_find_route(comm, members, peer));
	TRY(topology_find_direct(comm));
	topology_close_unused_endpoints(reach, comm->size);
	TRY(topology_find_peers(comm, members));
	TRY(topology_find_device(comm, members));
	for (int peer = 0; peer < comm->size; peer++)
		TRY(consensus_introduce(comm->recovery.consensus, peer,
					members[peer].consensus.address,
					members[peer].consensus.bytes));
	return TUTTI_OK;
}
