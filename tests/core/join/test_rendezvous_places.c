/* Breaks when a job meets where it must not (another job's port, somebody else's file, across
 * machines without a secret), or when a join that cannot succeed there does not say why. */
#include "core/join/place.h"
#include "core/join/secret.h"
#include "tests/limit.h"
#include "tests/core/join/ranks.h"

#include <signal.h>
#include <sys/stat.h>

#define SHORT_MS 500

static void a_taken_port_is_named(void **state)
{
	struct rank_run runs[2];
	int fds[17], port = 0, n = 0;
	char where[64];

	ranks_prepare(runs, 2, 0);
	assert_int_equal(net_listen("127.0.0.1", 0, 1, &fds[0], &port), TUTTI_OK);
	runs[0].job.port = port;
	ranks_start(&runs[0]);
	ranks_finish(&runs[0]);
	snprintf(where, sizeof where, "127.0.0.1:%d: another process listens there", port);
	ranks_expect(&runs[0], TUTTI_ERR_SYSTEM, where);
	close(fds[0]);

	/* All that could be probed are. */
	port = ranks_free_port();
	for (n = 0; n < 16; n++)
		assert_int_equal(net_listen("127.0.0.1", port + 1 + n, 1, &fds[n], NULL), TUTTI_OK);
	ranks_prepare(runs, 2, port);
	runs[0].job.port_is_taken = 1;
	ranks_start(&runs[0]);
	ranks_finish(&runs[0]);
	ranks_expect(&runs[0], TUTTI_ERR_SYSTEM,
		     "each tried once, are all in use: Address already in use (TUTTI_PORT names "
		     "another)");
	while (n > 0)
		close(fds[--n]);
}

static void a_second_job_without_a_secret_is_named(void **state)
{
	struct rank_run runs[2];
	int unix_fd;

	ranks_prepare(runs, 2, ranks_free_port());
	runs[0].job.secret[0] = '\0';
	assert_int_equal(secret_listen(&runs[0].job, &unix_fd), TUTTI_OK);
	ranks_start(&runs[0]);
	ranks_finish(&runs[0]);
	ranks_expect(&runs[0], TUTTI_ERR_SYSTEM, "another job of this machine meets at port");
	close(unix_fd);
}

static void across_machines_a_secret_is_needed(void **state)
{
	struct rank_run runs[2];

	for (int r = 0; r < 2; r++) {
		ranks_prepare(runs, 2, 29500);
		runs[r].job.secret[0] = '\0';
		strcpy(runs[r].job.host, "192.0.2.1"); /* for documents: nobody has it */
		ranks_start(&runs[r]);
		ranks_finish(&runs[r]);
		ranks_expect(&runs[r], TUTTI_ERR_AUTH, "192.0.2.1");
		ranks_expect(&runs[r], TUTTI_ERR_AUTH, "TUTTI_SECRET or TUTTI_SECRET_FILE");
		ranks_expect(&runs[r], TUTTI_ERR_AUTH, "TUTTI_INSECURE=1");
	}
}

static void another_user_gets_no_key(void **state)
{
	struct rank_run runs[2];
	char name[64], byte;
	int fd, status = 0;
	pid_t child;

	if (geteuid() != 0)
		skip_because("becoming another user needs root");
	ranks_prepare(runs, 2, ranks_free_port());
	runs[0].job.secret[0] = runs[1].job.secret[0] = '\0';
	snprintf(name, sizeof name, "tutti-rendezvous-0-%d", runs[0].job.port);
	child = fork();
	if (child == 0) {
		test_limit(60);
		if (setresuid(65534, 65534, 65534) != 0)
			_exit(2);
		while (net_unix_connect(name, &fd) != TUTTI_OK)
			net_pause(3, ranks_later());
		_exit(net_recv_all(fd, &byte, 1, ranks_later()) == TUTTI_OK);
	}
	ranks_start(&runs[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	ranks_start(&runs[1]);
	ranks_finish(&runs[0]);
	ranks_finish(&runs[1]);
	ranks_expect_well(runs, 2);
}

/* Another user has taken the name under which rank 0 would offer the key: nothing is read from it.
 */
static void another_users_key_is_not_taken(void **state)
{
	struct rank_run runs[2];
	int ready[2], status = 0, listener, fd;
	char byte;
	pid_t child;

	if (geteuid() != 0)
		skip_because("becoming another user needs root");
	ranks_prepare(runs, 2, ranks_free_port());
	runs[1].job.secret[0] = '\0';
	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		char name[64], offer[36] = "a key of his";
		test_limit(60);
		snprintf(name, sizeof name, "tutti-rendezvous-0-%d", runs[1].job.port);
		if (setresuid(65534, 65534, 65534) != 0 ||
		    net_unix_listen(name, 4, &listener) != TUTTI_OK ||
		    write(ready[1], "r", 1) != 1 ||
		    net_accept(listener, ranks_later(), &fd) != TUTTI_OK)
			_exit(1);
		net_send_all(fd, offer, sizeof offer, ranks_later());
		_exit(0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	ranks_start(&runs[1]);
	ranks_finish(&runs[1]);
	ranks_expect(&runs[1], TUTTI_ERR_AUTH, "belongs to user 65534");
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(ready[0]);
	close(ready[1]);
}

static void files_that_are_not_ours_are_left_alone(void **state)
{
	char dir[] = "/tmp/tuttitest-XXXXXX", path[64], url[URL_BYTES], text[64] = "";
	struct rank_run runs[2];
	FILE *file;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/thesis.txt", dir);
	file = fopen(path, "w");
	fputs("years of work", file);
	fclose(file);
	for (int r = 0; r < 2; r++) {
		ranks_prepare(runs, 2, 0);
		runs[r].job.meeting = JOB_FILE;
		strcpy(runs[r].job.path, path);
		ranks_start(&runs[r]);
		ranks_finish(&runs[r]);
		ranks_expect(&runs[r], TUTTI_ERR_INVALID, "something else is in it");
	}
	file = fopen(path, "r");
	assert_non_null(fgets(text, sizeof text, file));
	fclose(file);
	assert_string_equal(text, "years of work");
	/* Somebody else's rendezvous file, in a folder that all may write to. */
	file = fopen(path, "w");
	fprintf(file, "tutti://127.0.0.1:1/%064d\n", 1);
	fclose(file);
	assert_int_equal(notice_read(path, true, url), TUTTI_OK);
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 65534, 65534), 0);
		assert_int_equal(notice_read(path, true, url), TUTTI_ERR_AUTH);
		assert_non_null(strstr(last_error(), "65534"));
		assert_int_equal(notice_read(path, false, url), TUTTI_OK);
	}
	unlink(path);
	assert_int_equal(rmdir(dir), 0);
}

static void rank_0_says_what_is_wrong_with_its_file(void **state)
{
	struct rank_run runs[2];

	ranks_prepare(runs, 2, 0);
	runs[0].job.meeting = JOB_FILE;
	strcpy(runs[0].job.path, "/tmp/tuttitest-there-is-no/such-file");
	ranks_start(&runs[0]);
	ranks_finish(&runs[0]);
	ranks_expect(&runs[0], TUTTI_ERR_SYSTEM, "/tmp/tuttitest-there-is-no/such-file");
}

/* Threads would not tell: one that has been joined is listed for a moment still. */
static void wait_until_nobody_listens(int port)
{
	uint64_t deadline_ns = ranks_later();
	tutti_status status;
	int fd;

	while ((status = net_try_connect("127.0.0.1", port, deadline_ns, &fd)) == TUTTI_OK) {
		close(fd);
		net_pause(3, deadline_ns);
	}
	assert_int_equal(status, TUTTI_IN_PROGRESS); /* refused */
}

static void a_url_nobody_uses_ends(void **state)
{
	struct env env = {.timeout_ms = SHORT_MS};
	struct rank_run runs[2];
	char url[URL_BYTES];

	assert_int_equal(rendezvous_serve(url, sizeof url, &env), TUTTI_OK);
	ranks_prepare(runs, 2, 0);
	tutti_config config = {.rank = 0, .world_size = 2, .rendezvous = url};
	assert_int_equal(job_find(&runs[0].job, &config, &env), TUTTI_OK);
	wait_until_nobody_listens(runs[0].job.port);
	runs[0].timeout_ms = SHORT_MS;
	ranks_start(&runs[0]);
	ranks_finish(&runs[0]);
	ranks_expect(&runs[0], TUTTI_ERR_TIMEOUT, "the process that called tutti_rendezvous_open");
	assert_null(strstr(runs[0].error, runs[0].job.secret));
}

/* TUTTI_ADDRESS, and how the hosts of a URL begin then. */
static const char *const own_hosts[][2] = {
	{"fe80::7", ""}, /* without a scope nothing can connect to it */
	{"fe80::7%lo", "[fe80::7%lo],"},
	{"[fd98::7]", "[fd98::7],"},
	{"lo", ""}, /* an interface, whose name nobody could look up */
};

static void a_url_has_what_others_can_connect_to(void **state)
{
	char url[URL_BYTES], wanted[URL_BYTES];

	for (size_t i = 0; i < sizeof own_hosts / sizeof *own_hosts; i++) {
		struct env env = {.address = own_hosts[i][0]};
		assert_int_equal(place_url(url, sizeof url, "secret", 78, &env), TUTTI_OK);
		snprintf(wanted, sizeof wanted, "tutti://%s127.0.0.1:78/secret", own_hosts[i][1]);
		assert_string_equal(url, wanted);
	}
}

int main(void)
{
	test_ports(); /* its descriptor is not counted */
	int fds = open_descriptors();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_taken_port_is_named),
		cmocka_unit_test(a_second_job_without_a_secret_is_named),
		cmocka_unit_test(across_machines_a_secret_is_needed),
		cmocka_unit_test(another_user_gets_no_key),
		cmocka_unit_test(another_users_key_is_not_taken),
		cmocka_unit_test(files_that_are_not_ours_are_left_alone),
		cmocka_unit_test(rank_0_says_what_is_wrong_with_its_file),
		cmocka_unit_test(a_url_nobody_uses_ends),
		cmocka_unit_test(a_url_has_what_others_can_connect_to),
	};

	test_limit(110);
	return ranks_end(cmocka_run_group_tests(tests, NULL, NULL), fds);
}
