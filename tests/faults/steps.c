/* A step of a rank's program: a call of any kind, several at once, or a child and calls in it. What
 * it is, all ranks of the communicator draw from one seed. */
#include "tests/faults/life.h"

#include <stdlib.h>
#include <string.h>

#define SPOILED 0x3c

enum step_kind { STEP_CALL, STEP_FLIGHT, STEP_CHILD };

static uint64_t seed_of(const struct life *life, int step)
{
	uint64_t state = life->api.seed * 1000003 + (uint64_t)life->generation * 10007 +
			 (uint64_t)life->segment * 101 + (uint64_t)step + 1;

	return random_next(&state);
}

static struct place place_of(struct api *api)
{
	return (struct place){.comm = api->comm, .rank = api->rank, .size = api->size};
}

/* ---- calls that failed ----------------------------------------------------------------------- */

static void spoil(const struct buffer *b)
{
	static char spoiled[4096];

	memset(spoiled, SPOILED, sizeof spoiled);
	if (b->kind == BUFFER_SHARED || !b->data)
		return;
	for (size_t at = 0, n; at < b->bytes; at += n) {
		n = b->bytes - at < sizeof spoiled ? b->bytes - at : sizeof spoiled;
		buffer_write((struct buffer *)(uintptr_t)b, at, spoiled, n);
	}
}

/* The library may not touch its buffers any more: they are kept, and looked at later. */
static void leave(struct life *life, const struct part *p)
{
	CHECK(&life->api, life->left_count < FLIGHT_MOST, "too many calls have failed");
	struct part *left = &life->left[life->left_count++];
	*left = *p;
	spoil(&left->recv_buffer);
	if (!left->in_place)
		spoil(&left->send_buffer);
}

static void check_spoiled(struct life *life, const struct buffer *b)
{
	char *bytes = malloc(b->bytes + 1);

	CHECK(&life->api, bytes, "no memory for %zu bytes", b->bytes);
	if (b->kind != BUFFER_SHARED && b->data)
		buffer_read(b, 0, bytes, b->bytes);
	for (size_t i = 0; b->kind != BUFFER_SHARED && b->data && i < b->bytes; i++)
		CHECK(&life->api, bytes[i] == SPOILED,
		      "byte %zu of %zu of a buffer was written to after its call had failed", i,
		      b->bytes);
	free(bytes);
	if (b->kind == BUFFER_SHARED || !b->data)
		return;
	CHECK(&life->api, buffer_guards_hold(b), "bytes beside a buffer were written");
}

void steps_settle(struct life *life)
{
	for (int i = 0; i < life->left_count; i++) {
		struct part *p = &life->left[i];
		check_spoiled(life, &p->recv_buffer);
		if (!p->in_place)
			check_spoiled(life, &p->send_buffer);
		part_destroy(p);
	}
	life->left_count = 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

bool steps_roll_call(struct life *life)
{
	struct api *api = &life->api;
	int ids[RANKS_MOST];
	tutti_status status = tutti_all_gather(&life->id, ids, 1, TUTTI_I32, api->comm, NULL);

	if (status != TUTTI_OK) {
		life_note_failure(life, api->comm, status, life->ids, api->size, "all_gather");
		return false;
	}
	for (int r = 0; r < api->size; r++)
		CHECK(api, ids[r] == life->ids[r], "rank %d is %d, should be %d", r, ids[r],
		      life->ids[r]);
	return true;
}

static bool one_call(struct life *life, struct api *api, const int *ids, uint64_t seed, int step)
{
	struct place place = place_of(api);
	char text[PART_TEXT];
	struct part part;

	part_create(&part, api, &place, seed, PARTS);
	tutti_status status = part_issue(&part, NULL, NULL);
	part_close_op(&part);
	api->arena_used = 0;
	if (status == TUTTI_OK) {
		part_check(&part, api, step);
		part_destroy(&part);
		return true;
	}
	part_describe(&part, text);
	text[strcspn(text, "(")] = '\0';
	life_note_failure(life, api->comm, status, ids, api->size, text);
	leave(life, &part);
	return false;
}

struct flight {
	struct part part;
	tutti_work *sent, *work;
};

static tutti_status issue(struct flight *f, struct api *api, uint64_t seed)
{
	struct place place = place_of(api);
	bool is_letter = random_below(&seed, 3) == 0;

	part_create(&f->part, api, &place, random_next(&seed), is_letter ? PART_LETTER : PARTS);
	tutti_call send_call = {.work = &f->sent, .tag = f->part.tag};
	tutti_call recv_call = {.work = &f->work, .tag = f->part.tag};
	if (is_letter)
		recv_call.source = &f->part.source;
	else
		recv_call.tag = 0;
	tutti_status status = part_issue(&f->part, &send_call, &recv_call);
	part_close_op(&f->part);
	return status;
}

/* The first error of all that are waited for; none is left in flight. */
static tutti_status wait_for(struct flight *f, tutti_status status)
{
	tutti_status sent = tutti_work_wait(&f->sent, 0), got = tutti_work_wait(&f->work, 0);

	status = status == TUTTI_OK ? got : status;
	return status == TUTTI_OK ? sent : status;
}

static bool several_calls(struct life *life, uint64_t seed, int step)
{
	static struct flight flights[FLIGHT_MOST];
	struct api *api = &life->api;
	int wanted = 2 + (int)random_below(&seed, FLIGHT_MOST - 1), count = 0;
	int first = (int)random_below(&api->own, FLIGHT_MOST);
	tutti_status status = TUTTI_OK;

	memset(flights, 0, sizeof flights);
	while (status == TUTTI_OK && count < wanted)
		status = issue(&flights[count++], api, random_next(&seed));
	for (int i = 0; i < count; i++)
		status = wait_for(&flights[(first + i) % count], status);
	api->arena_used = 0;
	if (status != TUTTI_OK)
		life_note_failure(life, api->comm, status, life->ids, api->size, "");
	for (int i = 0; i < count; i++) {
		if (status != TUTTI_OK) {
			leave(life, &flights[i].part);
			continue;
		}
		part_check(&flights[i].part, api, step);
		part_destroy(&flights[i].part);
	}
	return status == TUTTI_OK;
}

static tutti_status make_child(struct life *life, bool is_copy, uint64_t *seed, struct api *child,
			       int *ids)
{
	struct api *api = &life->api;
	uint64_t colors = is_copy ? 1 : 1 + random_below(seed, (uint64_t)api->size);
	int color[RANKS_MOST] = {0};
	tutti_status status;

	*child = *api;
	child->comm = NULL;
	child->size = 0;
	for (int r = 0; r < api->size; r++)
		color[r] = (int)random_below(seed, colors);
	for (int r = 0; r < api->size; r++) {
		if (r == api->rank)
			child->rank = child->size;
		if (color[r] == color[api->rank])
			ids[child->size++] = life->ids[r];
	}
	*seed += (uint64_t)color[api->rank];
	if (is_copy)
		status = tutti_comm_dup(api->comm, &child->comm);
	else
		status = tutti_comm_split(api->comm, color[api->rank], 0, NULL, &child->comm);
	if (status == TUTTI_OK)
		CHECK(api,
		      tutti_rank(child->comm) == child->rank &&
			      tutti_size(child->comm) == child->size,
		      "rank %d of %d in the child, should be %d of %d", tutti_rank(child->comm),
		      tutti_size(child->comm), child->rank, child->size);
	return status;
}

static bool child_and_calls(struct life *life, uint64_t seed, int step)
{
	struct api child;
	int ids[RANKS_MOST];
	bool is_well = true, is_copy = random_below(&seed, 4) == 0;

	inject_at(&life->inject, POINT_SPLIT, life->segment, step);
	tutti_status status = make_child(life, is_copy, &seed, &child, ids);
	if (status != TUTTI_OK) {
		life_note_failure(life, life->api.comm, status, life->ids, life->api.size,
				  is_copy ? "comm_dup" : "comm_split");
		return false;
	}
	for (int i = 0; i < 2 && is_well; i++)
		is_well = one_call(life, &child, ids, random_next(&seed), step);
	life->api.own = child.own;
	tutti_comm_destroy(child.comm);
	return is_well;
}

static enum step_kind kind_of(const struct life *life, int step, uint64_t *seed)
{
	const struct fault *f = scenario_fault(life->scenario);
	uint64_t kind = random_below(seed, 10);

	if (f->point == POINT_SPLIT && life->segment == f->segment && step == f->step)
		return STEP_CHILD;
	return kind < 6 ? STEP_CALL : kind < 8 ? STEP_FLIGHT : STEP_CHILD;
}

bool steps_run(struct life *life, int step)
{
	uint64_t seed = seed_of(life, step);
	enum step_kind kind = kind_of(life, step, &seed);

	if (kind == STEP_CHILD)
		return child_and_calls(life, seed, step);
	if (kind == STEP_FLIGHT)
		return several_calls(life, seed, step);
	return one_call(life, &life->api, life->ids, seed, step);
}
