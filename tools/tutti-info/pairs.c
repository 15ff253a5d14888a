/* The communicator knows which transport was chosen; the numbers by which they are compared come
 * from the endpoints of machine.c. */
#include "pairs.h"

#include "collectives/engine/task.h"
#include "tools/must.h"

#include <string.h>

/* The one that a launcher's program would use: a rank each. -1: none. */
static int own_gpu(const tutti_comm *comm, const struct machine *m)
{
	return m->gpus.count > 0 ? comm->place.local_rank % m->gpus.count : -1;
}

static void present(struct presentation *self, const tutti_comm *comm, const struct machine *m)
{
	snprintf(self->host, sizeof self->host, "%s", m->host);
	self->node = comm->place.node_rank;
	self->is_first = comm->place.local_rank == 0;
	if (own_gpu(comm, m) >= 0)
		snprintf(self->gpu, sizeof self->gpu, "%s", m->gpus.rows[own_gpu(comm, m)].uuid);
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

static const struct offer *offer_of(const struct presentation *rank, const char *name)
{
	for (int i = 0; i < rank->offer_count && i < TRANSPORTS_MAX; i++)
		if (strcmp(rank->offers[i].name, name) == 0)
			return &rank->offers[i];
	return NULL;
}

static void look_at_peer(struct view *view, const tutti_comm *comm, const struct machine *m,
			 const struct presentation *peer, int rank)
{
	const struct tutti_endpoint *chosen = comm->engine->links.routes[rank].endpoint;

	view->relation = (int32_t)gpus_relation(&m->gpus, own_gpu(comm, m), peer->gpu);
	if (view->relation != GPUS_NONE && peer->node != comm->place.node_rank)
		view->relation = GPUS_APART;
	snprintf(view->way, sizeof view->way, "%s", chosen ? chosen->transport->name : "");
	for (int i = 0; i < m->transport_count; i++) {
		const struct transport_row *row = &m->transports[i];
		const struct offer *theirs = offer_of(peer, row->name);
		if (row->state == TRANSPORT_POSSIBLE && theirs && theirs->bytes)
			view->reach[i] = row->endpoint->transport->reach(
				row->endpoint, rank, theirs->address, theirs->bytes);
	}
}

static const char *find_no_window(const tutti_comm *comm)
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

static const struct view *view_of(const struct pairs *p, int a, int b)
{
	return &p->views[(size_t)a * (size_t)p->size + (size_t)b];
}

const char *pairs_way(const struct pairs *p, int a, int b)
{
	return view_of(p, a, b)->way;
}

enum gpu_relation pairs_relation(const struct pairs *p, int a, int b)
{
	return (enum gpu_relation)view_of(p, a, b)->relation;
}

int pairs_explain(const struct pairs *p, int a, int b, int i, char why[PAIRS_WHY_BYTES])
{
	const struct offer *own = &p->ranks[a].offers[i];
	const struct offer *theirs = offer_of(&p->ranks[b], own->name);
	const struct view *view = view_of(p, a, b);

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

static void add_pair(struct pairs *p, const char *signature, int a, int b)
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
static void sort_pairs(struct pairs *p)
{
	for (int a = 0; a < p->size; a++)
		for (int b = a + 1; b < p->size; b++) {
			char text[1024];
			size_t used =
				(size_t)snprintf(text, sizeof text, "%s %d", pairs_way(p, a, b),
						 (int)pairs_relation(p, a, b));
			for (int i = 0; i < p->ranks[a].offer_count; i++) {
				const struct offer *own = &p->ranks[a].offers[i];
				const struct offer *theirs = offer_of(&p->ranks[b], own->name);
				used += (size_t)snprintf(text + used, sizeof text - used,
							 " %s %d %d %d", own->name, own->state,
							 theirs ? theirs->state : -1,
							 view_of(p, a, b)->reach[i]);
			}
			add_pair(p, text, a, b);
		}
}

tutti_status pairs_gather(struct pairs *p, tutti_comm *comm, const struct machine *m)
{
	size_t n = (size_t)comm->size;
	struct presentation *self = must_alloc(1, sizeof *self);
	struct view *views = must_alloc(n, sizeof *views);

	*p = (struct pairs){.size = comm->size, .no_window = find_no_window(comm)};
	p->ranks = must_alloc(n, sizeof *p->ranks);
	p->views = must_alloc(comm->rank == 0 ? n * n : 1, sizeof *p->views);
	present(self, comm, m);
	tutti_status status = tutti_all_gather(self, p->ranks, sizeof *self, TUTTI_U8, comm, NULL);
	for (int r = 0; status == TUTTI_OK && r < comm->size; r++)
		if (r != comm->rank)
			look_at_peer(&views[r], comm, m, &p->ranks[r], r);
	if (status == TUTTI_OK)
		status = tutti_gather(views, p->views, n * sizeof *views, TUTTI_U8, 0, comm, NULL);
	free(views);
	free(self);
	if (status == TUTTI_OK && comm->rank == 0)
		sort_pairs(p);
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
	free(p->ranks);
}
