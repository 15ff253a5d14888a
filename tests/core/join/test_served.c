/* Breaks when a rendezvous that no rank joins cannot be closed, leaves its thread or a socket
 * behind, or when closing one disturbs another. */
#include "core/join/place.h"
#include "tests/limit.h"
#include "tests/core/join/ranks.h"

#include <tutti/tutti.h>

static struct env env = {.timeout_ms = LONG_MS};

static int open_one(char url[URL_BYTES])
{
	struct job job = {0};

	assert_int_equal(rendezvous_serve(url, URL_BYTES, &env), TUTTI_OK);
	assert_int_equal(place_parse(&job, url), TUTTI_OK);
	return job.port;
}

static bool is_served(int port)
{
	tutti_status status;
	int fd;

	status = net_try_connect("127.0.0.1", port, ranks_later(), &fd);
	if (status == TUTTI_OK)
		close(fd);
	return status == TUTTI_OK;
}

static void a_closed_one_is_gone(void **state)
{
	char url[URL_BYTES], other_url[URL_BYTES];
	int fds = open_descriptors(), port = open_one(url), other = open_one(other_url);

	assert_true(is_served(port));
	assert_int_equal(tutti_rendezvous_close(url), TUTTI_OK);
	assert_false(is_served(port));
	assert_true(is_served(other));
	assert_int_equal(tutti_rendezvous_close(url), TUTTI_OK); /* it has ended */
	assert_int_equal(tutti_rendezvous_close(other_url), TUTTI_OK);
	assert_false(is_served(other));
	assert_int_equal(open_descriptors(), fds);
}

static void other_urls_are_none_to_close(void **state)
{
	char url[URL_BYTES];

	assert_int_equal(tutti_rendezvous_close(NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_rendezvous_close(""), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_rendezvous_close("tcp://h:1"), TUTTI_ERR_INVALID);
	assert_non_null(strstr(last_error(), "tutti_rendezvous_open"));
	assert_int_equal(tutti_rendezvous_close("tutti://h:1/abc"), TUTTI_ERR_INVALID);
	snprintf(url, sizeof url, "tutti://127.0.0.1:1/%064d", 1);
	assert_int_equal(tutti_rendezvous_close(url), TUTTI_OK);
}

/* Its copy of the server has no thread to wait for. */
static void a_forked_child_closes_nothing(void **state)
{
	char url[URL_BYTES];
	int port = open_one(url), status = -1;
	pid_t child = fork();

	if (child == 0) {
		test_limit(60);
		_exit(tutti_rendezvous_close(url));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(is_served(port));
	assert_int_equal(tutti_rendezvous_close(url), TUTTI_OK);
	assert_false(is_served(port));
}

/* The system may give the port to another program before the ranks meet again to grow. */
static void a_taken_port_is_no_end(void **state)
{
	struct rank_run runs[2];
	char url[URL_BYTES];
	int port = open_one(url), other;

	assert_int_equal(tutti_rendezvous_close(url), TUTTI_OK);
	assert_int_equal(net_listen(NULL, port, 16, &other, NULL), TUTTI_OK);
	ranks_prepare(runs, 2, port);
	for (int r = 0; r < 2; r++) {
		runs[r].job.secret[0] = '\0';
		assert_int_equal(place_parse(&runs[r].job, url), TUTTI_OK);
		runs[r].job.is_served = 0;
		runs[r].job.is_growing = 1;
		runs[r].job.server = 0;
	}
	ranks_run(runs, 2);
	ranks_expect_well(runs, 2);
	close(other);
}

/* Ranks that are forks of the process that opened it need its port when they grow, and a copy of
 * the listener would take connections that nobody serves. */
static void a_forked_child_keeps_no_port(void **state)
{
	char url[URL_BYTES], byte;
	int port = open_one(url), status = -1, until[2], here[2];
	pid_t child;

	assert_int_equal(pipe(until) | pipe(here), 0);
	child = fork();
	if (child == 0) {
		test_limit(60);
		close(until[1]);
		if (write(here[1], "x", 1) != 1) /* fork has returned here, too */
			_exit(1);
		_exit((int)read(until[0], &byte, 1)); /* 0: the parent is done */
	}
	assert_int_equal(read(here[0], &byte, 1), 1);
	assert_int_equal(tutti_rendezvous_close(url), TUTTI_OK);
	assert_false(is_served(port));
	for (int i = 0; i < 2; i++) {
		close(until[i]);
		close(here[i]);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* The ranks end it at the same time, by leaving. */
static void both_may_end_it(void **state)
{
	struct rank_run runs[2];
	char url[URL_BYTES];

	for (int i = 0; i < 100; i++) {
		int port = open_one(url);
		ranks_prepare(runs, 2, port);
		for (int r = 0; r < 2; r++) {
			runs[r].job.secret[0] = '\0';
			assert_int_equal(place_parse(&runs[r].job, url), TUTTI_OK);
			runs[r].rounds = i % 3;
		}
		ranks_run(runs, 2);
		ranks_expect_well(runs, 2);
		assert_int_equal(tutti_rendezvous_close(url), TUTTI_OK);
		assert_false(is_served(port));
	}
}

int main(void)
{
	test_ports(); /* its descriptor is not counted */
	int fds = open_descriptors();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_closed_one_is_gone),
		cmocka_unit_test(other_urls_are_none_to_close),
		cmocka_unit_test(a_forked_child_closes_nothing),
		cmocka_unit_test(a_forked_child_keeps_no_port),
		cmocka_unit_test(a_taken_port_is_no_end),
		cmocka_unit_test(both_may_end_it),
	};

	test_limit(110);
	return ranks_end(cmocka_run_group_tests(tests, NULL, NULL), fds);
}
