/* Plans as a kind of task: cuts a call into slices, and puts a run with all its tables and scratch
 * into one block, which later calls use again. */
#include "collectives/engine/direct.h"
#include "collectives/engine/run.h"

#include "core/poison.h"
#include "core/memory/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Both ends must cut a message alike, so the length of a slice depends only on values that all
 * ranks share. In v-variants a rank may not know the longest chunk of the others: there it is
 * constant. */
struct run_cut run_cut(size_t longest, bool is_known, uint32_t width,
		       const struct run_limits *limits)
{
	size_t bytes = limits->scratch_bytes / ((width ? width : 1) * (size_t)RUN_SLOTS);

	if (bytes > limits->slice_bytes)
		bytes = limits->slice_bytes;
	size_t most = bytes / limits->element ? bytes / limits->element : 1;
	size_t slices = longest > most ? (longest + most - 1) / most : 1;
	size_t each = is_known ? (longest + slices - 1) / slices : most;
	if (slices > 1 && is_known) /* whole cache lines, if the data are aligned */
		each = (each + 63) / 64 * 64;
	slices = each ? (longest + each - 1) / each : 1;
	return (struct run_cut){slices ? (uint32_t)slices : 1, each};
}

static void run_create_cut(const struct engine *e, struct run *r, const struct task_spec *spec)
{
	struct run_limits limits = {dtype_bytes(spec->args.dtype), e->config.slice_bytes,
				    e->config.scratch_bytes};
	size_t longest = layout_longest(&spec->layout);
	struct run_cut c = run_cut(longest, !spec->layout.blocks, spec->width, &limits);

	r->element = limits.element;
	r->slices = c.slices;
	r->slice_elements = c.elements;
	r->interleave = r->slices < RUN_INTERLEAVE ? r->slices : RUN_INTERLEAVE;
	r->slots = r->slices < RUN_SLOTS ? r->slices : RUN_SLOTS;
	size_t stride = longest < r->slice_elements ? longest : r->slice_elements;
	r->slice_stride = (stride * r->element + 63) / 64 * 64;
	r->filled_stride = longest * r->element;
}

static uint32_t run_create_lane_depth(const struct run *r, const struct lane *l)
{
	size_t all = (size_t)l->count * r->slices, depth = LANE_DEPTH;
	size_t landings = l->reduces && r->slice_stride ? LANDING_BYTES / r->slice_stride : depth;

	if (depth > landings)
		depth = landings > 2 ? landings : 2;
	return all < depth ? (uint32_t)all : (uint32_t)depth;
}

/* Hands out pieces of one block, or, while base is NULL, counts how large it must be. */
struct arena {
	uint8_t *base;
	size_t used;
};

static void *run_create_arena_take(struct arena *a, size_t n, size_t size)
{
	size_t at = a->used;
	a->used += (n * size + 63) / 64 * 64;
	return a->base ? a->base + at : NULL;
}

static void run_create_lane(struct run *r, struct arena *a, uint32_t i)
{
	const struct lane *l = &r->plan->lanes[i];
	uint32_t depth = run_create_lane_depth(r, l), srcs = l->peer < 0 ? r->plan->max_refs : 2;
	uint32_t pieces = l->peer < 0 || r->plan->max_refs == 1 ? 0 : r->plan->max_refs;
	struct step_io *ios = run_create_arena_take(a, depth, sizeof *ios);
	const void **src = run_create_arena_take(a, (size_t)depth * srcs, sizeof *src);
	struct tutti_piece *piece = run_create_arena_take(a, (size_t)depth * pieces, sizeof *piece);
	uint8_t *landing = l->reduces ? run_create_arena_take(a, depth, r->slice_stride) : NULL;

	if (!a->base)
		return;
	memset(ios, 0, depth * sizeof *ios);
	r->lanes[i] = (struct lane_run){
		.run = r, .lane = l, .depth = depth, .ios = ios, .landing = landing};
	for (uint32_t k = 0; k < depth; k++) {
		ios[k].src = src + (size_t)k * srcs;
		ios[k].pieces = piece + (size_t)k * pieces;
		ios[k].lane = &r->lanes[i];
		ios[k].base.owner = &run_step_owner;
	}
}

static size_t run_create_lay_out(struct run *r, uint8_t *base)
{
	struct arena a = {base, 0};
	const struct plan *p = r->plan;

	run_create_arena_take(&a, 1, sizeof *r);
	r->left = run_create_arena_take(&a, r->slots, sizeof *r->left);
	r->pending = run_create_arena_take(&a, (size_t)p->count * r->slots, sizeof *r->pending);
	r->lanes = run_create_arena_take(&a, p->lane_count, sizeof *r->lanes);
	for (uint32_t i = 0; i < p->lane_count; i++)
		run_create_lane(r, &a, i);
	r->tmp[POOL_HOST] = run_create_arena_take(&a, (size_t)p->pool_chunks[POOL_HOST] * r->slots,
						  r->slice_stride);
	return a.used;
}

static struct run *run_create_new_block(struct engine *e, const struct task_spec *spec,
					size_t bytes)
{
	const struct memory_kind *kind = spec->memory;
	const void *near = spec->args.recv ? spec->args.recv : spec->args.send;
	struct run *r = kind->host_alloc ? kind->host_alloc(e->links.queues[kind->id], bytes, near)
					 : aligned_alloc(64, (bytes + 63) / 64 * 64);

	if (r) {
		poison(r, bytes);
		r->kind = kind;
		r->block_bytes = bytes;
	}
	return r;
}

static void run_create_free_block(struct engine *e, struct run *r)
{
	if (r->kind->host_free)
		r->kind->host_free(e->links.queues[r->kind->id], r);
	else
		free(r);
}

static struct run *run_create_block(struct engine *e, const struct task_spec *spec, size_t bytes)
{
	for (struct run **at = &e->runs.free; *at; at = &(*at)->next_free)
		if ((*at)->block_bytes >= bytes && (*at)->block_bytes / 4 <= bytes + 65536 &&
		    (*at)->kind == spec->memory) {
			struct run *r = *at;
			*at = r->next_free;
			e->runs.free_count--;
			return r;
		}
	return run_create_new_block(e, spec, bytes);
}

/* A communicator keeps a few blocks, so that the calls of a training loop allocate nothing. The
 * block that was unused for longest is freed first. */
static void run_recycle(struct engine *e, struct run *r)
{
	size_t block_bytes = r->block_bytes;
	const struct memory_kind *kind = r->kind;

	poison(r, block_bytes);
	r->kind = kind;
	r->block_bytes = block_bytes;
	r->next_free = e->runs.free;
	e->runs.free = r;
	if (e->runs.free_count < FREE_RUNS_MAX) {
		e->runs.free_count++;
		return;
	}
	struct run **last = &e->runs.free;
	while ((*last)->next_free)
		last = &(*last)->next_free;
	run_create_free_block(e, *last);
	*last = NULL;
}

void run_free_all(struct engine *e)
{
	while (e->runs.free) {
		struct run *r = e->runs.free;
		e->runs.free = r->next_free;
		run_create_free_block(e, r);
	}
}

/* Messages go in the order of submission, so lanes queue up now and not when the run starts. */
static void run_create_join_streams(struct engine *e, struct run *r)
{
	for (uint32_t i = 0; i < r->plan->lane_count; i++) {
		struct lane_run *l = &r->lanes[i];
		if (l->lane->peer < 0)
			continue;
		l->stream =
			&e->links.streams[l->lane->sends][engine_place(e, r->work, l->lane->peer)];
		*l->stream->tail = l;
		l->stream->tail = &l->next_in_stream;
	}
}

static tutti_status run_create(struct engine *e, struct tutti_work *work)
{
	struct run head = {.work = work, .plan = work->spec.plan};
	run_create_cut(e, &head, &work->spec);
	size_t bytes = run_create_lay_out(&head, NULL);
	struct run *r = run_create_block(e, &work->spec, bytes);
	if (!r)
		return fail(TUTTI_ERR_MEMORY, "rank %d: %s: no memory for %zu bytes of scratch",
			    e->config.rank, work->spec.name, bytes);
	head.block_bytes = r->block_bytes;
	head.kind = r->kind;
	*r = head;
	run_create_lay_out(r, (uint8_t *)r);
	r->base[BUF_IN] = (uint8_t *)(uintptr_t)work->spec.args.send;
	r->base[BUF_OUT] = work->spec.args.recv;
	for (uint32_t s = 0; s < r->slots; s++)
		run_refill(r, s);
	run_create_join_streams(e, r);
	work_task(work)->run = r;
	return TUTTI_OK;
}

static size_t run_create_filled_bytes(const struct run *r)
{
	return (r->plan->pool_chunks[POOL_FILLED] * r->filled_stride + 63) / 64 * 64;
}

static size_t scratch_bytes(const struct run *r)
{
	return run_create_filled_bytes(r) +
	       (size_t)r->plan->pool_chunks[POOL_KIND] * r->slots * r->slice_stride;
}

static uint8_t *run_create_scratch_of(const struct tutti_work *work)
{
	const struct work_direct *direct = &work_task(work)->direct;

	return direct->scratch ? direct->scratch : work->bounce.scratch;
}

/* The scratch begins with it. */
void *run_filled(const struct tutti_work *work, uint32_t chunk)
{
	return run_create_scratch_of(work) + chunk * work_task(work)->run->filled_stride;
}

/* Gives back what run_create_map has taken. */
static void run_create_unmap(struct engine *e, struct tutti_work *work)
{
	struct memory_queue *q = e->links.queues[work->spec.memory->id];
	struct work_direct *direct = &work_task(work)->direct;

	for (int i = 0; i < DIRECT_PARTS; i++) {
		direct_give(e, direct->maps[i]);
		direct->maps[i] = NULL;
	}
	if (direct->scratch)
		q->kind->device_free(q, direct->scratch);
	direct->scratch = NULL;
}

static bool run_create_map_part(struct engine *e, struct tutti_work *work, enum direct_part part,
				const void *ptr, size_t bytes)
{
	if (!bytes)
		return true;
	struct direct_map *map = direct_take(e, work->spec.memory, ptr, bytes);
	work_task(work)->direct.maps[part] = map;
	return map != NULL;
}

static bool run_create_map_scratch(struct engine *e, struct tutti_work *work, size_t bytes)
{
	const struct task_spec *spec = &work->spec;
	struct memory_queue *q = e->links.queues[spec->memory->id];

	if (!bytes)
		return true;
	void *scratch = q->kind->device_alloc(q, bytes,
					      spec->args.recv ? spec->args.recv : spec->args.send);
	work_task(work)->direct.scratch = scratch;
	return scratch && run_create_map_part(e, work, DIRECT_SCRATCH, scratch, bytes);
}

/* Maps work's buffers, and scratch in their memory: all, or nothing. */
static bool run_create_map(struct engine *e, struct tutti_work *work, size_t scratch_bytes)
{
	const struct task_spec *spec = &work->spec;

	if (run_create_map_part(e, work, DIRECT_IN, spec->args.send, spec->send_bytes) &&
	    run_create_map_part(e, work, DIRECT_OUT, spec->args.recv, spec->recv_bytes) &&
	    run_create_map_scratch(e, work, scratch_bytes))
		return true;
	run_create_unmap(e, work);
	return false;
}

/* If this rank's memory is mapped its messages need no copies. Each rank sees that for itself. */
static void run_create_choose_plan(struct engine *e, struct tutti_work *work)
{
	struct run head = {.work = work, .plan = work->spec.direct_plan};

	if (!head.plan)
		return;
	run_create_cut(e, &head, &work->spec);
	if (head.slices == 1 && work->spec.whole_plan)
		head.plan = work->spec.whole_plan;
	if (run_create_map(e, work, scratch_bytes(&head)))
		work->spec.plan = head.plan;
}

static void run_create_prepared(struct engine *e, struct tutti_work *work)
{
	struct run *r = work_task(work)->run;

	if (scratch_bytes(r)) {
		r->tmp[POOL_FILLED] = run_create_scratch_of(work);
		r->tmp[POOL_KIND] = run_create_scratch_of(work) + run_create_filled_bytes(r);
	}
	run_start(e, r);
}

static tutti_status run_create_begin(struct engine *e, struct tutti_work *work)
{
	run_create_choose_plan(e, work);
	TRY(run_create(e, work));
	const struct run *r = work_task(work)->run;
	size_t bytes = work_task(work)->direct.scratch ? 0 : scratch_bytes(r);

	TRY(bounce_prepare(e, work, (struct bounce_needs){.scratch_bytes = bytes}));
	if (work->stage == WORK_RUNS)
		run_create_prepared(e, work);
	return TUTTI_OK;
}

static void run_create_finish(struct engine *e, struct tutti_work *work)
{
	struct work_task *task = work_task(work);

	if (task->run)
		run_recycle(e, task->run);
	task->run = NULL;
	run_create_unmap(e, work);
}

const struct task_kind plan_tasks = {.begin = run_create_begin,
				     .prepared = run_create_prepared,
				     .finish = run_create_finish,
				     .explain = run_explain,
				     .words = collective_words};
