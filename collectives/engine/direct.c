/* Memory of devices as the adapters of one endpoint know it: whole allocations, mapped when a call
 * first needs them and kept for the next ones. An allocation that was freed is told from a later
 * one at the same address by its id. */
#include "collectives/engine/direct.h"

#include "core/log.h"
#include "core/memory/dma_buf.h"
#include "transport/guarded.h"

#include <stdlib.h>

struct direct_map {
	struct memory_extent extent;
	const struct memory_kind *kind; /* NULL: it is free                     */
	void *map;                      /* NULL: the driver or adapter refuses  */
	int users;                      /* works                                */
	uint64_t used;                  /* when it was last taken, as a count   */
};

static void direct_drop(struct engine_direct *d, struct direct_map *m)
{
	if (m->map)
		transport_unmap(d->endpoint, m->map);
	*m = (struct direct_map){0};
}

/* Memory that has been freed goes: its mapping keeps it from the driver. */
static void direct_drop_if_stale(struct engine_direct *d, struct direct_map *m)
{
	struct memory_extent now;

	if (!m->kind || m->users)
		return;
	if (!m->kind->extent(&now, m->extent.base) || now.id != m->extent.id)
		direct_drop(d, m);
}

static struct direct_map *direct_find(struct engine_direct *d, const struct memory_kind *kind,
				      const struct memory_extent *extent)
{
	for (int i = 0; i < DIRECT_MAPS_MAX; i++) {
		struct direct_map *m = &d->maps[i];
		if (m->kind == kind && m->extent.base == extent->base && m->extent.id == extent->id)
			return m;
	}
	return NULL;
}

/* A free one, or the one that was not used for longest; NULL: works use all. */
static struct direct_map *direct_make_room(struct engine_direct *d)
{
	struct direct_map *oldest = NULL;

	for (int i = 0; i < DIRECT_MAPS_MAX; i++) {
		struct direct_map *m = &d->maps[i];
		direct_drop_if_stale(d, m);
		if (!m->kind)
			return m;
		if (!m->users && (!oldest || m->used < oldest->used))
			oldest = m;
	}
	if (oldest)
		direct_drop(d, oldest);
	return oldest;
}

/* One that is refused is kept as well: it is not tried with each call. */
static struct direct_map *direct_add(struct engine_direct *d, const struct memory_kind *kind,
				     const struct memory_extent *extent)
{
	struct direct_map *m = direct_make_room(d);
	void *map = NULL;

	if (!m)
		return NULL;
	if (transport_map(d->endpoint, kind->id, extent->base, extent->bytes, &map) != TUTTI_OK &&
	    !d->has_told) {
		d->has_told = true;
		log_info("%s; its messages go through copies in host memory", last_error());
	}
	if (!map)
		last_error_clear(); /* of no call */
	*m = (struct direct_map){.extent = *extent, .kind = kind, .map = map};
	return m;
}

struct direct_map *direct_take(struct engine *e, const struct memory_kind *kind, const void *ptr,
			       size_t bytes)
{
	struct engine_direct *d = &e->direct;
	struct memory_extent extent;

	if (!d->endpoint || !kind->extent || !kind->extent(&extent, ptr) ||
	    bytes > extent.bytes - (size_t)((const char *)ptr - (const char *)extent.base))
		return NULL;
	if (!d->maps && !(d->maps = calloc(DIRECT_MAPS_MAX, sizeof *d->maps)))
		return NULL;
	direct_drop_if_stale(d, &d->maps[d->used % DIRECT_MAPS_MAX]);
	struct direct_map *m = direct_find(d, kind, &extent);
	if (!m)
		m = direct_add(d, kind, &extent);
	if (!m)
		return NULL;
	m->used = ++d->used;
	if (!m->map)
		return NULL;
	m->users++;
	return m;
}

void direct_give(struct engine *e, struct direct_map *m)
{
	if (m && e->direct.maps)
		m->users--;
}

void *direct_map_of(const struct direct_map *m)
{
	return m ? m->map : NULL;
}

bool direct_reaches(const struct engine *e, int peer, int kind)
{
	return e->links.routes[peer].maps >> kind & 1;
}

void direct_open(struct engine *e)
{
	for (int r = 0; r < e->config.size; r++)
		if (e->links.routes[r].maps)
			e->direct.endpoint = e->links.routes[r].endpoint;
}

void direct_close(struct engine *e)
{
	struct engine_direct *d = &e->direct;

	for (int i = 0; d->maps && i < DIRECT_MAPS_MAX; i++)
		direct_drop(d, &d->maps[i]);
	free(d->maps);
	*d = (struct engine_direct){0};
}
