/* The table of regions, in order of addresses; reservations; shadows that wait to be unmapped. */
#include "tests/cuda/driver/region.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct region **table;
static size_t n, room;
static atomic_uint_fast64_t generation;

static struct reservation {
	struct reservation *next;
	uintptr_t user;
	size_t bytes;
} * reservations;

static struct shadow {
	struct shadow *next;
	char *at;
	size_t bytes;
} * retired;
static unsigned running;

/* Index of the first region that ends behind the address. */
static size_t search(uintptr_t address)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (table[middle]->user + table[middle]->bytes <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct region *region_add(const struct region *like)
{
	static uint64_t ids;
	struct region *region = must_alloc(sizeof *region);
	size_t i = search(like->user);

	*region = *like;
	region->id = ++ids;
	if (n == room) {
		struct region **more = must_alloc((room * 2 + 64) * sizeof *more);
		if (n)
			memcpy(more, table, n * sizeof *more);
		free(table);
		table = more;
		room = room * 2 + 64;
	}
	memmove(table + i + 1, table + i, (n - i) * sizeof *table);
	table[i] = region;
	n++;
	return region;
}

void region_remove(struct region *region)
{
	size_t i = search(region->user);

	memmove(table + i, table + i + 1, (n - i - 1) * sizeof *table);
	n--;
	region_forget();
	free(region);
}

struct region *region_find(CUdeviceptr address)
{
	size_t i = search((uintptr_t)address);

	return i < n && table[i]->user <= address ? table[i] : NULL;
}

struct region *region_next(uintptr_t from)
{
	size_t i = search(from);

	if (i < n && table[i]->user < from)
		i++;
	return i < n ? table[i] : NULL;
}

void region_forget(void)
{
	atomic_fetch_add(&generation, 1);
}

uint64_t region_generation(void)
{
	return atomic_load(&generation);
}

char *region_reach(int gpu, CUdeviceptr address, size_t bytes)
{
	struct region *region = region_find(address);
	unsigned bit = 1U << gpu;

	if (region == NULL || region->kind == REGION_MULTICAST ||
	    bytes > region->bytes - (address - region->user))
		return NULL;
	if (region->kind != REGION_HOST && !(region->access & bit) &&
	    !(region->kind == REGION_ALLOCATED && contexts[gpu].peers >> region->gpu & 1U))
		return NULL;
	return region->shadow + (address - region->user);
}

void region_reserve(uintptr_t user, size_t bytes)
{
	struct reservation *r = must_alloc(sizeof *r);

	*r = (struct reservation){reservations, user, bytes};
	reservations = r;
}

void region_unreserve(uintptr_t user)
{
	struct reservation **at = &reservations, *r;

	while ((*at)->user != user)
		at = &(*at)->next;
	r = *at;
	*at = r->next;
	free(r);
}

size_t region_reserved(uintptr_t user)
{
	for (struct reservation *r = reservations; r; r = r->next)
		if (r->user == user)
			return r->bytes;
	return 0;
}

bool region_is_reserved(CUdeviceptr address)
{
	for (struct reservation *r = reservations; r; r = r->next)
		if (address - r->user < r->bytes)
			return true;
	return false;
}

void region_retire(char *shadow, size_t bytes)
{
	struct shadow *s = must_alloc(sizeof *s);

	*s = (struct shadow){retired, shadow, bytes};
	retired = s;
	running++;
	region_work_ends();
}

void region_work_begins(void)
{
	running++;
}

void region_work_ends(void)
{
	if (--running > 0)
		return;
	while (retired) {
		struct shadow *s = retired;
		retired = s->next;
		munmap(s->at, s->bytes);
		free(s);
	}
}
