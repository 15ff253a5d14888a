/* Regions: this rank's part is made and described, and then shared with the other ranks in steps.
 */
#include "cuda/regions.h"

#include "core/auth.h"
#include "core/log.h"
#include "core/status.h"
#include "cuda/channels_internal.h"
#include "cuda/region_parts.h"

#include <stdio.h>
#include <unistd.h>

static tutti_status regions_clear(const struct cuda_channels *c, const struct region_part *p,
				  size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(memset_d8_async, p->memory.address, 0, bytes, c->stream);
	CUDA_TRY(stream_synchronize, c->stream);
	return TUTTI_OK;
}

/* A rank that cannot be reached finds no descriptor, and says so when it maps. */
static void regions_send_to(const struct cuda_channels *c, int r, enum cuda_door_what what,
			    uint64_t token, int fd)
{
	struct cuda_door_note note = {token, (uint32_t)c->rank, what};

	if (fd >= 0 && cuda_door_send(c->doors[r], &note, fd) != TUTTI_OK)
		log_info("cannot send a descriptor of GPU memory to rank %d of this node: %s", r,
			 last_error());
}

static void regions_describe_memory(const struct cuda_channels *c, const struct region_part *p,
				    struct cuda_region *region)
{
	int fd;

	p->memory.way->describe(&p->memory, region, &fd);
	for (int r = 0; r < c->size; r++)
		if (c->is_opened[r])
			regions_send_to(c, r, CUDA_DOOR_PART, region->token, fd);
	if (fd >= 0)
		close(fd);
}

/* Ranks of this process, too, import the object, so that each holds it. */
static void regions_create_multicast(const struct cuda_channels *c, struct region_part *p,
				     struct cuda_region *region)
{
	int fd;

	if (cuda_multicast_create(&p->multicast, &p->memory, c->size) != TUTTI_OK) {
		log_info("no multicast: %s", last_error());
		last_error_clear();
		return;
	}
	cuda_multicast_describe(&p->multicast, &p->memory, region, &fd);
	for (int r = 1; r < c->size; r++)
		regions_send_to(c, r, CUDA_DOOR_MULTICAST, region->token, fd);
	if (fd >= 0)
		close(fd);
}

static void regions_describe(const struct cuda_channels *c, const struct cuda_region_wish *wish,
			     struct region_part *p, struct cuda_region *region)
{
	*region = (struct cuda_region){.address = p->memory.address,
				       .bytes = p->memory.bytes,
				       .number = p->number,
				       .way = p->memory.way->number,
				       .goes_on = 1};
	auth_random(&region->token, sizeof region->token);
	regions_describe_memory(c, p, region);
	if (wish->wants_multicast && !c->no_multicast && c->rank == 0 &&
	    p->memory.way == &region_by_pieces)
		regions_create_multicast(c, p, region);
}

static tutti_status regions_alloc(const struct cuda_channels *c,
				  const struct cuda_region_wish *wish, struct region_part **p)
{
	size_t bytes = wish->bytes ? wish->bytes : 1;
	bool is_plain = wish->is_plain || !c->device->pieces.types;

	TRY(region_part_take(c, bytes, is_plain, p));
	tutti_status status = regions_clear(c, *p, bytes);
	if (status != TUTTI_OK)
		cuda_region_free((void *)(uintptr_t)(*p)->memory.address);
	return status;
}

tutti_status cuda_region_alloc(struct cuda_channels *c, const struct cuda_region_wish *wish,
			       void **ptr, struct cuda_region *region)
{
	struct cuda_visit visit;
	struct region_part *p = NULL;

	*region = (struct cuda_region){.number = 0};
	TRY(cuda_enter(c->device, &visit));
	tutti_status status = regions_alloc(c, wish, &p);
	if (status == TUTTI_OK) {
		regions_describe(c, wish, p, region);
		*ptr = (void *)(uintptr_t)p->memory.address;
	}
	cuda_leave(&visit);
	return status;
}

/* ---- the parts of others ---- */

static void regions_end_view(struct region_view *view)
{
	if (view->way)
		view->way->unmap(&view->here);
	view->way = NULL;
}

static tutti_status regions_map_view(struct cuda_channels *c, const struct cuda_region *region,
				     int r, struct region_view *view)
{
	struct cuda_door_note note = {region->token, (uint32_t)r, CUDA_DOOR_PART};
	struct region_source source = {!c->is_opened[r], -1};
	char before[80];

	view->way = region->way == region_by_ipc.number ? &region_by_ipc : &region_by_pieces;
	if (c->is_opened[r] && c->door)
		source.fd = cuda_door_take(c->door, &note);
	tutti_status status = view->way->map(&view->here, c->device, region, source);
	if (source.fd >= 0)
		close(source.fd);
	if (status == TUTTI_OK)
		return TUTTI_OK;
	view->way = NULL;
	snprintf(before, sizeof before,
		 "the block of rank %d of those on this host cannot be mapped: ", r);
	return fail_before(status, before);
}

static tutti_status regions_set_word(const struct cuda_channels *c, size_t at, uint64_t value)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(memcpy_async, c->segment->regions + at * sizeof value,
		 (CUdeviceptr)(uintptr_t)&value, sizeof value, c->stream);
	CUDA_TRY(stream_synchronize, c->stream);
	return TUTTI_OK;
}

static size_t regions_word_of(const struct cuda_region *region, int r)
{
	return (size_t)r * CHANNEL_REGIONS + region->number;
}

static tutti_status regions_set_multicast(const struct cuda_channels *c,
					  const struct cuda_region *regions, uint64_t address)
{
	for (int r = 0; r < c->size; r++)
		TRY(regions_set_word(c, CHANNEL_MULTICAST + regions_word_of(&regions[r], r),
				     address));
	return TUTTI_OK;
}

static tutti_status regions_note(struct cuda_channels *c, const struct cuda_region *region, int r)
{
	struct region_view *view = &c->views[regions_word_of(region, r)];

	regions_end_view(view); /* what had the number before is not used any more */
	view->here.address = region->address;
	if (r != c->rank)
		TRY(regions_map_view(c, region, r, view));
	return regions_set_word(c, regions_word_of(region, r), view->here.address);
}

static tutti_status regions_map_all(struct cuda_channels *c, const struct cuda_region *regions)
{
	for (int r = 0; r < c->size; r++)
		TRY(regions_note(c, &regions[r], r));
	return regions_set_multicast(c, regions, 0);
}

/* ---- multicast: a rank that fails says so, and then none has it ---- */

static tutti_status regions_join_multicast(const struct cuda_channels *c, struct region_part *p,
					   const struct cuda_region *maker)
{
	struct cuda_door_note note = {maker->token, 0, CUDA_DOOR_MULTICAST};
	int fd = c->door ? cuda_door_take(c->door, &note) : -1;
	tutti_status status = TUTTI_OK;

	if (p->memory.way != &region_by_pieces || p->memory.bytes != maker->bytes)
		status = fail(TUTTI_ERR_UNSUPPORTED, "the ranks' blocks differ");
	else if (c->rank != 0)
		status = cuda_multicast_import(&p->multicast, maker, fd);
	if (fd >= 0)
		close(fd);
	TRY(status);
	return cuda_multicast_add(&p->multicast, &p->memory);
}

static bool regions_all_have_multicast(const struct cuda_channels *c,
				       const struct cuda_region *regions)
{
	for (int r = 0; r < c->size; r++)
		if (!regions[r].has_multicast)
			return false;
	return true;
}

/* Whether this rank has come through its step. */
static bool regions_is_step_done(tutti_status status)
{
	if (status == TUTTI_OK)
		return true;
	log_info("no multicast: %s", last_error());
	last_error_clear();
	return false;
}

/* To the next step, or to the end. */
static void regions_go_on(struct region_part *p, struct cuda_region *own, enum region_step next,
			  bool has_multicast)
{
	p->step = next;
	own->goes_on = next != REGION_DONE;
	own->has_multicast = has_multicast;
}

static tutti_status regions_step_map(struct cuda_channels *c, struct region_part *p,
				     const struct cuda_region *regions, struct cuda_region *own)
{
	bool is_made = regions[0].has_multicast;

	TRY(regions_map_all(c, regions));
	regions_go_on(p, own, is_made ? REGION_BIND : REGION_DONE,
		      is_made && regions_is_step_done(regions_join_multicast(c, p, &regions[0])));
	return TUTTI_OK;
}

static void regions_step_bind(const struct cuda_channels *c, struct region_part *p,
			      const struct cuda_region *regions, struct cuda_region *own)
{
	bool all = regions_all_have_multicast(c, regions);

	regions_go_on(p, own, all ? REGION_USE : REGION_DONE,
		      all && regions_is_step_done(cuda_multicast_bind(&p->multicast, &p->memory)));
	if (!all)
		cuda_multicast_end(&p->multicast, &p->memory);
}

static tutti_status regions_step_use(const struct cuda_channels *c, struct region_part *p,
				     const struct cuda_region *regions, struct cuda_region *own)
{
	bool all = regions_all_have_multicast(c, regions);

	regions_go_on(p, own, REGION_DONE, all);
	if (all)
		return regions_set_multicast(c, regions, p->multicast.here.address);
	cuda_multicast_end(&p->multicast, &p->memory);
	return TUTTI_OK;
}

static tutti_status regions_take_step(struct cuda_channels *c, struct region_part *p,
				      const struct cuda_region *regions, struct cuda_region *own)
{
	switch (p->step) {
	case REGION_MAP:
		return regions_step_map(c, p, regions, own);
	case REGION_BIND:
		regions_step_bind(c, p, regions, own);
		return TUTTI_OK;
	default:
		return regions_step_use(c, p, regions, own);
	}
}

tutti_status cuda_region_step(struct cuda_channels *c, const struct cuda_region *regions,
			      struct cuda_region *own)
{
	struct region_part *p = region_part_incomplete(c);
	struct cuda_visit visit;

	own->goes_on = 0;
	if (!p) /* others go on */
		return TUTTI_OK;
	TRY(cuda_enter(c->device, &visit));
	tutti_status status = regions_take_step(c, p, regions, own);
	cuda_leave(&visit);
	return status;
}

void cuda_regions_unmap(struct cuda_channels *c)
{
	if (region_may_still_run(c))
		return;
	for (int i = 0; i < CHANNEL_RANKS * CHANNEL_REGIONS; i++)
		regions_end_view(&c->views[i]);
}
