/* Slots for values that do not stay. */
#include "train/state/trainer_state.h"

#include "train/base/base.h"

#include <stdlib.h>

enum { NO_SLOT = -1 };

static tutti_status slot_pool_add(struct slot_pool *pool, struct pool_slot slot)
{
	TRY(array_grow(&pool->slots, (size_t)pool->count, sizeof slot, "a trainer's tables"));
	pool->slots[pool->count++] = slot;
	return TUTTI_OK;
}

/* Counts planned slots only: all ranks have the same. */
static int count_from(const struct slot_pool *pool, int slots, size_t bytes)
{
	int count = 0;

	for (int i = 0; i < slots; i++)
		count += pool->slots[i].is_planned && pool->slots[i].bytes >= bytes;
	return count;
}

tutti_status pool_plan(struct slot_pool *pool, struct slot_sizes *all)
{
	int before = pool->count, used = 0;
	tutti_status status = TUTTI_OK;

	for (int i = all->count - 1; i >= 0 && status == TUTTI_OK; i--)
		if (count_from(pool, before, all->bytes[i]) > used)
			used++;
		else
			status = slot_pool_add(pool, (struct pool_slot){.bytes = all->bytes[i],
									.is_planned = true});
	slots_finish(all);
	return status;
}

static bool slot_pool_is_missing(const struct pool_slot *slot)
{
	return !slot->memory && slot->is_planned;
}

size_t pool_missing(const struct slot_pool *pool)
{
	size_t bytes = 0;

	for (int i = 0; i < pool->count; i++)
		bytes += slot_pool_is_missing(&pool->slots[i]) ? pool->slots[i].bytes : 0;
	return bytes;
}

tutti_status pool_fill(tutti_trainer *trainer, struct slot_pool *pool, tutti_comm *comm)
{
	size_t bytes = pool_missing(pool);

	if (bytes == 0)
		return TUTTI_OK;
	TRY(values_share(trainer, pool->home, &pool->region, comm, bytes));
	trainer->memory.held_bytes += bytes;
	char *next = pool->region.memory;
	for (int i = 0; i < pool->count; i++) {
		pool->slots[i].memory = next;
		next += pool->slots[i].bytes;
	}
	return TUTTI_OK;
}

static tutti_status slot_pool_make_own(tutti_trainer *trainer, const struct home *home,
				       struct pool_slot *slot)
{
	void *memory;

	TRY(values_alloc(home, &memory, slot->bytes, "a whole unit or gradient"));
	slot->memory = memory;
	slot->is_local = true;
	trainer->memory.held_bytes += slot->bytes;
	return TUTTI_OK;
}

tutti_status pool_fill_local(tutti_trainer *trainer, struct slot_pool *pool)
{
	for (int i = 0; i < pool->count; i++)
		if (slot_pool_is_missing(&pool->slots[i]))
			TRY(slot_pool_make_own(trainer, pool->home, &pool->slots[i]));
	return TUTTI_OK;
}

static void slot_pool_unmake(tutti_trainer *trainer, const struct home *home,
			     struct pool_slot *slot)
{
	if (slot->is_local) {
		values_free(home, slot->memory);
		trainer->memory.held_bytes -= slot->bytes;
	}
	*slot = (struct pool_slot){0};
}

void pool_mark(struct slot_pool *pool)
{
	pool->marked = pool->count;
}

void pool_forget(tutti_trainer *trainer, struct slot_pool *pool)
{
	while (pool->count > pool->marked)
		slot_pool_unmake(trainer, pool->home, &pool->slots[--pool->count]);
}

/* The smallest slot that fits, or NO_SLOT. */
static int slot_pool_smallest(const struct slot_pool *pool, size_t bytes, bool is_free)
{
	int best = NO_SLOT;

	for (int i = 0; i < pool->count; i++) {
		const struct pool_slot *slot = &pool->slots[i];
		if (slot->bytes < bytes || (is_free && slot->used))
			continue;
		if (best == NO_SLOT || slot->bytes < pool->slots[best].bytes)
			best = i;
	}
	return best;
}

bool pool_has(const struct slot_pool *pool, size_t bytes)
{
	int kind = slot_pool_smallest(pool, bytes, false),
	    found = slot_pool_smallest(pool, bytes, true);

	return found != NO_SLOT && pool->slots[found].bytes == pool->slots[kind].bytes;
}

/* Frees the slots that are not planned and not in use. */
static void drop_unused(tutti_trainer *trainer, struct slot_pool *pool)
{
	for (int i = 0; i < pool->count; i++)
		if (!pool->slots[i].is_planned && !pool->slots[i].used)
			slot_pool_unmake(trainer, pool->home, &pool->slots[i]);
}

tutti_status pool_grows(tutti_trainer *trainer, size_t bytes)
{
	size_t limit = trainer->config.memory_limit;

	if (limit && trainer->memory.held_bytes + bytes > limit) {
		for (int h = 0; h < trainer->home_count; h++) {
			drop_unused(trainer, &trainer->homes[h].data_pool);
			drop_unused(trainer, &trainer->homes[h].grad_pool);
		}
	}
	if (!limit || trainer->memory.held_bytes + bytes <= limit)
		return TUTTI_OK;
	return fail(TUTTI_ERR_MEMORY,
		    "In this order of units rank %d needs %zu bytes: %zu that it holds, and "
		    "%zu for more whole units or gradients at once; memory_limit is %zu.",
		    trainer->rank, trainer->memory.held_bytes + bytes, trainer->memory.held_bytes,
		    bytes, limit);
}

/* An entry of the table without memory. */
static tutti_status empty_entry(struct slot_pool *pool, int *entry)
{
	for (*entry = 0; *entry < pool->count; ++*entry)
		if (!pool->slots[*entry].memory)
			return TUTTI_OK;
	return slot_pool_add(pool, (struct pool_slot){0});
}

static tutti_status make_more(tutti_trainer *trainer, struct slot_pool *pool, size_t bytes,
			      int *made)
{
	struct pool_slot slot = {.bytes = slot_bytes(bytes)};

	TRY(pool_grows(trainer, slot.bytes));
	TRY(empty_entry(pool, made));
	TRY(slot_pool_make_own(trainer, pool->home, &slot));
	pool->slots[*made] = slot;
	return TUTTI_OK;
}

tutti_status pool_take(tutti_trainer *trainer, struct slot_pool *pool, size_t bytes, char **memory)
{
	int found = slot_pool_smallest(pool, bytes, true);

	if (found == NO_SLOT)
		TRY(make_more(trainer, pool, bytes, &found));
	pool->slots[found].used = bytes;
	*memory = pool->slots[found].memory;
	trainer->memory.transient_bytes += bytes;
	if (trainer->memory.transient_bytes > trainer->stats.gathered_peak_bytes)
		trainer->stats.gathered_peak_bytes = trainer->memory.transient_bytes;
	return TUTTI_OK;
}

void pool_give(tutti_trainer *trainer, struct slot_pool *pool, char **memory)
{
	for (int i = 0; *memory && i < pool->count; i++) {
		struct pool_slot *slot = &pool->slots[i];
		if (slot->memory != *memory)
			continue;
#ifdef TUTTI_POISON
		values_poison(pool->home, slot->memory, slot->used);
#endif
		trainer->memory.transient_bytes -= slot->used;
		slot->used = 0;
		*memory = NULL;
	}
}

void pool_free(struct slot_pool *pool)
{
	for (int i = 0; i < pool->count; i++)
		if (pool->slots[i].is_local)
			values_free(pool->home, pool->slots[i].memory);
	values_unshare(pool->home, &pool->region);
	free(pool->slots);
	*pool = (struct slot_pool){0};
}
