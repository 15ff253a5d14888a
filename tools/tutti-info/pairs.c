/* The communicator knows which transport was chosen; the numbers by which they are compared come
 * from the endpoints of machine.c. A child of it, whose ranks have the GPUs that a program's would,
 * knows how their buffers move. */
#include "pairs.h"

#include "collectives/device/device.h"
#include "collectives/engine/task.h"
#include "collectives/p2p/p2p.h"
#include "tools/must.h"

#include <string.h>

/* The one that a launcher's program would use: a rank each. -1: none. */
static int pairs_own_gpu(const tutti_comm *comm, const struct machine *m)
{
	return m->gpus.count > 0 ? comm->place.local_rank % m->gpus.count : -1;
}

static void pairs_present(struct presentation *self, const tutti_comm *comm,
			  const struct machine *m)
{
	snprintf(self->host, sizeof self->host, "%s", m->host);
	self->node = comm->place.node_rank;
	self->is_first = comm->place.local_rank == 0;
	if (pairs_own_gpu(comm, m) >= 0)
		snprintf(self->gpu, sizeof self->gpu, "%s",
			 m->gpus.rows[pairs_own_gpu(comm, m)].uuid);
	self->offer_count = m->transport_count;
	for (int i = 0; i < m->transport_count; i++) {
		const struct transport_row *row = &m->transports[i];
		struct offer *offer = &self->offers[i];
		snprintf(offer->name, sizeof offer->name, "%s", row->name);
		snprintf(offer->why, sizeof offer->why, "%.239s", row->why);
		offer->state = (int32_t)row->state;
		if (row->state != TRANSPORT_POSSIBLE)
			continue;
		offer->bytes = (uint32_t)row->endpoint->address_bytes;
		memcpy(offer->address, row->endpoint->address, offer->bytes);
	}
}

static const struct offer *pairs_offer_of(const struct presentation *rank, const char *name)
{
	for (int i = 0; i < rank->offer_count && i < TRANSPORTS_MAX; i++)
		if (strcmp(rank->offers[i].name, name) == 0)
			return &rank->offers[i];
	return NULL;
}

static void pairs_look_at_peer(struct view *view, const tutti_comm *comm, const struct machine *m,
			       const struct presentation *peer, int rank)
{
	const struct tutti_endpoint *chosen = comm->engine->links.routes[rank].endpoint;

	view->relation = (int32_t)gpus_relation(&m->gpus, pairs_own_gpu(comm, m), peer->gpu);
	if (view->relation != GPUS_NONE && peer->node != comm->place.node_rank)
		view->relation = GPUS_APART;
	snprintf(view->way, sizeof view->way, "%s", chosen ? chosen->transport->name : "");
	for (int i = 0; i < m->transport_count; i++) {
		const struct transport_row *row = &m->transports[i];
		const struct offer *theirs = pairs_offer_of(peer, row->name);
		if (row->state == TRANSPORT_POSSIBLE && theirs && theirs->bytes)
			view->reach[i] = row->endpoint->transport->reach(
				row->endpoint, rank, theirs->address, theirs->bytes);
	}
}

/* Of the child, which has this rank's GPU. */
static void pairs_look_at_gpus(struct gpu_part *part, struct view *views, const tutti_comm *gpus)
{
	const struct device *d = gpus->device;
	const char *no_multicast = d ? device_no_multicast(d) : "there are no kernels of all ranks";

	part->way = !d ? GPU_BY_ENGINE : device_takes_turns(d) ? GPU_BY_TURNS : GPU_BY_KERNELS;
	snprintf(part->no_multicast, sizeof part->no_multicast, "%s",
		 no_multicast ? no_multicast : "");
	for (int r = 0; r < gpus->size; r++)
		if (r != gpus->rank)
			views[r].long_way = (int32_t)p2p_way_of(gpus->engine, r, TUTTI_MEMORY_CUDA);
}

/* Collective. */
static tutti_status pairs_join_gpus(struct gpu_part *part, struct view *views, tutti_comm *comm,
				    const struct machine *m)
{
	tutti_config config = comm_config(comm);
	tutti_comm *gpus;

	config.device = pairs_own_gpu(comm, m) + 1;
	tutti_status status = tutti_comm_split(comm, 0, comm->rank, &config, &gpus);
	if (status != TUTTI_OK)
		return status;
	pairs_look_at_gpus(part, views, gpus);
	tutti_comm_destroy(gpus);
	return TUTTI_OK;
}

static bool pairs_have_gpus(const struct pairs *p)
{
	for (int r = 0; r < p->size; r++)
		if (p->ranks[r].gpu[0])
			return true;
	return false;
}

static const char *pairs_find_no_window(const tutti_comm *comm)
{
	const struct comm_reach *reach = &comm->reach;

	if (comm->window)
		return NULL;
	if (comm->place.num_nodes > 1)
		return "the ranks are on several machines";
	if (!comm->settings.env.window)
		return "TUTTI_WINDOW is 0";
	if (!transport_shares_memory(reach->transports, reach->transport_count))
		return "TUTTI_TRANSPORTS leaves out shm";
	return "it could not be opened; TUTTI_LOG=info says why";
}

static const struct view *pairs_view_of(const struct pairs *p, int a, int b)
{
	return &p->views[(size_t)a * (size_t)p->size + (size_t)b];
}

const char *pairs_way(const struct pairs *p, int a, int b)
{
	return pairs_view_of(p, a, b)->way;
}

enum gpu_relation pairs_relation(const struct pairs *p, int a, int b)
{
	return (enum gpu_relation)pairs_view_of(p, a, b)->relation;
}

const char *pairs_long_way(const struct pairs *p, int a, int b)
{
	static const char *const names[] = {[P2P_BY_STAGES] = "stages",
					    [P2P_BY_ADAPTERS] = "adapters",
					    [P2P_BY_COPIES] = "host memory"};

	return pairs_relation(p, a, b) == GPUS_NONE ? "none"
						    : names[pairs_view_of(p, a, b)->long_way];
}

const char *pairs_long_text(const struct pairs *p, int a, int b)
{
	switch ((enum p2p_way)pairs_view_of(p, a, b)->long_way) {
	case P2P_BY_STAGES:
		return "in stages, from GPU to GPU";
	case P2P_BY_ADAPTERS:
		return "by adapters that reach both GPUs' memory (dma-buf)";
	case P2P_BY_COPIES:
		break;
	}
	return pairs_relation(p, a, b) == GPUS_APART
		       ? "through pinned host memory: not all adapters between them reach both "
			 "GPUs' memory (dma-buf)"
		       : "through pinned host memory: not all ranks of the machine map each "
			 "other's GPU; TUTTI_LOG=info says why";
}

const char *pairs_gpu_way_text(const struct gpu_part *part)
{
	static const char *const texts[] = {
		[GPU_BY_ENGINE] = "engine", [GPU_BY_KERNELS] = "kernels", [GPU_BY_TURNS] = "turns"};

	return texts[part->way];
}

int pairs_explain(const struct pairs *p, int a, int b, int i, char why[PAIRS_WHY_BYTES])
{
	const struct offer *own = &p->ranks[a].offers[i];
	const struct offer *theirs = pairs_offer_of(&p->ranks[b], own->name);
	const struct view *view = pairs_view_of(p, a, b);

	if (strcmp(view->way, own->name) == 0)
		snprintf(why, PAIRS_WHY_BYTES, "chosen: no other that both have has more");
	else if (view->reach[i])
		snprintf(why, PAIRS_WHY_BYTES, "possible, with less");
	else if (own->state == TRANSPORT_FORBIDDEN)
		snprintf(why, PAIRS_WHY_BYTES, "forbidden: %s", own->why);
	else if (own->state == TRANSPORT_ABSENT)
		snprintf(why, PAIRS_WHY_BYTES, "not on rank %d's %s: %s", a, p->ranks[a].host,
			 own->why);
	else if (!theirs || theirs->state != TRANSPORT_POSSIBLE)
		snprintf(why, PAIRS_WHY_BYTES, "not on rank %d's %s: %s", b, p->ranks[b].host,
			 theirs ? theirs->why : "its build lacks it");
	else
		snprintf(why, PAIRS_WHY_BYTES, "both have it, but it does not connect them");
	return view->reach[i];
}

static void pairs_add_pair(struct pairs *p, const char *signature, int a, int b)
{
	struct pair_kind *kind;
	size_t k = 0;

	while (k < p->kind_count && strcmp(p->kinds[k].signature, signature) != 0)
		k++;
	if (k == p->kind_count) {
		p->kinds = must_grow(p->kinds, p->kind_count, &p->kind_room, sizeof *p->kinds);
		p->kinds[p->kind_count++] =
			(struct pair_kind){.signature = must_have(strdup(signature))};
	}
	kind = &p->kinds[k];
	kind->pairs = must_grow(kind->pairs, kind->count, &kind->room, sizeof *kind->pairs);
	kind->pairs[kind->count][0] = a;
	kind->pairs[kind->count++][1] = b;
}

/* Alike: the same transport, their GPUs lie alike, and each of the others lacks the same. */
static void pairs_sort_pairs(struct pairs *p)
{
	for (int a = 0; a < p->size; a++)
		for (int b = a + 1; b < p->size; b++) {
			char text[1024];
			size_t used = (size_t)snprintf(
				text, sizeof text, "%s %d %s", pairs_way(p, a, b),
				(int)pairs_relation(p, a, b), pairs_long_way(p, a, b));
			for (int i = 0; i < p->ranks[a].offer_count; i++) {
				const struct offer *own = &p->ranks[a].offers[i];
				const struct offer *theirs =
					pairs_offer_of(&p->ranks[b], own->name);
				used += (size_t)snprintf(text + used, sizeof text - used,
							 " %s %d %d %d", own->name, own->state,
							 theirs ? theirs->state : -1,
							 pairs_view_of(p, a, b)->reach[i]);
			}
			pairs_add_pair(p, text, a, b);
		}
}

/* This rank's views of the others, to rank 0. */
static tutti_status pairs_gather_views(struct pairs *p, tutti_comm *comm, struct view *views,
				       const struct gpu_part *part)
{
	size_t n = (size_t)comm->size;
	tutti_status status;

	p->views = must_alloc(comm->rank == 0 ? n * n : 1, sizeof *p->views);
	p->parts = must_alloc(comm->rank == 0 ? n : 1, sizeof *p->parts);
	status = tutti_gather(part, p->parts, sizeof *part, TUTTI_U8, 0, comm, NULL);
	if (status == TUTTI_OK)
		status = tutti_gather(views, p->views, n * sizeof *views, TUTTI_U8, 0, comm, NULL);
	if (status == TUTTI_OK && comm->rank == 0)
		pairs_sort_pairs(p);
	return status;
}

tutti_status pairs_gather(struct pairs *p, tutti_comm *comm, const struct machine *m)
{
	size_t n = (size_t)comm->size;
	struct presentation *self = must_alloc(1, sizeof *self);
	struct view *views = must_alloc(n, sizeof *views);
	struct gpu_part part = {0};

	*p = (struct pairs){.size = comm->size, .no_window = pairs_find_no_window(comm)};
	p->ranks = must_alloc(n, sizeof *p->ranks);
	pairs_present(self, comm, m);
	tutti_status status = tutti_all_gather(self, p->ranks, sizeof *self, TUTTI_U8, comm, NULL);
	for (int r = 0; status == TUTTI_OK && r < comm->size; r++)
		if (r != comm->rank)
			pairs_look_at_peer(&views[r], comm, m, &p->ranks[r], r);
	p->has_gpus = status == TUTTI_OK && pairs_have_gpus(p);
	if (p->has_gpus)
		status = pairs_join_gpus(&part, views, comm, m);
	if (status == TUTTI_OK)
		status = pairs_gather_views(p, comm, views, &part);
	free(views);
	free(self);
	return status;
}

void pairs_free(struct pairs *p)
{
	for (size_t k = 0; k < p->kind_count; k++) {
		free(p->kinds[k].signature);
		free(p->kinds[k].pairs);
	}
	free(p->kinds);
	free(p->views);
	free(p->parts);
	free(p->ranks);
}
