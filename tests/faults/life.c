/* See life.h. Segments of steps; at the end of each, where the scenario has it so, all ranks agree
 * on whether it counted, those that failed too. A rank that goes on after a failure shrinks, and
 * begins a new generation with a program of its own. */
#include "tests/faults/life.h"

#include "cuda/turn_page.h"
#include "tests/cuda/gpu.h"

#include "core/clock.h"
#include "tests/entries.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GENERATIONS_MOST 20
#define MEMORY           ((size_t)1 << 20)

/* ---- what tests/api needs -------------------------------------------------------------------- */

void api_fail(const struct api *api, const char *file, int line, const char *format, ...)
{
	char text[1000];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	fprintf(stderr, "%s:%d: rank %d of %d: %s\n", file, line, api->rank, api->size, text);
	_exit(1);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static void show_descriptors(void)
{
	char path[64], target[256];

	for (int fd = 0; fd < 1024; fd++) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, target, sizeof target - 1);
		if (n > 0)
			fprintf(stderr, "  %d: %.*s\n", fd, (int)n, target);
	}
}

/* ---- events ---------------------------------------------------------------------------------- */

static uint32_t mask_of(const int *ids, int size)
{
	uint32_t mask = 0;

	for (int i = 0; i < size; i++)
		mask |= 1u << ids[i];
	return mask;
}

static struct event *note(struct life *life, enum happening what, tutti_status status)
{
	static struct event nowhere;
	struct event *e = board_note(life->seat, what);

	CHECK(&life->api, e, "more than %d events", EVENTS_MOST);
	e = e ? e : &nowhere;
	e->status = status;
	e->segment = life->segment;
	return e;
}

static void put_ranks(struct event *e, const int *ids, int size)
{
	e->size = size;
	for (int i = 0; i < size && i < RANKS_MOST; i++)
		e->ids[i] = (int8_t)ids[i];
}

void life_note_failure(struct life *life, tutti_comm *comm, tutti_status status, const int *ids,
		       int size, const char *call)
{
	struct event *e = note(life, HAD_FAILURE, status);
	bool sticks = comm && tutti_comm_status(comm) != TUTTI_OK;
	int failed[RANKS_MOST], count = comm ? tutti_comm_failed(comm, failed, RANKS_MOST) : 0;

	put_ranks(e, ids, size);
	e->is_child = comm != life->api.comm;
	for (int i = 0; i < count && i < RANKS_MOST; i++) {
		CHECK(&life->api, failed[i] >= 0 && failed[i] < size, "rank %d has failed, of %d",
		      failed[i], size);
		e->failed |= 1u << ids[failed[i]];
	}
	snprintf(e->call, sizeof e->call, "%s", call);
	snprintf(e->message, sizeof e->message, "%s", tutti_comm_error(sticks ? comm : NULL));
	CHECK(&life->api, !sticks || tutti_comm_status(comm) == status,
	      "the call said %s, the communicator says %s: %s", tutti_status_string(status),
	      tutti_status_string(tutti_comm_status(comm)), tutti_comm_error(comm));
}

/* What agree and shrink say of themselves. */
static void note_message(struct life *life, struct event *e, const char *call)
{
	put_ranks(e, life->ids, life->api.size);
	snprintf(e->call, sizeof e->call, "%s", call);
	if (e->status != TUTTI_OK)
		snprintf(e->message, sizeof e->message, "%s", tutti_comm_error(NULL));
}

/* ---- a generation ---------------------------------------------------------------------------- */

static void run_segment(struct life *life, int segment)
{
	int steps = life->scenario->steps;

	life->segment = segment;
	life->failed = !steps_roll_call(life);
	for (int step = 0; step < steps && !life->failed; step++) {
		inject_at(&life->inject, POINT_CALL, segment, step);
		life->failed = !steps_run(life, step);
	}
	if (!life->failed)
		note(life, HAD_STEPS, TUTTI_OK);
}

/* Bit r: rank r took no part; bit 8 + r: with rank r all is well. Returns whether all is. */
static bool agree(struct life *life)
{
	uint32_t own = ~(1u << life->id) & ~((uint32_t)life->failed << (8 + life->id));
	int flag = (int)own;

	inject_at(&life->inject, POINT_AGREE, life->segment, 0);
	note(life, BEGAN_AGREE, TUTTI_OK)->flag = own;
	tutti_status status = tutti_comm_agree(life->api.comm, &flag);
	struct event *e = note(life, HAD_AGREE, status);
	e->flag = (uint32_t)flag;
	note_message(life, e, "agree");
	return status == TUTTI_OK && (e->flag >> 8 & 0xff) == 0xff;
}

/* true: this generation has come to its end. */
static bool run_generation(struct life *life)
{
	for (int segment = 0; segment < life->scenario->segments; segment++) {
		run_segment(life, segment);
		bool is_well = life->scenario->agrees ? agree(life) : !life->failed;
		if (!is_well)
			return false;
	}
	return true;
}

static void adopt(struct life *life, tutti_comm *comm, const int *ids, int generation)
{
	life->api.comm = comm;
	life->api.rank = tutti_rank(comm);
	life->api.size = tutti_size(comm);
	memcpy(life->ids, ids, sizeof life->ids);
	CHECK(&life->api, life->ids[life->api.rank] == life->id, "rank %d is another's",
	      life->api.rank);
	life->generation = generation;
	atomic_store(&life->seat->generation, generation);
	CHECK(&life->api, generation < GENERATIONS_MOST, "it never ends");
	inject_watch(&life->inject, comm);
}

static void leave_for(struct life *life, tutti_comm *next, const int *ids, struct event *e)
{
	e->members = mask_of(ids, tutti_size(next));
	inject_watch(&life->inject, NULL);
	tutti_comm_destroy(life->api.comm);
	adopt(life, next, ids, life->generation + 1);
}

static bool shrink(struct life *life)
{
	tutti_comm *next = NULL, *old = life->api.comm;
	int ids[RANKS_MOST] = {0};

	inject_at(&life->inject, POINT_SHRINK, 0, 0);
	note(life, BEGAN_SHRINK, TUTTI_OK);
	tutti_status status = tutti_comm_shrink(old, &next);
	struct event *e = note(life, HAD_SHRINK, status);
	note_message(life, e, "shrink");
	steps_settle(life);
	CHECK(&life->api, (status == TUTTI_OK) == (next != NULL), "%s, and a communicator at %p",
	      tutti_status_string(status), (void *)next);
	if (status != TUTTI_OK)
		return false;
	for (int r = 0; r < tutti_size(next); r++)
		ids[r] = life->ids[tutti_parent_rank(next, r)];
	leave_for(life, next, ids, e);
	return true;
}

/* Once, whatever comes of it: comm stays what it is. */
static void grow(struct life *life)
{
	tutti_comm *next = NULL;
	int ids[RANKS_MOST] = {0};

	life->has_grown = true;
	inject_at(&life->inject, POINT_GROW, 0, 0);
	note(life, BEGAN_GROW, TUTTI_OK);
	tutti_status status = tutti_comm_grow(life->api.comm, life->scenario->ranks, NULL, &next);
	struct event *e = note(life, HAD_GROW, status);
	note_message(life, e, "grow");
	CHECK(&life->api, (status == TUTTI_OK) == (next != NULL), "%s, and a communicator at %p",
	      tutti_status_string(status), (void *)next);
	if (status != TUTTI_OK)
		return;
	for (int r = 0; r < tutti_size(next); r++) {
		int before = tutti_parent_rank(next, r);
		ids[r] = before < 0 ? life->scenario->ranks : life->ids[before];
	}
	leave_for(life, next, ids, e);
}

/* ---- a life ---------------------------------------------------------------------------------- */

static void take_memory(struct life *life)
{
	void *memory = NULL;

	if (!life->scenario->has_memory)
		return;
	tutti_status status = tutti_mem_alloc(&memory, MEMORY, life->api.comm);
	life->api.arena = memory;
	life->api.arena_bytes = memory ? MEMORY : 0;
	/* The next call fails, too, and is written down. */
	CHECK(&life->api, (status == TUTTI_OK) == (memory != NULL), "%s, and memory at %p",
	      tutti_status_string(status), memory);
}

static void live(struct life *life)
{
	bool goes_on;

	take_memory(life);
	do {
		goes_on = !run_generation(life) && shrink(life);
		if (goes_on && life->scenario->grows && !life->has_grown)
			grow(life);
	} while (goes_on);
	inject_at(&life->inject, POINT_DESTROY, 0, 0);
	note(life, LEAVES, TUTTI_OK);
	inject_watch(&life->inject, NULL);
	tutti_comm_destroy(life->api.comm);
	steps_settle(life);
	if (life->api.arena)
		CHECK_OK(&life->api, tutti_mem_free(life->api.arena));
}

/* In the place of the first victim; the others were in their second generation, and grow into the
 * third. */
static void arrive(struct life *life)
{
	int ids[RANKS_MOST];

	for (int r = 0; r < life->scenario->ranks; r++)
		ids[r] = tutti_parent_rank(life->api.comm, r) < 0 ? life->id : r;
	life->has_grown = true;
	adopt(life, life->api.comm, ids, 2);
}

int life_run(const struct scenario *scenario, struct board *board, int id, int doorbell)
{
	static struct life one;
	struct life *life = &one;
	bool has_gpu = scenario->way == WAY_GPUS && gpu_open();
	if (has_gpu) {
		gpu_use(id % gpu_count());
		gpu_free(gpu_alloc(1)); /* the driver's own descriptors, ... */
		struct cuda_turn_page page;
		cuda_turn_page_make(&page); /* ... and the one that the library keeps */
	}
	int before = open_descriptors();

	*life = (struct life){.scenario = scenario, .seat = &board->seats[id], .id = id};
	life->api = (struct api){.rank = id,
				 .size = scenario->ranks,
				 .device = has_gpu ? BUFFER_CUDA : 0,
				 .gpu = has_gpu ? id % gpu_count() : 0,
				 .seed = scenario->seed,
				 .own = scenario->seed + 1000003 * ((uint64_t)id + 1)};
	for (int r = 0; r < scenario->ranks; r++)
		life->ids[r] = r;
	if (id >= scenario->ranks)
		life->ids[__builtin_ctz(scenario->faults[0].victims)] = id;
	data_init();
	inject_init(&life->inject, scenario, board, id, doorbell);
	inject_at(&life->inject, id < scenario->ranks ? POINT_INIT : POINT_GROW, 0, 0);
	tutti_status status = tutti_init(&life->api.comm, NULL);
	note_message(life, note(life, HAD_INIT, status), "init");
	if (status == TUTTI_OK) {
		if (id < scenario->ranks)
			inject_watch(&life->inject, life->api.comm);
		else
			arrive(life);
		live(life);
	}
	inject_finish(&life->inject);
	int after = open_descriptors();
	if (after != before) {
		fprintf(stderr, "rank %d: %d descriptors are open, at first %d\n", id, after,
			before);
		show_descriptors();
		return 1;
	}
	atomic_store(&life->seat->is_over, true);
	return 0;
}
