/* The allocations of this process by address: sorted, read without a lock. */
#include "collectives/window/allocations.h"

/* A reader that meets an odd version, or another one afterwards, reads again. Fields are released
 * by the writer and acquired by readers, so that what they see is no older than the version they
 * saw. */
static struct {
	_Atomic uint32_t version, count;
	struct {
		_Atomic uintptr_t first, end;
		_Atomic uint64_t id;
	} entries[ALLOCATIONS_MAX];
} table;

void allocation_table_write(const struct allocation *list)
{
	uint32_t count = 0;

	atomic_fetch_add(&table.version, 1);
	for (const struct allocation *a = list; a; a = a->next) {
		uintptr_t first = (uintptr_t)a->base, end = first + a->stride * (size_t)a->size;
		if (a->owned == 0 || a->is_withdrawn)
			continue;
		atomic_store_explicit(&table.entries[count].first, first, memory_order_release);
		atomic_store_explicit(&table.entries[count].end, end, memory_order_release);
		atomic_store_explicit(&table.entries[count++].id, a->id, memory_order_release);
	}
	atomic_store_explicit(&table.count, count, memory_order_release);
	atomic_fetch_add(&table.version, 1);
}

static struct reach allocation_table_find(uintptr_t ptr, size_t bytes, uint32_t count)
{
	uint32_t low = 0, high = count < ALLOCATIONS_MAX ? count : ALLOCATIONS_MAX;

	while (low < high) {
		uint32_t mid = (low + high) / 2;
		uintptr_t first =
			atomic_load_explicit(&table.entries[mid].first, memory_order_acquire);
		uintptr_t end = atomic_load_explicit(&table.entries[mid].end, memory_order_acquire);
		if (ptr < first)
			high = mid;
		else if (ptr >= end)
			low = mid + 1;
		else if (bytes > end - ptr)
			break;
		else
			return (struct reach){
				atomic_load_explicit(&table.entries[mid].id, memory_order_acquire),
				ptr - first};
	}
	return (struct reach){0, 0};
}

struct reach memory_find(const void *ptr, size_t bytes)
{
	for (;;) {
		uint32_t version = atomic_load_explicit(&table.version, memory_order_acquire);
		uint32_t count = atomic_load_explicit(&table.count, memory_order_acquire);
		struct reach reach = allocation_table_find((uintptr_t)ptr, bytes, count);
		if (!(version & 1) &&
		    atomic_load_explicit(&table.version, memory_order_relaxed) == version)
			return reach;
	}
}
