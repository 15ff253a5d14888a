/* Random programs: from one seed, the same on all ranks, steps of any collectives, letters and
 * groups on the world, its children and theirs, several in flight at once and waited for in any
 * order. STEPS says how many; SEED repeats one. */
#include "../cuda/gpu.h"
#include "part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STEPS_OF_A_TEST 300
#define PARTS_MOST      4 /* in a group */
#define FLIGHTS         8 /* steps in flight */
#define LEVELS          3

enum ending { BLOCKING, WAITED, TESTED };

struct flight {
	bool is_open, is_group, is_skipped; /* skipped: its forced algorithm cannot do it */
	int step, parts;
	enum ending ending;
	struct part part[PARTS_MOST];
	tutti_work *sent, *work; /* sent: of a letter's sender */
};

struct program {
	struct api *api;
	int step;
	struct place places[LEVELS]; /* [0]: the world */
	int levels; /* how many there are, on every rank, if with no communicator here */
	struct flight flights[FLIGHTS];
};

/* Random numbers of a step, the same on all ranks of the place. */
static uint64_t seed_of(const struct program *program, const struct place *place)
{
	uint64_t state = program->api->seed * 1000003 + (uint64_t)program->step;
	return random_next(&state) ^ place->id;
}

static void collectives_check_call(const struct program *program, const struct flight *f,
				   tutti_status status, const char *when)
{
	char text[PART_TEXT] = "nothing here";

	if (f->parts > 0)
		part_describe(&f->part[0], text);
	CHECK(program->api, status == TUTTI_OK, "step %d, %s%s, %s: %s: %s", f->step,
	      f->is_group ? "a group from " : "", text, when, tutti_status_string(status),
	      tutti_comm_error(NULL));
}

static void test_until_done(struct program *program, struct flight *f, tutti_work *work)
{
	struct timespec begin, now;
	int is_done = work == NULL;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	while (!is_done) {
		collectives_check_call(program, f, tutti_work_test(work, &is_done), "tested");
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - begin.tv_sec > API_WAIT_S)
			collectives_check_call(program, f, TUTTI_ERR_TIMEOUT, "never done");
	}
}

static void finish(struct program *program, struct flight *f)
{
	struct api *api = program->api;

	if (f->ending == TESTED) {
		test_until_done(program, f, f->work);
		test_until_done(program, f, f->sent);
	}
	collectives_check_call(program, f, tutti_work_wait(&f->work, 0), "waited for");
	collectives_check_call(program, f, tutti_work_wait(&f->sent, 0), "waited for");
	for (int i = 0; i < f->parts && !f->is_skipped; i++)
		part_check(&f->part[i], api, f->step);
	for (int i = 0; i < f->parts; i++)
		part_destroy(&f->part[i]);
	f->is_open = false;
}

/* All of a place's, or all: in any order. */
static void finish_all(struct program *program, const tutti_comm *comm)
{
	uint64_t first = random_below(&program->api->own, FLIGHTS);

	for (uint64_t i = 0; i < FLIGHTS; i++) {
		struct flight *f = &program->flights[(first + i * 3) % FLIGHTS];
		bool uses_it = comm == NULL;
		for (int k = 0; k < f->parts; k++)
			uses_it |= f->part[k].place.comm == comm;
		if (f->is_open && uses_it)
			finish(program, f);
	}
	if (comm == NULL)
		program->api->arena_used = 0;
}

static struct flight *free_flight(struct program *program)
{
	struct flight *f = &program->flights[random_below(&program->api->own, FLIGHTS)];
	if (f->is_open)
		finish(program, f);
	memset(f, 0, sizeof *f);
	f->is_open = true;
	f->step = program->step;
	return f;
}

/* Call i of the step, if this rank is where it is made. */
static void add_part(struct program *program, struct flight *f, int i, uint64_t draw)
{
	const struct place *place = &program->places[draw % (uint64_t)program->levels];
	bool is_letter = draw / 1000 % (f->is_group ? 2 : 12) == 0;
	uint64_t seed = seed_of(program, place) + 17 * (uint64_t)i;

	if (place->comm == NULL)
		return;
	part_create(&f->part[f->parts++], program->api, place, seed,
		    is_letter ? PART_LETTER : PARTS);
}

static void issue_one(struct program *program, struct flight *f)
{
	struct part *p = &f->part[0];
	tutti_call send_call = {.work = &f->sent, .tag = p->tag};
	tutti_call recv_call = {.work = &f->work, .tag = p->tag, .source = &p->source};
	bool is_blocking = f->ending == BLOCKING && (p->name != PART_LETTER || p->from != p->to);

	if (is_blocking) {
		send_call.work = recv_call.work = NULL;
		send_call.stream = recv_call.stream = program->api->stream;
	}
	bool is_plain = is_blocking && p->name != PART_LETTER;
	tutti_status status = part_issue(p, &send_call, is_plain ? NULL : &recv_call);
	f->is_skipped = program->api->forced && status == TUTTI_ERR_UNSUPPORTED;
	if (!f->is_skipped)
		collectives_check_call(program, f, status, "issued");
	if (is_blocking && !is_plain && program->api->stream) /* device memory: it has not waited */
		gpu_sync(program->api->stream);
}

static void issue_group(struct program *program, struct flight *f)
{
	bool is_nested = random_below(&program->api->own, 3) == 0;
	tutti_call call = {.work = &f->work};

	CHECK_OK(program->api, tutti_group_begin());
	for (int i = 0; i < f->parts; i++) {
		struct part *p = &f->part[i];
		tutti_call member = {.tag = p->tag, .source = &p->source};
		if (is_nested)
			CHECK_OK(program->api, tutti_group_begin());
		collectives_check_call(program, f, part_issue(p, &member, &member), "added");
		if (is_nested)
			CHECK_OK(program->api, tutti_group_end(NULL));
	}
	collectives_check_call(program, f, tutti_group_end(f->ending == BLOCKING ? NULL : &call),
			       "started");
}

/* The same kind of step on all ranks, though some may have no part in it. */
static void step_of_calls(struct program *program, uint64_t *random)
{
	struct api *api = program->api;
	struct flight *f = free_flight(program);
	uint64_t kind = random_below(random, 16), habit = random_below(random, 3);
	int calls = 1;

	if (kind == 0 && !api->forced) {
		f->is_group = true;
		calls = 1 + (int)random_below(random, PARTS_MOST);
	}
	for (int i = 0; i < calls; i++)
		add_part(program, f, i, random_next(random));
	f->ending = habit == 0   ? BLOCKING
		    : habit == 1 ? (enum ending)(1 + random_below(&api->own, 2))
				 : (enum ending)random_below(&api->own, 3);
	if (f->is_group)
		issue_group(program, f);
	else if (f->parts)
		issue_one(program, f);
	for (int i = 0; i < f->parts; i++)
		if (random_below(&api->own, 2))
			part_close_op(&f->part[i]);
	if (f->ending == BLOCKING)
		finish(program, f);
	if (random_below(random, 24) == 0)
		finish_all(program, NULL);
}

static void open_level(struct program *program)
{
	const struct place *parent = &program->places[program->levels - 1];
	struct place *child = &program->places[program->levels];
	uint64_t random = seed_of(program, parent);
	int color = 0, key = 0;

	*child = (struct place){.level = program->levels++};
	if (parent->comm == NULL)
		return;
	bool is_dup = random_below(&random, 3) == 0;
	uint64_t colors = 1 + random_below(&random, 3);
	bool some_stay_away = random_below(&random, 3) == 0;
	random += (uint64_t)parent->rank * 977;
	if (is_dup) {
		CHECK_OK(program->api, tutti_comm_dup(parent->comm, &child->comm));
	} else {
		color = (int)random_below(&random, colors);
		key = (int)random_below(&random, 5) - 2;
		if (some_stay_away && random_below(&random, 4) == 0)
			color = -1;
		CHECK_OK(program->api,
			 tutti_comm_split(parent->comm, color, key, NULL, &child->comm));
	}
	CHECK(program->api, (child->comm == NULL) == (color < 0),
	      "step %d: split with color %d of %d ranks gave %s communicator", program->step, color,
	      parent->size, child->comm ? "a" : "no");
	child->rank = tutti_rank(child->comm);
	child->size = tutti_size(child->comm);
	child->id = parent->id * 31 + (uint64_t)program->step * 1009 + (uint64_t)color + 1;
}

/* Its works may be waited for before or after. */
static void close_level(struct program *program)
{
	struct place *place = &program->places[--program->levels];

	if (place->comm == NULL)
		return;
	if (random_below(&program->api->own, 2))
		finish_all(program, place->comm);
	tutti_comm_destroy(place->comm);
	finish_all(program, place->comm);
	place->comm = NULL;
}

static void one_step(struct program *program)
{
	static const struct place everywhere = {.id = 1};
	uint64_t random = seed_of(program, &everywhere), kind = random_below(&random, 100);

	if (kind < 4 && program->levels < LEVELS)
		open_level(program);
	else if (kind >= 4 && kind < 7 && program->levels > 1)
		close_level(program);
	else
		step_of_calls(program, &random);
}

void pass_programs(struct api *api)
{
	const char *text = getenv("STEPS");
	int steps = text ? atoi(text) : api->quick ? STEPS_OF_A_TEST / 3 : STEPS_OF_A_TEST;
	struct program *program = calloc(1, sizeof *program);

	CHECK(api, program, "no memory");
	CHECK(api, steps > 0, "STEPS=%s", text);
	program->api = api;
	program->places[0] =
		(struct place){.comm = api->comm, .rank = api->rank, .size = api->size};
	program->levels = 1;
	for (; program->step < steps; program->step++)
		one_step(program);
	while (program->levels > 1)
		close_level(program);
	finish_all(program, NULL);
	free(program);
}
