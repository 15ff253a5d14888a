/* slow: 3 s */
/* Breaks when a clock that jumps or stands still, as when a machine is suspended, migrated or set
 * right, makes a rank crash, hang or compute something wrong: the time of day is of no concern to a
 * job, a monotonic clock that stood still is not noticed, and one that jumps ahead by an hour ends
 * waits at the most. */
#include "core/clock.h"
#include "tests/limits/ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define MS     INT64_C(1000000)
#define HOUR   (3600000 * MS)
#define ROUNDS 4

static uint64_t random_state;

static int64_t below(int64_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (int64_t)(random_state % (uint64_t)n);
}

/* Whose clocks are uneven, and how. */
struct conditions {
	int victim; /* -1: all ranks */
	struct shim_clock monotonic, day;
};

static void set_clocks(int rank, void *arg)
{
	const struct conditions *w = arg;

	if (w->victim < 0 || w->victim == rank)
		shim_clocks(&w->monotonic, &w->day);
}

static const struct outcome *run(const struct scene *given, struct conditions *w, const char *what)
{
	struct scene scene = *given;
	const struct outcome *outcomes;

	if (!scene.timeout_ms)
		scene.timeout_ms = 20000;
	scene.prepare = set_clocks;
	scene.arg = w;
	scene.first = true;
	outcomes = ranks_run(&scene);
	ranks_expect_decent(outcomes, scene.size, what);
	return outcomes;
}

static void expect_well(const struct outcome *outcomes, int size, const char *what)
{
	for (int r = 0; r < size; r++)
		if (!outcomes[r].was_started || outcomes[r].job.where)
			fail_msg("%s: rank %d: %s: %s", what, r, outcomes[r].job.where,
				 outcomes[r].job.error);
}

static const struct scene scenes[] = {
	{.size = 3, .window = true},
	{.size = 2, .transports = "tcp"},
	{.size = 3, .transports = "shm"},
};
#define SCENES (int)(sizeof scenes / sizeof *scenes)

static void the_time_of_day_may_be_set(void **state)
{
	for (int i = 0; i < ROUNDS * SCENES; i++) {
		const struct scene *scene = &scenes[i % SCENES];
		struct conditions w = {.victim = i % 2 ? -1 : 1};
		w.day = (struct shim_clock){below(60 * MS), 0, i % 4 < 2 ? 24 * HOUR : -24 * HOUR};
		expect_well(run(scene, &w, "another day"), scene->size, "another day");
	}
}

static void a_clock_may_stand_still(void **state)
{
	for (int i = 0; i < ROUNDS * SCENES; i++) {
		const struct scene *scene = &scenes[i % SCENES];
		struct conditions w = {.victim = i % 2 ? -1 : (int)below(scene->size)};
		w.monotonic = (struct shim_clock){below(60 * MS), 200 * MS, 0};
		expect_well(run(scene, &w, "a clock stops"), scene->size, "a clock stops");
	}
}

/* A rank that got its child of a split before another rank's deadline passed in there hears of it
 * in the child. */
static bool is_end_of_wait(const struct job_of *job)
{
	return job->status == TUTTI_ERR_TIMEOUT || job->status == TUTTI_ERR_PEER ||
	       (job->status == TUTTI_ERR_ABORTED &&
		strstr(job->error, "aborted this communicator while it was being made: "));
}

static int count_ended(const struct outcome *outcomes, int size, int victim)
{
	int ended = 0;

	for (int r = 0; r < size; r++) {
		const struct job_of *job = &outcomes[r].job;
		if (!job->where)
			continue;
		if (getenv("LIMITS_SHOW"))
			print_message("rank %d (victim %d): %d ms: %s: %s\n", r, victim,
				      outcomes[r].ms, job->where, job->error);
		if (!is_end_of_wait(job))
			fail_msg("rank %d (victim %d): %s: status %d, %s", r, victim, job->where,
				 job->status, job->error);
		ended++;
	}
	return ended;
}

/* Deadlines that have passed have passed; nobody may say anything else. Ranks that the victim left
 * before it had met them cannot know, and wait for as long as they may: that is short here, and it
 * does not matter who else comes to an end of it. */
static void an_hour_may_be_skipped(void **state)
{
	int ended = 0;

	for (int i = 0; i < ROUNDS * SCENES; i++) {
		struct scene scene = scenes[i % SCENES];
		struct conditions w = {.victim = (int)below(scene.size)};
		w.monotonic = (struct shim_clock){below(60 * MS), 0, HOUR};
		scene.timeout_ms = 2000;
		ended += count_ended(run(&scene, &w, "an hour is skipped"), scene.size, w.victim);
	}
	print_message("%d ranks came to a deadline\n", ended);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_time_of_day_may_be_set),
		cmocka_unit_test(a_clock_may_stand_still),
		cmocka_unit_test(an_hour_may_be_skipped),
	};
	const char *given = getenv("TEST_SEED");

	random_state = (given ? strtoull(given, NULL, 10) : clock_now_ns()) | 1;
	printf("TEST_SEED=%" PRIu64 "\n", random_state);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
