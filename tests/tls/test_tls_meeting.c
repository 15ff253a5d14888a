/* Breaks when ranks with TLS do not meet, or meet ranks without: at rank 0's, at a file, at a
 * server that is no rank. */
#include "core/tls.h"
#include "tests/limit.h"
#include "tests/core/join/ranks.h"
#include "tests/openssl.h"

#define SECRET "the secret of this test"

static void prepare(struct rank_run *runs, int n)
{
	ranks_prepare(runs, n, ranks_free_port());
	for (int r = 0; r < n; r++)
		runs[r].job.has_tls = true;
}

static void ranks_meet(void **state)
{
	static struct rank_run runs[6];
	test_ports(); /* its descriptor is not counted */
	int fds = open_descriptors();

	for (int n = 2; n <= 6; n += 2) {
		prepare(runs, n);
		ranks_run(runs, n);
		ranks_expect_well(runs, n);
		assert_int_equal(open_descriptors(), fds);
	}
}

/* Answers of many records, most of which the socket has no room for, and several frames in one
 * record. */
static void long_records_and_many_rounds(void **state)
{
	static struct rank_run runs[5];

	prepare(runs, 5);
	for (int r = 0; r < 5; r++) {
		runs[r].rounds = 20;
		runs[r].max_record = 65536;
	}
	ranks_run(runs, 5);
	ranks_expect_well(runs, 5);
	prepare(runs, 5);
	for (int r = 0; r < 5; r++)
		runs[r].rounds = 300;
	ranks_run(runs, 5);
	ranks_expect_well(runs, 5);
}

static void processes_meet_again_and_again(void **state)
{
	static struct rank_run runs[3];

	prepare(runs, 3);
	for (int r = 0; r < 3; r++)
		runs[r].joins = 4;
	ranks_fork(runs, 3);
}

/* One of three is without: all end, with a message that names it or the first of the others. */
static void who_differs_is_named(void **state)
{
	static struct rank_run runs[3];

	for (int odd = 0; odd < 6; odd++) {
		prepare(runs, 3);
		for (int r = 0; r < 3; r++)
			runs[r].job.has_tls = (r == odd % 3) == (odd < 3);
		ranks_run(runs, 3);
		for (int r = 0; r < 3; r++)
			ranks_expect(&runs[r], TUTTI_ERR_INVALID, "all ranks need the same");
	}
}

static void another_secret_is_refused(void **state)
{
	static struct rank_run runs[2];

	prepare(runs, 2);
	strcpy(runs[1].job.secret, "another");
	for (int r = 0; r < 2; r++)
		runs[r].timeout_ms = (int)test_limit_stretched(1000);
	ranks_run(runs, 2);
	ranks_expect(&runs[0], TUTTI_ERR_TIMEOUT, "rank 1 missing");
	ranks_expect(&runs[1], TUTTI_ERR_AUTH, "cannot prove");
}

/* A server that is no rank serves both kinds, whatever it was told itself. */
static void a_server_of_its_own(void **state)
{
	static struct rank_run runs[3];

	for (int with = 0; with < 2; with++) {
		struct env env = {.timeout_ms = LONG_MS};
		tutti_config config = {.world_size = 3};
		char url[512];
		config.rendezvous = url;
		assert_int_equal(rendezvous_serve(url, sizeof url, &env), TUTTI_OK);
		prepare(runs, 3);
		for (int r = 0; r < 3; r++) {
			config.rank = r;
			env.tls = with;
			assert_int_equal(job_find(&runs[r].job, &config, &env), TUTTI_OK);
			assert_int_equal(runs[r].job.has_tls, with);
		}
		ranks_run(runs, 3);
		ranks_expect_well(runs, 3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_meet),
		cmocka_unit_test(long_records_and_many_rounds),
		cmocka_unit_test(processes_meet_again_and_again),
		cmocka_unit_test(who_differs_is_named),
		cmocka_unit_test(another_secret_is_refused),
		cmocka_unit_test(a_server_of_its_own),
	};

	return openssl_is_here() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
