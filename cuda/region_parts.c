/* The parts of this process, in one list: those in use, those that are kept until as much, or not
 * much less, is asked for, and those that are to be given back later. */
#include "cuda/region_parts.h"

#include "core/clock.h"
#include "core/net.h"
#include "core/status.h"

#include <pthread.h>
#include <stdlib.h>

static struct region_part *parts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list and what is in it */

static bool is_taken(const struct cuda_channels *c, uint32_t number)
{
	for (const struct region_part *p = parts; p; p = p->next)
		if (p->is_used && p->channels == c && p->number == number)
			return true;
	return false;
}

/* The smallest number of a region that this rank has free, or 0. */
static uint32_t free_number(const struct cuda_channels *c)
{
	uint32_t number = 1;

	while (number < CHANNEL_REGIONS && is_taken(c, number))
		number++;
	return number < CHANNEL_REGIONS ? number : 0;
}

/* The smallest that fits, unless half of it would do. */
static struct region_part *find_kept(const struct cuda_device *device, size_t bytes)
{
	struct region_part *best = NULL;

	for (struct region_part *p = parts; p; p = p->next)
		if (!p->is_used && !p->due_ns && p->memory.device == device &&
		    p->memory.bytes >= bytes && p->memory.bytes / 2 < bytes &&
		    (!best || p->memory.bytes < best->memory.bytes))
			best = p;
	return best;
}

static void region_parts_take(struct region_part *p, const struct cuda_channels *c, uint32_t number)
{
	p->channels = c;
	p->number = number;
	p->is_used = true;
	p->step = REGION_MAP;
}

/* Only this rank takes numbers of its channels. */
static void add_part(struct region_part *p, const struct cuda_channels *c)
{
	pthread_mutex_lock(&lock);
	region_parts_take(p, c, free_number(c));
	p->next = parts;
	parts = p;
	pthread_mutex_unlock(&lock);
}

/* A kept part, or room for a new one. */
static tutti_status find_part(const struct cuda_channels *c, size_t bytes, bool is_plain,
			      struct region_part **out)
{
	struct region_part *p = NULL;

	pthread_mutex_lock(&lock);
	uint32_t number = free_number(c);
	if (number && is_plain)
		p = find_kept(c->device, bytes);
	if (p)
		region_parts_take(p, c, number);
	pthread_mutex_unlock(&lock);
	if (!number)
		return fail(TUTTI_ERR_MEMORY,
			    "rank %d has %d blocks of GPU memory that others map already", c->named,
			    CHANNEL_REGIONS - 1);
	*out = p;
	return TUTTI_OK;
}

/* ---- the end of a part ---- */

bool region_may_still_run(const struct cuda_channels *c)
{
	return c && c->has_failed && cuda_channels_is_running(c, NULL);
}

/* When the part may be given back: now (0), or later. A rank whose call was aborted may move bytes
 * at the multicast address a little longer: it does not wait while it moves. Without this rank's
 * memory there it would fault. At its own mappings it finds the memory of others. */
static uint64_t due_of(const struct region_part *p)
{
	bool is_shared = p->multicast.handle && p->channels && p->channels->has_failed;

	return is_shared ? deadline_after_ms(CUDA_END_MS) : p->due_ns;
}

static void leave_channels(struct region_part *p)
{
	p->is_lost |= region_may_still_run(p->channels);
	p->due_ns = due_of(p);
	p->channels = NULL;
}

static void region_parts_take_out(struct region_part *p)
{
	struct region_part **at = &parts;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
}

/* Takes the part out of the list, to be given back; NULL: it stays there. */
static struct region_part *region_parts_release(struct region_part *p)
{
	leave_channels(p);
	if (p->is_lost)
		return NULL;
	p->is_used = false;
	if (p->memory.way->is_kept || p->due_ns > clock_now_ns())
		return NULL;
	region_parts_take_out(p);
	return p;
}

/* Without the lock: the driver may wait for what runs on the device. */
static void region_parts_give_back(struct region_part *p)
{
	struct cuda_visit visit;

	if (cuda_enter(p->memory.device, &visit) == TUTTI_OK) {
		cuda_multicast_end(&p->multicast, &p->memory);
		p->memory.way->end(&p->memory);
		cuda_leave(&visit);
	}
	free(p);
}

/* Those that are due. Returns when the next one is, or 0. */
static uint64_t give_back_due(void)
{
	uint64_t next, now = clock_now_ns();
	struct region_part *p;

	do {
		next = 0;
		pthread_mutex_lock(&lock);
		for (p = parts; p; p = p->next) {
			bool waits = !p->is_used && p->due_ns;
			if (waits && p->due_ns <= now)
				break;
			if (waits && (!next || p->due_ns < next))
				next = p->due_ns;
		}
		if (p)
			region_parts_take_out(p);
		pthread_mutex_unlock(&lock);
		if (p)
			region_parts_give_back(p);
	} while (p);
	return next;
}

/* ---- a new one ---- */

/* Where memory is short, what is to be given back soon is awaited. */
static tutti_status make_memory(struct region_memory *memory, size_t bytes)
{
	for (int tries = 0;; tries++) {
		uint64_t next = give_back_due();
		tutti_status status = memory->way->make(memory, bytes);
		if (status != TUTTI_ERR_MEMORY || !next)
			return status;
		net_pause(tries, next);
	}
}

static tutti_status new_part(const struct cuda_channels *c, size_t bytes, bool is_plain,
			     struct region_part **out)
{
	struct region_part *p = calloc(1, sizeof *p);

	if (!p)
		return fail(TUTTI_ERR_MEMORY, "no memory for a block's entry");
	p->memory.device = c->device;
	p->memory.way = is_plain ? &region_by_ipc : &region_by_pieces;
	tutti_status status = make_memory(&p->memory, bytes);
	if (status != TUTTI_OK) {
		free(p);
		return status;
	}
	add_part(p, c);
	*out = p;
	return TUTTI_OK;
}

struct region_part *region_part_incomplete(const struct cuda_channels *c)
{
	pthread_mutex_lock(&lock);
	struct region_part *p = parts;
	while (p && !(p->is_used && p->channels == c && p->step != REGION_DONE))
		p = p->next;
	pthread_mutex_unlock(&lock);
	return p;
}

tutti_status region_part_take(const struct cuda_channels *c, size_t bytes, bool is_plain,
			      struct region_part **p)
{
	TRY(find_part(c, bytes, is_plain, p));
	return *p ? TUTTI_OK : new_part(c, bytes, is_plain, p);
}

bool cuda_region_free(void *ptr)
{
	pthread_mutex_lock(&lock);
	struct region_part *p = parts, *gone = NULL;
	while (p && !(p->is_used && p->memory.address == (CUdeviceptr)(uintptr_t)ptr))
		p = p->next;
	if (p)
		gone = region_parts_release(p);
	pthread_mutex_unlock(&lock);
	if (gone)
		region_parts_give_back(gone);
	return p != NULL;
}

void cuda_regions_forget(const struct cuda_channels *c)
{
	pthread_mutex_lock(&lock);
	for (struct region_part *p = parts; p; p = p->next)
		if (p->channels == c)
			leave_channels(p);
	pthread_mutex_unlock(&lock);
}

static bool region_parts_contains(const struct region_part *p, const void *ptr)
{
	CUdeviceptr pointer = (CUdeviceptr)(uintptr_t)ptr;

	return p->is_used && pointer >= p->memory.address &&
	       pointer - p->memory.address < p->memory.bytes;
}

bool cuda_region_find(const struct cuda_channels *c, const void *ptr, uint64_t *place)
{
	pthread_mutex_lock(&lock);
	const struct region_part *p = parts;
	while (p && !(p->channels == c && region_parts_contains(p, ptr)))
		p = p->next;
	if (p)
		*place = channel_place(p->number, (CUdeviceptr)(uintptr_t)ptr - p->memory.address);
	pthread_mutex_unlock(&lock);
	return p != NULL;
}

bool cuda_region_holds(const void *ptr)
{
	pthread_mutex_lock(&lock);
	const struct region_part *p = parts;
	while (p && !region_parts_contains(p, ptr))
		p = p->next;
	pthread_mutex_unlock(&lock);
	return p != NULL;
}
