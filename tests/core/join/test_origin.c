/* Breaks when ranks that are to meet new ones look elsewhere than where they have met themselves,
 * or by another secret, although nobody has told them to. */
#include "core/status.h"
#include "core/join/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef012345678"
#define ONE "tutti://a,127.0.0.1:77/" HEX "9abcde1"
#define TWO "tutti://b,127.0.0.1:78/" HEX "9abcde2"

/* How a rank of the world has joined, by config and environment; what it is told to grow; and where
 * that leads: a URL of its own kind. */
static const struct {
	const char *joined, *joined_secret, *joined_environment;
	const char *told, *told_secret, *environment;
	const char *place, *secret;
	int is_served;
} ways[] = {
	/* the launcher's */
	{NULL, NULL, "s1", NULL, NULL, "s1", "tcp://node1:29500", "s1", 0},
	{NULL, NULL, NULL, NULL, NULL, NULL, "tcp://node1:29500", "", 0},
	{NULL, "own", "s1", NULL, NULL, "s1", "tcp://node1:29500", "own", 0},
	{NULL, NULL, "s1", NULL, "new", "s1", "tcp://node1:29500", "new", 0},
	{NULL, NULL, "s1", NULL, NULL, "s2", "tcp://node1:29500", "s1", 0},
	{NULL, NULL, "s1", "tcp://c:9", NULL, "s1", "tcp://c:9", "s1", 0},
	/* a config's */
	{"tcp://[::1]:5", "own", NULL, NULL, NULL, NULL, "tcp://::1:5", "own", 0},
	{"tcp://c:5", "own", "s1", NULL, NULL, "s1", "tcp://c:5", "own", 0},
	{"tcp://c:5", NULL, "s1", NULL, NULL, NULL, "tcp://c:5", "s1", 0},
	{"tcp://c:5", NULL, NULL, NULL, NULL, "s1", "tcp://c:5", "s1", 0},
	{"tcp://c:5", "own", NULL, "tcp://d:6", NULL, "s1", "tcp://d:6", "own", 0},
	{"tcp://c:5", "own", NULL, "tcp://d:6", "new", "s1", "tcp://d:6", "new", 0},
	{"tcp://c:5", "own", NULL, NULL, "new", "s1", "tcp://c:5", "new", 0},
	{"file:///t/x", "own", NULL, NULL, NULL, NULL, "file:///t/x.grow", "own", 0},
	{"file:///t/x", NULL, NULL, NULL, NULL, NULL, "file:///t/x.grow", "", 0},
	{"file:///t/x", "own", NULL, "file:///t/y", NULL, NULL, "file:///t/y.grow", "own", 0},
	/* a URL's: its secret is a part of it */
	{ONE, NULL, NULL, NULL, NULL, NULL, "tcp://a,127.0.0.1:77", HEX "9abcde1", 0},
	{ONE, "own", "s1", NULL, "new", "s1", "tcp://a,127.0.0.1:77", HEX "9abcde1", 0},
	{ONE, NULL, NULL, ONE, NULL, NULL, "tcp://a,127.0.0.1:77", HEX "9abcde1", 0},
	{ONE, NULL, NULL, TWO, NULL, NULL, "tcp://b,127.0.0.1:78", HEX "9abcde2", 1},
	{"tcp://c:5", "own", NULL, TWO, NULL, NULL, "tcp://b,127.0.0.1:78", HEX "9abcde2", 1},
	{ONE, NULL, NULL, "tcp://c:5", "new", NULL, "tcp://c:5", "new", 0},
	{ONE, NULL, NULL, "tcp://c:5", NULL, "s1", "tcp://c:5", "s1", 0},
};

static struct job first_job(const char *rendezvous, const char *secret, struct env *env, int size)
{
	tutti_config config = {
		.rank = 0, .world_size = size, .rendezvous = rendezvous, .secret = secret};
	struct job job;

	if (job_find(&job, &config, env) != TUTTI_OK)
		fail_msg("%s: %s", rendezvous ? rendezvous : "nowhere", last_error());
	return job;
}

static void check(const struct job *job, size_t i)
{
	char place[800];

	if (job->meeting == JOB_FILE)
		snprintf(place, sizeof place, "file://%s", job->path);
	else
		snprintf(place, sizeof place, "tcp://%s:%d", job->host, job->port);
	if (strcmp(place, ways[i].place) != 0 || strcmp(job->secret, ways[i].secret) != 0 ||
	    job->is_served != ways[i].is_served)
		fail_msg("way %zu leads to %s, secret \"%s\", is_served %d", i, place, job->secret,
			 job->is_served);
	assert_true(job->is_growing && job->size == 4 && job->rank == 1);
}

/* again: the communicator has grown before, by the same way. */
static void find_again(size_t i, int again)
{
	struct env env = {.secret = ways[i].joined_environment, .restarted = again};
	tutti_config told = {.rendezvous = ways[i].told, .secret = ways[i].told_secret};
	struct job job = first_job(ways[i].joined, ways[i].joined_secret, &env, 3);
	struct origin *origin = origin_new(&job);

	assert_non_null(origin);
	assert_ptr_equal(origin_hold(origin), origin);
	origin_drop(origin);
	env = (struct env){.secret = ways[i].environment};
	assert_int_equal(job_find_again(&job, 1, 4, origin, &told, &env), TUTTI_OK);
	check(&job, i);
	origin_drop(origin);
}

static void each_part_is_the_communicators(void **state)
{
	setenv("RANK", "0", 1);
	setenv("WORLD_SIZE", "3", 1);
	setenv("MASTER_ADDR", "node1", 1);
	setenv("MASTER_PORT", "29500", 1);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		for (int again = 0; again < 2; again++)
			find_again(i, again);
}

/* Where a launcher has sent the ranks, they meet again, whatever the variables are by now. */
static void variables_may_change(void **state)
{
	struct env env = {0};
	const tutti_config nothing = {0};
	struct job job = first_job(NULL, "own", &env, 3);
	struct origin *origin = origin_new(&job);

	setenv("MASTER_ADDR", "elsewhere", 1);
	unsetenv("MASTER_PORT");
	assert_int_equal(job_find_again(&job, 1, 4, origin, &nothing, &env), TUTTI_OK);
	assert_string_equal(job.host, "node1");
	assert_int_equal(job.port, 29500);
	origin_drop(origin);
	setenv("MASTER_ADDR", "node1", 1);
	setenv("MASTER_PORT", "29500", 1);
}

/* A rank that was alone has met nobody; its config may have said where it would, and a server that
 * it has not gone to waits still. */
static void alone(void **state)
{
	struct env env = {.secret = "s1"};
	const tutti_config nothing = {0};
	struct job job = first_job(NULL, NULL, &env, 1);
	struct origin *origin = origin_new(&job);

	assert_int_equal(job_find_again(&job, 1, 4, origin, &nothing, &env), TUTTI_OK);
	assert_string_equal(job.host, "node1");
	origin_drop(origin);
	assert_int_equal(job_find_again(&job, 1, 4, NULL, &nothing, &env), TUTTI_OK);
	assert_string_equal(job.host, "node1");
	job = first_job("tcp://c:5", "own", &env, 1);
	origin = origin_new(&job);
	assert_int_equal(job_find_again(&job, 1, 4, origin, &nothing, &env), TUTTI_OK);
	assert_string_equal(job.host, "c");
	assert_string_equal(job.secret, "own");
	origin_drop(origin);
	job = first_job(ONE, NULL, &env, 1);
	origin = origin_new(&job);
	assert_int_equal(job_find_again(&job, 1, 4, origin, &nothing, &env), TUTTI_OK);
	assert_true(job.is_url && job.is_served);
	origin_drop(origin);
	origin_drop(NULL);
	assert_null(origin_hold(NULL));
}

/* The ranks on the machine whose address comes first in a URL serve it again. */
static void a_url_is_where_its_first_address_is(void **state)
{
	struct env env = {0};

	struct job job = first_job("tutti://240.0.0.1,127.0.0.1:77/" HEX "9abcde1", NULL, &env, 3);
	job.is_served = 0;
	assert_false(job_is_here(&job));
	job = first_job("tutti://127.0.0.1,240.0.0.1:77/" HEX "9abcde1", NULL, &env, 3);
	job.is_served = 0;
	assert_true(job_is_here(&job));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_part_is_the_communicators),
		cmocka_unit_test(variables_may_change),
		cmocka_unit_test(alone),
		cmocka_unit_test(a_url_is_where_its_first_address_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
