/* Breaks when ranks cannot meet, or meet wrongly: 1 to 64 of them, as threads and as processes,
 * over TCP, a file and a URL, with a secret and without. What goes wrong is in
 * test_rendezvous_failures.c. */
#include "tests/limit.h"
#include "tests/core/join/ranks.h"
#include "tests/threads.h"

#include <sys/stat.h>

static void check_world(const struct rank_run *runs, int n)
{
	for (int r = 0; r < n; r++) {
		if (runs[r].status != TUTTI_OK)
			fail_msg("rank %d: %s", r, runs[r].error);
		assert_int_equal(runs[r].rounds_right, runs[r].rounds);
		assert_memory_equal(runs[r].key, runs[0].key, TUTTI_KEY_BYTES);
		assert_memory_equal(runs[r].comm_id, runs[0].comm_id, 16);
	}
}

static void threads_meet(void **state)
{
	for (int n = 1; n <= 8; n++) {
		struct rank_run runs[8];
		ranks_prepare(runs, n, ranks_free_port());
		ranks_run(runs, n);
		check_world(runs, n);
	}
}

static void sixty_four_meet(void **state)
{
	static struct rank_run runs[64];

	ranks_prepare(runs, 64, ranks_free_port());
	ranks_run(runs, 64);
	check_world(runs, 64);
}

static void processes_meet(void **state)
{
	struct rank_run runs[5];

	ranks_prepare(runs, 5, ranks_free_port());
	ranks_fork(runs, 5);
}

static void the_same_port_serves_again(void **state)
{
	struct rank_run runs[4];
	int port = ranks_free_port();
	uint64_t last[2] = {0, 0};

	ranks_prepare(runs, 4, port);
	for (int r = 0; r < 4; r++)
		runs[r].joins = 5; /* one after the other, without waiting for each other */
	ranks_run(runs, 4);
	check_world(runs, 4);
	ranks_prepare(runs, 4, port);
	memcpy(last, runs[0].comm_id, sizeof last);
	ranks_run(runs, 4);
	check_world(runs, 4);
	assert_memory_not_equal(last, runs[0].comm_id, sizeof last);
}

static void ranks_of_one_user_need_no_secret(void **state)
{
	struct rank_run runs[4];

	for (int joins = 1; joins <= 4; joins += 3) {
		ranks_prepare(runs, 4, ranks_free_port());
		for (int r = 0; r < 4; r++) {
			runs[r].job.secret[0] = '\0';
			runs[r].joins = joins;
		}
		ranks_run(runs, 4);
		check_world(runs, 4);
	}
	ranks_prepare(runs, 3, ranks_free_port());
	for (int r = 0; r < 3; r++)
		runs[r].job.secret[0] = '\0';
	ranks_fork(runs, 3);
}

static void insecure_means_without(void **state)
{
	struct rank_run runs[3];

	ranks_prepare(runs, 3, ranks_free_port());
	for (int r = 0; r < 3; r++) {
		runs[r].job.secret[0] = '\0';
		runs[r].env.insecure = 1;
	}
	ranks_run(runs, 3);
	check_world(runs, 3);
}

/* As under torchrun: the port itself, and one above it, belong to somebody else. */
static void taken_ports_are_probed(void **state)
{
	struct rank_run runs[3];
	int agent, other, port = 0;

	for (int tries = 0; tries < 100 && !port; tries++) {
		assert_int_equal(net_listen("127.0.0.1", 0, 8, &agent, &port), TUTTI_OK);
		if (net_listen("127.0.0.1", port + 1, 8, &other, NULL) == TUTTI_OK)
			break;
		close(agent);
		port = 0;
	}
	assert_int_not_equal(port, 0);
	for (int has_secret = 0; has_secret < 2; has_secret++) {
		ranks_prepare(runs, 3, port);
		for (int r = 0; r < 3; r++) {
			runs[r].job.port_is_taken = 1;
			if (!has_secret)
				runs[r].job.secret[0] = '\0';
		}
		ranks_run(runs, 3);
		check_world(runs, 3);
	}
	close(agent);
	close(other);
}

/* Two jobs with the same secret probe the same ports at the same time. */
static void neighbours_are_told_apart(void **state)
{
	struct rank_run runs[6];
	int port = ranks_free_port();

	ranks_prepare(runs, 3, port);
	ranks_prepare(runs + 3, 3, port + 2);
	for (int r = 0; r < 6; r++)
		runs[r].job.port_is_taken = 1;
	ranks_run(runs, 6);
	check_world(runs, 3);
	check_world(runs + 3, 3);
	assert_memory_not_equal(runs[0].key, runs[3].key, TUTTI_KEY_BYTES);
}

static void other_names_of_this_machine_do(void **state)
{
	static const char *const hosts[] = {"localhost", "0.0.0.0", "127.0.0.1"};
	struct rank_run runs[3];

	for (int has_secret = 0; has_secret < 2; has_secret++) {
		for (int i = 0; i < 3; i++) {
			ranks_prepare(runs, 3, ranks_free_port());
			for (int r = 0; r < 3; r++) {
				snprintf(runs[r].job.host, sizeof runs[r].job.host, "%s",
					 hosts[(i + r) % 3]);
				if (!has_secret)
					runs[r].job.secret[0] = '\0';
			}
			ranks_run(runs, 3);
			check_world(runs, 3);
		}
	}
}

static void a_file_is_a_meeting_place(void **state)
{
	char dir[] = "/tmp/tuttitest-XXXXXX", path[64];
	struct rank_run runs[4];
	struct stat about;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/here", dir);
	for (int has_secret = 0; has_secret < 2; has_secret++) {
		ranks_prepare(runs, 4, 0);
		for (int r = 0; r < 4; r++) {
			runs[r].job.meeting = JOB_FILE;
			snprintf(runs[r].job.path, sizeof runs[r].job.path, "%s", path);
			runs[r].joins = 3;
			if (!has_secret)
				runs[r].job.secret[0] = '\0';
		}
		ranks_run(runs, 4);
		check_world(runs, 4);
		assert_int_equal(stat(path, &about), -1);
	}
	assert_int_equal(rmdir(dir), 0); /* nothing else was left there either */
}

/* A file that an earlier job left when it was killed; its port is somebody else's now. */
static void a_stale_file_breaks_nothing(void **state)
{
	char dir[] = "/tmp/tuttitest-XXXXXX", path[64];
	struct rank_run runs[3];
	int other, port;
	FILE *file;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/here", dir);
	assert_int_equal(net_listen("127.0.0.1", 0, 64, &other, &port), TUTTI_OK);
	file = fopen(path, "w");
	fprintf(file, "tutti://127.0.0.1:%d/%064d\n", port, 7);
	fclose(file);
	ranks_prepare(runs, 3, 0);
	for (int r = 0; r < 3; r++) {
		runs[r].job.meeting = JOB_FILE;
		snprintf(runs[r].job.path, sizeof runs[r].job.path, "%s", path);
	}
	ranks_run(runs, 3);
	check_world(runs, 3);
	close(other);
	assert_int_equal(rmdir(dir), 0);
}

static void a_url_is_a_meeting_place(void **state)
{
	char url[512];
	struct rank_run runs[5];
	struct env env = {.timeout_ms = LONG_MS};

	for (int n = 2; n <= 5; n++) {
		assert_int_equal(rendezvous_serve(url, sizeof url, &env), TUTTI_OK);
		ranks_prepare(runs, n, 0);
		for (int r = 0; r < n; r++) {
			tutti_config config = {.rank = r, .world_size = n, .rendezvous = url};
			assert_int_equal(job_find(&runs[r].job, &config, &env), TUTTI_OK);
		}
		ranks_run(runs, n);
		check_world(runs, n);
	}
	assert_int_equal(rendezvous_serve(url, 20, &env), TUTTI_ERR_INVALID);
	assert_non_null(strstr(last_error(), "20 bytes"));
}

static void big_records_and_many_rounds(void **state)
{
	struct rank_run runs[5];

	ranks_prepare(runs, 5, ranks_free_port());
	for (int r = 0; r < 5; r++) {
		runs[r].rounds = 20;
		runs[r].max_record = 65536;
	}
	ranks_run(runs, 5);
	check_world(runs, 5);
}

static void alone_is_without_sockets_and_threads(void **state)
{
	struct job job = {.size = 1, .meeting = JOB_ALONE};
	struct env env = {.timeout_ms = LONG_MS};
	struct rendezvous *r;
	uint64_t id[2];
	uint8_t key[TUTTI_KEY_BYTES];
	int all = 0, mine = 7, fds = open_descriptors();

	assert_int_equal(rendezvous_join(&r, &job, &env, 0), TUTTI_OK);
	assert_int_equal(rendezvous_all_gather(r, &mine, sizeof mine, &all, 0), TUTTI_OK);
	assert_int_equal(all, 7);
	assert_int_equal(open_descriptors(), fds);
	rendezvous_identity(r, key, id);
	assert_true(id[0] || id[1]);
	rendezvous_leave(r, 0);
	rendezvous_leave(NULL, 0);
}

static void *do_nothing(void *arg)
{
	return arg;
}

/* After the first thread, with which a sanitizer may start one of its own. */
static int count_threads(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, do_nothing, NULL);
	pthread_join(thread, NULL);
	return threads_alive();
}

int main(void)
{
	test_ports(); /* its descriptor is not counted */
	int fds = open_descriptors(), threads = count_threads();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alone_is_without_sockets_and_threads),
		cmocka_unit_test(threads_meet),
		cmocka_unit_test(sixty_four_meet),
		cmocka_unit_test(processes_meet),
		cmocka_unit_test(the_same_port_serves_again),
		cmocka_unit_test(ranks_of_one_user_need_no_secret),
		cmocka_unit_test(insecure_means_without),
		cmocka_unit_test(taken_ports_are_probed),
		cmocka_unit_test(neighbours_are_told_apart),
		cmocka_unit_test(other_names_of_this_machine_do),
		cmocka_unit_test(a_file_is_a_meeting_place),
		cmocka_unit_test(a_stale_file_breaks_nothing),
		cmocka_unit_test(a_url_is_a_meeting_place),
		cmocka_unit_test(big_records_and_many_rounds),
	};
	int failed;

	test_limit(110);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	/* The servers of URLs end on their own, a moment after their ranks. */
	for (uint64_t end = deadline_after_ms(10000);
	     threads_alive() > threads && clock_now_ns() < end;)
		net_pause(3, end);
	if (threads_alive() == threads && open_descriptors() == fds)
		return failed;
	fprintf(stderr,
		"left behind: of descriptors %d instead of %d, of threads %d instead of %d\n",
		open_descriptors(), fds, threads_alive(), threads);
	return failed + 1;
}
