/* The work of a group: works of one or several engines that end as one. It is on the list of no
 * engine; its parts count it down (work.c). */
#include "collectives/engine/helper.h"

#include <stdlib.h>

/* A work and its parts are one block of memory, which work.c frees. */
struct whole {
	struct tutti_work work;
	struct work_parts parts;
	void *tables[];
};

tutti_status work_new_whole(struct tutti_work **out, struct engine *e, size_t count,
			    const tutti_call *call)
{
	struct whole *block = calloc(1, sizeof *block + 2 * count * sizeof block->tables[0]);
	if (!block)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a group of %zu calls",
			    e->config.rank, count);
	tutti_status status = TUTTI_OK;
	if (call->done && !e->config.now_ns)
		status = helper_attach(e); /* it calls done */
	if (status != TUTTI_OK) {
		free(block);
		return status;
	}
	struct tutti_work *whole = &block->work;
	block->parts.part = (struct tutti_work **)block->tables;
	block->parts.engine = (struct engine **)(block->tables + count);
	block->parts.left = 1;
	whole->parts = &block->parts;
	whole->engine = e;
	whole->submitted_ns = engine_coarse_now(e);
	atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
	whole->spec.done = call->done;
	whole->spec.done_arg = call->done_arg;
	whole->refs = 2; /* one for the caller, one until it has ended */
	whole->is_async = call->done != NULL;
	if (whole->is_async)
		atomic_fetch_add(&e->help.async_works, 1);
	*out = whole;
	return TUTTI_OK;
}

static void add_engine(struct work_parts *parts, struct engine *e)
{
	for (size_t i = 0; i < parts->engine_count; i++)
		if (parts->engine[i] == e)
			return;
	parts->engine[parts->engine_count++] = e;
}

void work_add_part(struct tutti_work *whole, struct tutti_work *part)
{
	struct engine *e = part->engine;
	whole->parts->part[whole->parts->count++] = part;
	add_engine(whole->parts, e);
	atomic_fetch_add_explicit(&whole->parts->left, 1, memory_order_relaxed);
	engine_lock(e);
	if (part->is_done)
		work_part_ended(whole, part);
	else
		part->whole = whole;
	engine_unlock(e);
}

bool work_seal(struct tutti_work *whole)
{
	bool has_parts = whole->parts->count > 0;
	if (!has_parts)
		whole->spec.done = NULL; /* the caller gets the error from the return value */
	work_count_down(whole);
	return has_parts;
}
