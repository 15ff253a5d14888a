/* The memory of a trainer. Memory that ranks of a node read from each other (parameters, gradients,
 * slots) is shared (trainer_memory_values_share), one region of each class. */
#include "train/state/trainer_memory.h"

#include "train/base/base.h"
#include "train/state/trainer_state.h"

#include <stdlib.h>

/* ---- shared values ---- */

/* Asks for a byte first: without kernels that reach each other tutti_mem_alloc gives memory of the
 * host. */
static tutti_status trainer_memory_map_on_devices(void **memory, tutti_comm *comm, size_t bytes,
						  bool *is_there)
{
	void *probe;

	TRY(tutti_mem_alloc(&probe, 1, comm));
	*is_there = train_device_of(probe) >= 0;
	tutti_mem_free(probe);
	return *is_there ? tutti_mem_alloc(memory, bytes, comm) : TUTTI_OK;
}

/* The ranks of comm do the same. */
static tutti_status trainer_memory_share_on_device(const tutti_trainer *trainer,
						   const struct home *home,
						   struct shared_values *values, tutti_comm *comm,
						   size_t bytes)
{
	bool is_there = false;
	void *memory = NULL;

	if (trainer->memory.is_mapped)
		TRY(trainer_memory_map_on_devices(&memory, comm, bytes, &is_there));
	if (!is_there) {
		TRY(train_device_alloc(home->device, &memory, bytes));
		train_device_fill(home->device, memory, 0, bytes);
	}
	*values = (struct shared_values){memory, is_there};
	return TUTTI_OK;
}

/* Memory for collectives on comm, zero, of the same size on all ranks. Where all ranks have named a
 * device to the caller's communicator, the GPUs of comm's ranks map it. Collective among all ranks.
 */
static tutti_status trainer_memory_values_share(tutti_trainer *trainer, const struct home *home,
						struct shared_values *values, tutti_comm *comm,
						size_t bytes)
{
	if (home->device)
		return trainer_agree(trainer, trainer_memory_share_on_device(trainer, home, values,
									     comm, bytes));
	values->is_of_mem_alloc = true;
	return tutti_mem_alloc(&values->memory, bytes, trainer->comm);
}

static void trainer_memory_values_unshare(const struct home *home,
					  const struct shared_values *values)
{
	if (!values->is_of_mem_alloc) {
		values_free(home, values->memory);
		return;
	}
	if (home->device)
		train_device_wait(home->device); /* it is used again, in another stream */
	if (values->memory)
		tutti_mem_free(values->memory);
}

/* ---- slots for values that do not stay ---- */

enum { NO_SLOT = -1 };

static tutti_status trainer_memory_pool_add(struct slot_pool *pool, struct pool_slot slot)
{
	TRY(array_grow(&pool->slots, (size_t)pool->count, sizeof slot, "a trainer's tables"));
	pool->slots[pool->count++] = slot;
	return TUTTI_OK;
}

/* Counts planned slots only: all ranks have the same. */
static int trainer_memory_count_from(const struct slot_pool *pool, int slots, size_t bytes)
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
		if (trainer_memory_count_from(pool, before, all->bytes[i]) > used)
			used++;
		else
			status = trainer_memory_pool_add(
				pool,
				(struct pool_slot){.bytes = all->bytes[i], .is_planned = true});
	slots_finish(all);
	return status;
}

static bool trainer_memory_pool_is_missing(const struct pool_slot *slot)
{
	return !slot->memory && slot->is_planned;
}

/* Bytes that are planned and not made. */
static size_t trainer_memory_pool_missing(const struct slot_pool *pool)
{
	size_t bytes = 0;

	for (int i = 0; i < pool->count; i++)
		bytes += trainer_memory_pool_is_missing(&pool->slots[i]) ? pool->slots[i].bytes : 0;
	return bytes;
}

static tutti_status trainer_memory_pool_fill(tutti_trainer *trainer, struct slot_pool *pool,
					     tutti_comm *comm)
{
	size_t bytes = trainer_memory_pool_missing(pool);

	if (bytes == 0)
		return TUTTI_OK;
	TRY(trainer_memory_values_share(trainer, pool->home, &pool->region, comm, bytes));
	trainer->memory.held_bytes += bytes;
	char *next = pool->region.memory;
	for (int i = 0; i < pool->count; i++) {
		pool->slots[i].memory = next;
		next += pool->slots[i].bytes;
	}
	return TUTTI_OK;
}

static tutti_status trainer_memory_pool_make_own(tutti_trainer *trainer, const struct home *home,
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
		if (trainer_memory_pool_is_missing(&pool->slots[i]))
			TRY(trainer_memory_pool_make_own(trainer, pool->home, &pool->slots[i]));
	return TUTTI_OK;
}

static void trainer_memory_pool_unmake(tutti_trainer *trainer, const struct home *home,
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
		trainer_memory_pool_unmake(trainer, pool->home, &pool->slots[--pool->count]);
}

/* The smallest slot that fits, or NO_SLOT. */
static int trainer_memory_pool_smallest(const struct slot_pool *pool, size_t bytes, bool is_free)
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
	int kind = trainer_memory_pool_smallest(pool, bytes, false),
	    found = trainer_memory_pool_smallest(pool, bytes, true);

	return found != NO_SLOT && pool->slots[found].bytes == pool->slots[kind].bytes;
}

/* Frees the slots that are not planned and not in use. */
static void trainer_memory_drop_unused(tutti_trainer *trainer, struct slot_pool *pool)
{
	for (int i = 0; i < pool->count; i++)
		if (!pool->slots[i].is_planned && !pool->slots[i].used)
			trainer_memory_pool_unmake(trainer, pool->home, &pool->slots[i]);
}

tutti_status pool_grows(tutti_trainer *trainer, size_t bytes)
{
	size_t limit = trainer->config.memory_limit;

	if (limit && trainer->memory.held_bytes + bytes > limit) {
		for (int h = 0; h < trainer->home_count; h++) {
			trainer_memory_drop_unused(trainer, &trainer->homes[h].data_pool);
			trainer_memory_drop_unused(trainer, &trainer->homes[h].grad_pool);
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
static tutti_status trainer_memory_empty_entry(struct slot_pool *pool, int *entry)
{
	for (*entry = 0; *entry < pool->count; ++*entry)
		if (!pool->slots[*entry].memory)
			return TUTTI_OK;
	return trainer_memory_pool_add(pool, (struct pool_slot){0});
}

static tutti_status trainer_memory_make_more(tutti_trainer *trainer, struct slot_pool *pool,
					     size_t bytes, int *made)
{
	struct pool_slot slot = {.bytes = whole_lines(bytes)};

	TRY(pool_grows(trainer, slot.bytes));
	TRY(trainer_memory_empty_entry(pool, made));
	TRY(trainer_memory_pool_make_own(trainer, pool->home, &slot));
	pool->slots[*made] = slot;
	return TUTTI_OK;
}

tutti_status pool_take(tutti_trainer *trainer, struct slot_pool *pool, size_t bytes, char **memory)
{
	int found = trainer_memory_pool_smallest(pool, bytes, true);

	if (found == NO_SLOT)
		TRY(trainer_memory_make_more(trainer, pool, bytes, &found));
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

/* Makes the memory of planned slots, for collectives on comm. Collective. */
static void trainer_memory_pool_free(struct slot_pool *pool)
{
	for (int i = 0; i < pool->count; i++)
		if (pool->slots[i].is_local)
			values_free(pool->home, pool->slots[i].memory);
	trainer_memory_values_unshare(pool->home, &pool->region);
	free(pool->slots);
	*pool = (struct slot_pool){0};
}

/* ---- regions ---- */

static bool trainer_memory_has_own(const tutti_trainer *trainer, const struct param_span *span)
{
	for (int i = 0; i < span->param_count; i++)
		if (!trainer->model.params[span->params[i]].is_extern)
			return true;
	return false;
}

/* The largest part: tutti_mem_alloc needs the same size on all ranks. */
static size_t trainer_memory_part_room(const tutti_trainer *trainer, const struct param_span *span)
{
	size_t most = span->is_split ? 0 : span->count;

	for (int r = 0; span->is_split && r < trainer->layout.shard_size; r++)
		if (span->cuts[r + 1] - span->cuts[r] > most)
			most = span->cuts[r + 1] - span->cuts[r];
	return most;
}

/* The bytes of a bucket in each region. */
struct needs {
	size_t bytes[REGIONS];
};

static struct needs trainer_memory_needs_of(const tutti_trainer *trainer,
					    const struct param_span *span)
{
	const tutti_train_config *c = &trainer->config;
	struct needs needs = {0};

	if (trainer_memory_has_own(trainer, span))
		needs.bytes[REGION_DATA] =
			dtype_bytes(c->param_dtype) *
			(span->is_sharded ? trainer_memory_part_room(trainer, span) : span->count);
	if (!span->is_trained)
		return needs;
	if (!span->keeps_grad) {
		needs.bytes[REGION_GRAD] = dtype_bytes(span_sum_dtype(span, c)) *
					   trainer_memory_part_room(trainer, span);
		return needs;
	}
	bool is_same = c->grad_dtype == c->reduce_dtype;
	if (config_has_wire(c) && !(span->is_in_place && is_same))
		needs.bytes[REGION_WIRE] = dtype_bytes(c->reduce_dtype) * span->count;
	if (trainer_memory_has_own(trainer, span) && !(config_has_wire(c) && is_same))
		needs.bytes[REGION_GRAD] = dtype_bytes(c->grad_dtype) * span->count;
	return needs;
}

static char *memory_carve(char **next, size_t bytes)
{
	char *place = bytes ? *next : NULL;

	*next += whole_lines(bytes);
	return place;
}

static void trainer_memory_place_bucket(tutti_trainer *trainer, struct bucket *bucket,
					char *next[REGIONS])
{
	const struct param_span *span = bucket->span;
	const struct param *param = &trainer->model.params[span->params[0]];
	struct needs needs = trainer_memory_needs_of(trainer, span);
	bool is_same = trainer->config.grad_dtype == trainer->config.reduce_dtype;
	char *data = memory_carve(&next[REGION_DATA], needs.bytes[REGION_DATA]),
	     *grad = memory_carve(&next[REGION_GRAD], needs.bytes[REGION_GRAD]);

	*(span->is_sharded ? &bucket->shard : &bucket->data) = data;
	bucket->wire = memory_carve(&next[REGION_WIRE], needs.bytes[REGION_WIRE]);
	bucket->sum_dtype = span_sum_dtype(span, &trainer->config);
	if (span->is_in_place) {
		bucket->data = param->data;
		bucket->grad = param->grad;
		if (!bucket->wire)
			bucket->wire = param->grad;
	}
	if (!span->is_trained)
		return;
	if (!span->keeps_grad) {
		bucket->sum = grad;
		return;
	}
	if (!span->is_in_place)
		bucket->grad = grad ? grad : is_same ? bucket->wire : NULL;
	if (config_has_wire(&trainer->config))
		bucket->sum = bucket->wire + bucket->part.first * dtype_bytes(bucket->sum_dtype);
}

/* The communicator whose calls have the memory of a class. The sums of FSDP are reduced among
 * replicas. */
static tutti_comm *trainer_memory_comm_of_region(const struct home *home, int region)
{
	tutti_comm *first = region == REGION_DATA   ? home->gather
			    : region == REGION_WIRE ? home->reduce
						    : home->replicas;
	tutti_comm *second = region == REGION_GRAD ? home->reduce : home->replicas;

	return first ? first : second;
}

static tutti_status trainer_memory_place_regions(tutti_trainer *trainer, struct home *home)
{
	size_t bytes[REGIONS] = {0};
	char *next[REGIONS];

	for (int b = 0; b < trainer->layout.span_count; b++) {
		struct needs needs = trainer_memory_needs_of(trainer, &trainer->layout.spans[b]);
		for (int r = 0; r < REGIONS && trainer->buckets[b].home == home; r++)
			bytes[r] += whole_lines(needs.bytes[r]);
	}
	for (int r = 0; r < REGIONS; r++) {
		if (bytes[r])
			TRY(trainer_memory_values_share(trainer, home, &home->regions[r],
							trainer_memory_comm_of_region(home, r),
							bytes[r]));
		next[r] = home->regions[r].memory;
	}
	for (int b = 0; b < trainer->layout.span_count; b++)
		if (trainer->buckets[b].home == home)
			trainer_memory_place_bucket(trainer, &trainer->buckets[b], next);
	return TUTTI_OK;
}

static tutti_status trainer_memory_plan_pools(tutti_trainer *trainer, int h)
{
	const struct model_layout *layout = &trainer->layout;
	struct home *home = &trainer->homes[h];
	struct slot_sizes slots;

	TRY(slots_for_units(&slots, layout, &trainer->model, &trainer->config, h));
	TRY(pool_plan(&home->data_pool, &slots));
	TRY(slots_for_grads(&slots, layout, &trainer->model, &trainer->config, h));
	return pool_plan(&home->grad_pool, &slots);
}

tutti_status memory_tables(tutti_trainer *trainer)
{
	trainer->buckets = calloc((size_t)trainer->layout.span_count + 1, sizeof *trainer->buckets);
	trainer->flights.ring =
		calloc((size_t)trainer->layout.span_count + 1, sizeof *trainer->flights.ring);
	if (!trainer->buckets || !trainer->flights.ring)
		return fail_no_memory("a trainer's tables");
	for (int b = 0; b < trainer->layout.span_count; b++) {
		struct bucket *bucket = &trainer->buckets[b];
		bucket->span = &trainer->layout.spans[b];
		bucket->home = &trainer->homes[bucket->span->home];
		bucket->part = span_part(bucket->span, trainer->shard_rank);
		bucket->part_elements = part_elements(&trainer->layout, &trainer->model,
						      bucket->span, bucket->part);
	}
	for (int h = 0; h < trainer->home_count; h++)
		TRY(trainer_memory_plan_pools(trainer, h));
	return TUTTI_OK;
}

size_t memory_of_slots(const tutti_trainer *trainer)
{
	size_t bytes = 0;

	for (int h = 0; h < trainer->home_count; h++)
		bytes += trainer_memory_pool_missing(&trainer->homes[h].data_pool) +
			 trainer_memory_pool_missing(&trainer->homes[h].grad_pool);
	return bytes;
}

tutti_status memory_place(tutti_trainer *trainer)
{
	for (int h = 0; h < trainer->home_count; h++) {
		struct home *home = &trainer->homes[h];
		TRY(trainer_memory_place_regions(trainer, home));
		TRY(trainer_memory_pool_fill(trainer, &home->data_pool,
					     trainer_memory_comm_of_region(home, REGION_DATA)));
		TRY(trainer_memory_pool_fill(trainer, &home->grad_pool,
					     trainer_memory_comm_of_region(home, REGION_WIRE)));
	}
	return TUTTI_OK;
}

static void trainer_memory_free_home(struct home *home)
{
	trainer_memory_pool_free(&home->data_pool);
	trainer_memory_pool_free(&home->grad_pool);
	for (int r = 0; r < REGIONS; r++)
		trainer_memory_values_unshare(home, &home->regions[r]);
}

void memory_free(tutti_trainer *trainer)
{
	for (int b = 0; trainer->buckets && b < trainer->layout.span_count; b++) {
		struct bucket *bucket = &trainer->buckets[b];
		for (int level = 0; level < TREE_LEVELS; level++)
			if (bucket->levels[level])
				values_free(bucket->home, bucket->levels[level]);
	}
	for (int h = 0; h < trainer->home_count; h++)
		trainer_memory_free_home(&trainer->homes[h]);
	shadow_free(trainer);
	pieces_free(trainer);
	free(trainer->buckets);
	free(trainer->flights.ring);
}

void *param_grad(const tutti_trainer *trainer, int param)
{
	const struct bucket *bucket = bucket_of(trainer, param);
	size_t offset = trainer->layout.places[param].offset;

	if (!bucket->span->is_trained)
		return NULL;
	if (trainer->model.params[param].is_extern)
		return trainer->model.params[param].grad;
	return bucket->grad ? bucket->grad + offset * dtype_bytes(trainer->config.grad_dtype)
			    : NULL;
}
