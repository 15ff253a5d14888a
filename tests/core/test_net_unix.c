/* Breaks when a descriptor is lost, leaked or given to another user on its way over a Unix socket.
 */
#include "core/net.h"

#include "core/clock.h"
#include "core/status.h"
#include "tests/limit.h"
#include "tests/entries.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

static uint64_t soon(void)
{
	return deadline_after_ms(20);
}

static uint64_t later(void)
{
	return deadline_after_ms(20000);
}

static int fds_before;
static char name[64];

static int count_before(void **state)
{
	fds_before = open_descriptors();
	snprintf(name, sizeof name, "tuttitest-%d-%llu", (int)getpid(),
		 (unsigned long long)clock_now_ns());
	return 0;
}

static int count_after(void **state)
{
	if (open_descriptors() == fds_before)
		return 0;
	fprintf(stderr, "%d descriptors before, %d after\n", fds_before, open_descriptors());
	return -1;
}

static void make_pair(int pair[2])
{
	int listener;

	assert_int_equal(net_unix_listen(name, 4, &listener), TUTTI_OK);
	assert_int_equal(net_unix_connect(name, &pair[0]), TUTTI_OK);
	assert_int_equal(net_accept(listener, later(), &pair[1]), TUTTI_OK);
	close(listener);
}

static void close_pair(int pair[2])
{
	close(pair[0]);
	close(pair[1]);
}

static void the_other_end_is_known(void **state)
{
	int pair[2], pid = 0;

	make_pair(pair);
	assert_true(fcntl(pair[0], F_GETFL) & fcntl(pair[1], F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(pair[0], F_GETFD) & fcntl(pair[1], F_GETFD) & FD_CLOEXEC);
	assert_int_equal(net_unix_check(pair[0], &pid), TUTTI_OK);
	assert_int_equal(pid, getpid());
	assert_int_equal(net_unix_check(pair[1], NULL), TUTTI_OK);
	close_pair(pair);
}

static void another_user_is_refused(void **state)
{
	int listener, fd, status;
	pid_t child;

	if (geteuid() != 0)
		skip_because("becoming another user needs root");
	assert_int_equal(net_unix_listen(name, 4, &listener), TUTTI_OK);
	child = fork();
	if (child == 0) {
		int refused = 1, mine;
		test_limit(20);
		if (setresuid(65534, 65534, 65534) == 0 &&
		    net_unix_connect(name, &mine) == TUTTI_OK)
			refused = net_unix_check(mine, NULL) == TUTTI_ERR_AUTH ? 0 : 2;
		_exit(refused);
	}
	assert_int_equal(net_accept(listener, later(), &fd), TUTTI_OK);
	assert_int_equal(net_unix_check(fd, NULL), TUTTI_ERR_AUTH);
	assert_non_null(strstr(last_error(), "65534"));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(fd);
	close(listener);
}

static void names_are_taken_once(void **state)
{
	int listener, other = -1;
	char long_name[200];

	assert_int_equal(net_unix_listen(name, 4, &listener), TUTTI_OK);
	assert_int_equal(net_unix_listen(name, 4, &other), TUTTI_ERR_SYSTEM);
	assert_int_equal(errno, EADDRINUSE);
	close(listener);
	assert_int_equal(net_unix_connect(name, &other), TUTTI_IN_PROGRESS);
	assert_int_equal(errno, ECONNREFUSED);
	memset(long_name, 'n', sizeof long_name);
	long_name[107] = '\0'; /* the longest */
	assert_int_equal(net_unix_listen(long_name, 4, &listener), TUTTI_OK);
	close(listener);
	long_name[107] = 'n';
	long_name[108] = '\0';
	assert_int_equal(net_unix_listen(long_name, 4, &other), TUTTI_ERR_INVALID);
	assert_int_equal(net_unix_connect("", &other), TUTTI_ERR_INVALID);
	assert_int_equal(other, -1);
}

static void a_full_backlog_is_told(void **state)
{
	int listener, fds[8], n = 0;
	tutti_status status = TUTTI_OK;

	assert_int_equal(net_unix_listen(name, 1, &listener), TUTTI_OK);
	while (n < 8 && (status = net_unix_connect(name, &fds[n])) == TUTTI_OK)
		n++;
	assert_int_equal(status, TUTTI_IN_PROGRESS);
	assert_int_equal(errno, EAGAIN);
	assert_in_range(n, 1, 7);
	while (n > 0)
		close(fds[--n]);
	close(listener);
}

/* Writes into the received end of pipe i come out of ours. */
static void pass(int pair[2], int n)
{
	int pipes[64][2], writers[64], got[64];
	char payload[4] = "abc", text[4];

	for (int i = 0; i < n; i++) {
		assert_int_equal(pipe(pipes[i]), 0);
		writers[i] = pipes[i][1];
	}
	assert_int_equal(net_send_fds(pair[0], payload, 4, writers, n, later()), TUTTI_OK);
	assert_int_equal(net_recv_fds(pair[1], text, 4, got, n, later()), TUTTI_OK);
	assert_string_equal(text, "abc");
	for (int i = 0; i < n; i++) {
		unsigned char byte = (unsigned char)i, back = 255;
		assert_true(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
		assert_int_equal(write(got[i], &byte, 1), 1);
		assert_int_equal(read(pipes[i][0], &back, 1), 1);
		assert_int_equal(back, byte);
		close(got[i]);
		close_pair(pipes[i]);
	}
}

static void descriptors_arrive(void **state)
{
	int pair[2], fds[65] = {0};
	char byte = 0;

	make_pair(pair);
	pass(pair, 0);
	pass(pair, 1);
	pass(pair, 64);
	assert_int_equal(net_send_fds(pair[0], &byte, 1, fds, 65, later()), TUTTI_ERR_INVALID);
	assert_int_equal(net_send_fds(pair[0], &byte, 0, fds, 1, later()), TUTTI_ERR_INVALID);
	close_pair(pair);
}

#define MUCH (4 << 20)

static void *send_much(void *arg)
{
	static char much[MUCH];
	int *pair = arg, fd = pair[0];

	much[MUCH - 1] = 'z';
	return (void *)(intptr_t)net_send_fds(pair[0], much, MUCH, &fd, 1, later());
}

static void a_long_payload_comes_whole(void **state)
{
	static char much[MUCH];
	int pair[2], fd = -1;
	pthread_t sender;
	void *result;

	make_pair(pair);
	pthread_create(&sender, NULL, send_much, pair);
	assert_int_equal(net_recv_fds(pair[1], much, MUCH, &fd, 1, later()), TUTTI_OK);
	pthread_join(sender, &result);
	assert_int_equal((int)(intptr_t)result, TUTTI_OK);
	assert_int_equal(much[MUCH - 1], 'z');
	close(fd);
	close_pair(pair);
}

static void what_is_not_wanted_is_closed(void **state)
{
	int pair[2], fds[3] = {0, 1, 2}, got[3] = {-1, -1, -1};
	char bytes[8] = "1234567";

	make_pair(pair);
	assert_int_equal(net_send_fds(pair[0], bytes, 8, fds, 3, later()), TUTTI_OK);
	assert_int_equal(net_recv_fds(pair[1], bytes, 8, got, 2, later()), TUTTI_ERR_MISMATCH);
	assert_int_equal(net_send_fds(pair[0], bytes, 8, fds, 1, later()), TUTTI_OK);
	assert_int_equal(net_recv_fds(pair[1], bytes, 8, got, 2, later()), TUTTI_ERR_MISMATCH);
	/* The descriptors come with the first bytes, and the rest never. */
	assert_int_equal(net_send_fds(pair[0], bytes, 4, fds, 2, later()), TUTTI_OK);
	assert_int_equal(net_recv_fds(pair[1], bytes, 8, got, 2, soon()), TUTTI_ERR_TIMEOUT);
	close(pair[0]);
	assert_int_equal(net_recv_fds(pair[1], bytes, 8, got, 2, later()), TUTTI_ERR_PEER);
	assert_int_equal(got[0], -1);
	close(pair[1]);
}

static void too_many_files_are_explained(void **state)
{
	int pair[2], fds[4] = {0, 0, 0, 0}, got[4];
	struct rlimit old, low;
	char byte = 0;

	make_pair(pair);
	assert_int_equal(net_send_fds(pair[0], &byte, 1, fds, 4, later()), TUTTI_OK);
	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	low.rlim_cur = (rlim_t)pair[1] + 3; /* two of the four fit */
	setrlimit(RLIMIT_NOFILE, &low);
	assert_int_equal(net_recv_fds(pair[1], &byte, 1, got, 4, later()), TUTTI_ERR_SYSTEM);
	assert_non_null(strstr(last_error(), "ulimit -n"));
	setrlimit(RLIMIT_NOFILE, &old);
	close_pair(pair);
}

/* As when it is taken apart from outside: it has no other end. */
static void no_other_end_is_a_peer_error(void **state)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), passed = 0;

	assert_int_equal(net_send_fds(fd, "x", 1, &passed, 1, later()), TUTTI_ERR_PEER);
	assert_non_null(strstr(last_error(), "went away"));
	close(fd);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, count_before, count_after)
	const struct CMUnitTest tests[] = {
		TEST(the_other_end_is_known),       TEST(another_user_is_refused),
		TEST(names_are_taken_once),         TEST(a_full_backlog_is_told),
		TEST(descriptors_arrive),           TEST(a_long_payload_comes_whole),
		TEST(what_is_not_wanted_is_closed), TEST(too_many_files_are_explained),
		TEST(no_other_end_is_a_peer_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
