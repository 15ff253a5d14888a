/* Breaks when a socket call could block past its deadline, leak a descriptor, raise SIGPIPE, or say
 * nothing useful when it fails. */
#include "core/net.h"

#include "core/clock.h"
#include "core/status.h"
#include "tests/entries.h"
#include "tests/limit.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/unit.h"

#define LONG_MS 20000

static uint64_t soon(void)
{
	return deadline_after_ms(20);
}

static uint64_t later(void)
{
	return deadline_after_ms(LONG_MS);
}

/* Every test must leave as many descriptors as it found. */
static int fds_before;

static int count_before(void **state)
{
	fds_before = open_descriptors();
	return 0;
}

static int count_after(void **state)
{
	if (open_descriptors() == fds_before)
		return 0;
	fprintf(stderr, "%d descriptors before, %d after\n", fds_before, open_descriptors());
	return -1;
}

static void make_pair(const char *host, int pair[2])
{
	int listener, port = 0;

	assert_int_equal(net_listen(host, 0, 4, &listener, &port), TUTTI_OK);
	assert_in_range(port, 1, 65535);
	assert_int_equal(net_try_connect(host ? host : "127.0.0.1", port, later(), &pair[0]),
			 TUTTI_OK);
	assert_int_equal(net_accept(listener, later(), &pair[1]), TUTTI_OK);
	close(listener);
}

static void close_pair(int pair[2])
{
	close(pair[0]);
	close(pair[1]);
}

static void check_flags(int fd)
{
	int one = 0;
	socklen_t length = sizeof one;

	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, &length), 0);
	assert_int_not_equal(one, 0);
}

static void exchange(int pair[2])
{
	char text[6] = "";

	assert_int_equal(net_send_all(pair[0], "hello", 6, later()), TUTTI_OK);
	assert_int_equal(net_recv_all(pair[1], text, 6, later()), TUTTI_OK);
	assert_string_equal(text, "hello");
}

static void bytes_arrive(void **state)
{
	int pair[2];

	make_pair("127.0.0.1", pair);
	check_flags(pair[0]);
	check_flags(pair[1]);
	exchange(pair);
	close_pair(pair);
	make_pair("localhost", pair);
	exchange(pair);
	close_pair(pair);
	make_pair(NULL, pair);
	exchange(pair);
	close_pair(pair);
}

static void all_interfaces_are_both_families(void **state)
{
	int probe = socket(AF_INET6, SOCK_STREAM, 0), listener, port, pair[2];
	struct sockaddr_in6 loopback = {.sin6_family = AF_INET6,
					.sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int has_ipv6 = probe >= 0 && bind(probe, (void *)&loopback, sizeof loopback) == 0;

	if (probe >= 0)
		close(probe);
	if (!has_ipv6)
		skip_because("there is no IPv6");
	make_pair("::1", pair);
	exchange(pair);
	close_pair(pair);
	assert_int_equal(net_listen(NULL, 0, 4, &listener, &port), TUTTI_OK);
	assert_int_equal(net_try_connect("::1", port, later(), &pair[0]), TUTTI_OK);
	assert_int_equal(net_try_connect("127.0.0.1", port, later(), &pair[1]), TUTTI_OK);
	close_pair(pair);
	close(listener);
}

static void deadlines_hold(void **state)
{
	int pair[2], listener, fd = -1;
	char byte = 'x';
	static char much[16 << 20];

	make_pair("127.0.0.1", pair);
	assert_int_equal(net_recv_all(pair[1], &byte, 1, soon()), TUTTI_ERR_TIMEOUT);
	assert_int_equal(net_send_all(pair[0], much, sizeof much, soon()), TUTTI_ERR_TIMEOUT);
	close_pair(pair);
	assert_int_equal(net_listen("127.0.0.1", 0, 4, &listener, NULL), TUTTI_OK);
	assert_int_equal(net_accept(listener, soon(), &fd), TUTTI_ERR_TIMEOUT);
	assert_int_equal(fd, -1);
	close(listener);
}

static void what_is_there_is_taken_after_the_deadline(void **state)
{
	int pair[2];
	char byte = 0;

	make_pair("127.0.0.1", pair);
	assert_int_equal(net_send_all(pair[0], "y", 1, 0), TUTTI_OK);
	assert_int_equal(net_wait(pair[1], POLLIN, later()), TUTTI_OK);
	assert_int_equal(net_recv_all(pair[1], &byte, 1, 0), TUTTI_OK);
	assert_int_equal(byte, 'y');
	close_pair(pair);
}

static void a_closed_end_is_a_peer_error(void **state)
{
	int pair[2];
	char bytes[10];
	tutti_status status = TUTTI_OK;

	make_pair("127.0.0.1", pair);
	assert_int_equal(net_send_all(pair[0], "abc", 3, later()), TUTTI_OK);
	close(pair[0]);
	assert_int_equal(net_recv_all(pair[1], bytes, 10, later()), TUTTI_ERR_PEER);
	assert_non_null(strstr(last_error(), "3 of 10 bytes"));
	/* The first one may still find the socket open. SIGPIPE would end the program. */
	for (int i = 0; i < 1000 && status == TUTTI_OK; i++)
		status = net_send_all(pair[1], bytes, 10, later());
	assert_int_equal(status, TUTTI_ERR_PEER);
	close(pair[1]);
}

static int free_port(void)
{
	int listener, port;

	assert_int_equal(net_listen("127.0.0.1", 0, 1, &listener, &port), TUTTI_OK);
	close(listener);
	return port;
}

static void no_other_end_is_a_peer_error(void **state)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char byte = 0;

	assert_int_equal(net_recv_all(fd, &byte, 1, later()), TUTTI_ERR_PEER);
	assert_int_equal(net_send_all(fd, &byte, 1, later()), TUTTI_ERR_PEER);
	close(fd);
	/* What says nothing of the other end is no word on it. */
	assert_int_equal(net_recv_all(-1, &byte, 1, later()), TUTTI_ERR_SYSTEM);
	assert_false(net_is_gone(EBADF) || net_is_gone(ENOBUFS) || net_is_gone(EAGAIN));
	assert_true(net_is_gone(ECONNABORTED) && net_is_gone(ETIMEDOUT));
}

static void no_listener_is_named(void **state)
{
	int port = free_port(), fd = -1;
	char where[64];

	snprintf(where, sizeof where, "127.0.0.1:%d", port);
	assert_int_equal(net_try_connect("127.0.0.1", port, later(), &fd), TUTTI_IN_PROGRESS);
	assert_int_equal(errno, ECONNREFUSED);
	assert_non_null(strstr(last_error(), where));
	assert_non_null(strstr(last_error(), "refused"));
	assert_int_equal(fd, -1);
}

static void a_taken_port_is_named(void **state)
{
	int listener, other = -1, port;
	char where[64];

	assert_int_equal(net_listen("127.0.0.1", 0, 1, &listener, &port), TUTTI_OK);
	snprintf(where, sizeof where, "127.0.0.1:%d", port);
	assert_int_equal(net_listen("127.0.0.1", port, 1, &other, NULL), TUTTI_ERR_SYSTEM);
	assert_int_equal(errno, EADDRINUSE);
	assert_non_null(strstr(last_error(), where));
	assert_int_equal(net_listen(NULL, port, 1, &other, NULL), TUTTI_ERR_SYSTEM);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(other, -1);
	close(listener);
	/* Free again at once. */
	assert_int_equal(net_listen("127.0.0.1", port, 1, &listener, NULL), TUTTI_OK);
	close(listener);
}

static void an_unknown_name_is_named(void **state)
{
	int fd = -1;

	assert_int_equal(net_listen("not a host name", 0, 1, &fd, NULL), TUTTI_ERR_SYSTEM);
	assert_non_null(strstr(last_error(), "not a host name"));
	assert_int_equal(net_try_connect("not a host name", 1, later(), &fd), TUTTI_IN_PROGRESS);
	assert_non_null(strstr(last_error(), "not a host name"));
	assert_int_equal(fd, -1);
}

/* As of a name that has such an address. Where there is no IPv6 the kernel says that. */
static void a_missing_scope_is_explained(void **state)
{
	static const char needs[] = "link-local IPv6 address needs a scope, as in fe80::1%eth0)";
	int fd = -1;

	net_say_unconnected("node1:29500", EINVAL);
	assert_non_null(strstr(last_error(), "node1:29500 cannot be reached"));
	assert_non_null(strstr(last_error(), needs));
	net_say_unconnected("node1:29500", ENETUNREACH);
	assert_null(strstr(last_error(), needs));
	assert_int_equal(net_try_connect("fe80::1", 29500, later(), &fd), TUTTI_IN_PROGRESS);
	assert_int_equal(errno == EINVAL, strstr(last_error(), needs) != NULL);
	assert_int_equal(net_listen("fe80::1", 29500, 1, &fd, NULL), TUTTI_ERR_SYSTEM);
	assert_int_equal(errno == EINVAL, strstr(last_error(), "(bind; a link-local") != NULL);
	assert_int_equal(fd, -1);
}

static void too_many_files_are_explained(void **state)
{
	struct rlimit old, low;
	int listener, port, pair[2], fd = -1;

	assert_int_equal(net_listen("127.0.0.1", 0, 4, &listener, &port), TUTTI_OK);
	assert_int_equal(net_try_connect("127.0.0.1", port, later(), &pair[0]), TUTTI_OK);
	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	low.rlim_cur = (rlim_t)pair[0] + 1; /* the lowest free ones are used first */
	setrlimit(RLIMIT_NOFILE, &low);
	assert_int_equal(net_accept(listener, soon(), &fd), TUTTI_ERR_SYSTEM);
	assert_non_null(strstr(last_error(), "ulimit -n"));
	assert_int_equal(net_try_connect("127.0.0.1", port, soon(), &fd), TUTTI_ERR_SYSTEM);
	assert_non_null(strstr(last_error(), "ulimit -n"));
	assert_int_equal(net_listen("127.0.0.1", 0, 1, &fd, NULL), TUTTI_ERR_SYSTEM);
	assert_int_equal(net_unix_listen("tuttitest", 1, &fd), TUTTI_ERR_SYSTEM);
	assert_non_null(strstr(last_error(), "ulimit -n"));
	assert_int_equal(fd, -1);
	setrlimit(RLIMIT_NOFILE, &old);
	close(pair[0]);
	close(listener);
}

/* The kernel says that there is no descriptor before it looks whether one is needed. */
static void nobody_needs_a_descriptor(void **state)
{
	struct rlimit old, low;
	int listener, port, fd = -1, caller;
	tutti_status alone, called;

	assert_int_equal(net_listen("127.0.0.1", 0, 8, &listener, &port), TUTTI_OK);
	assert_int_equal(net_try_connect("127.0.0.1", port, later(), &caller), TUTTI_OK);
	assert_int_equal(net_accept(listener, later(), &fd), TUTTI_OK);
	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	low.rlim_cur = 3;
	setrlimit(RLIMIT_NOFILE, &low);
	alone = net_accept(listener, 0, &fd);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(alone, TUTTI_ERR_TIMEOUT);
	close(caller);
	assert_int_equal(net_try_connect("127.0.0.1", port, later(), &caller), TUTTI_OK);
	assert_int_equal(net_wait(listener, POLLIN, later()), TUTTI_OK);
	setrlimit(RLIMIT_NOFILE, &low);
	called = net_accept(listener, 0, &listener);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(called, TUTTI_ERR_SYSTEM);
	close(caller);
	close(fd);
	close(listener);
}

static atomic_int ticks; /* lock-free, so right in a handler */

static void tick(int number)
{
	(void)number;
	ticks++;
}

static void *send_much(void *arg)
{
	static char much[8 << 20];
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL); /* the receiver gets the signals */
	return (void *)(intptr_t)net_send_all(*(int *)arg, much, sizeof much, later());
}

static void signals_do_not_disturb(void **state)
{
	struct sigaction action = {.sa_handler = tick}, old; /* without SA_RESTART */
	struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
	static char much[8 << 20];
	pthread_t sender;
	void *result;
	int pair[2];

	make_pair("127.0.0.1", pair);
	sigaction(SIGALRM, &action, &old);
	setitimer(ITIMER_REAL, &often, NULL);
	while (ticks < 3)
		assert_int_equal(net_wait(pair[1], POLLIN, deadline_after_ms(2)),
				 TUTTI_ERR_TIMEOUT);
	pthread_create(&sender, NULL, send_much, &pair[0]);
	assert_int_equal(net_recv_all(pair[1], much, sizeof much, later()), TUTTI_OK);
	pthread_join(sender, &result);
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &old, NULL);
	assert_int_equal((int)(intptr_t)result, TUTTI_OK);
	close_pair(pair);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, count_before, count_after)
	const struct CMUnitTest tests[] = {
		TEST(bytes_arrive),
		TEST(all_interfaces_are_both_families),
		TEST(deadlines_hold),
		TEST(what_is_there_is_taken_after_the_deadline),
		TEST(a_closed_end_is_a_peer_error),
		TEST(no_other_end_is_a_peer_error),
		TEST(no_listener_is_named),
		TEST(a_taken_port_is_named),
		TEST(an_unknown_name_is_named),
		TEST(a_missing_scope_is_explained),
		TEST(too_many_files_are_explained),
		TEST(nobody_needs_a_descriptor),
		TEST(signals_do_not_disturb),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
