/* What would break: a client of tutti-top --web that says nothing keeps its connection; without
 * free descriptors the server tries to accept a connection all the time, or never again. */
#include "tools/tutti-top/web.h"

#include "core/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/limit.h"
#include "tests/unit.h"

const unsigned char web_page[] = {'p'};
const size_t web_page_bytes = sizeof web_page;

static int64_t in_ms(int64_t ms)
{
	return (int64_t)clock_now_ns() + ms * 1000000;
}

static int connect_to(const struct web *web)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				      .sin_port = htons((uint16_t)web->port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	return fd;
}

/* Until somebody ends it: the next table is an hour away. */
static void serve_with_a_client_overdue_soon(struct web *web)
{
	test_limit(100);
	while (web->clients[0].fd < 0)
		web_serve(web, in_ms(10));
	web->clients[0].deadline_ns = in_ms(10);
	web_serve(web, in_ms(3600000));
}

/* The server, in a process of its own, does something about the connection of end. */
static void serves(struct web *web, void (*serve)(struct web *web), int end)
{
	struct pollfd done = {.fd = end, .events = POLLIN};
	int status;
	pid_t server = fork();

	assert_true(server >= 0);
	if (server == 0) {
		serve(web);
		_exit(0);
	}
	int ready = poll(&done, 1, (int)test_limit_stretched(30) * 1000);
	kill(server, SIGKILL);
	assert_int_equal(waitpid(server, &status, 0), server);
	assert_int_equal(ready, 1);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void a_silent_client_is_left_at_its_deadline(void **state)
{
	static struct web web;

	(void)state;
	assert_true(web_open(&web, 0));
	int end = connect_to(&web);
	serves(&web, serve_with_a_client_overdue_soon, end);
	assert_int_equal(recv(end, &(char){0}, 1, 0), 0);
	close(end);
	web_close(&web);
}

/* The linker gives these names to what web.c calls, and to what that is. */
int __real_accept4(int fd, struct sockaddr *from, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *bytes, int flags);
static int accepts;

int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *bytes, int flags)
{
	accepts++;
	return __real_accept4(fd, from, bytes, flags);
}

/* As many as poll() wants to be allowed, and some. */
#define DESCRIPTORS 64

static void serve_without_descriptors(struct web *web)
{
	int held[DESCRIPTORS], n = 0;
	struct rlimit whole, few;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &whole), 0);
	few = (struct rlimit){DESCRIPTORS, whole.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while ((held[n] = dup(web->listener)) >= 0)
		n++;
	assert_int_equal(errno, EMFILE);
	accepts = 0;
	while (accepts == 0)
		web_serve(web, in_ms(WEB_PAUSE_MS / 2));
	while (n > 0)
		close(held[--n]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &whole), 0);
}

static void serve_for_long(struct web *web)
{
	test_limit(100);
	web_serve(web, in_ms(3600000));
}

static void a_client_waits_for_a_descriptor(void **state)
{
	static struct web web;
	char said[12] = "";

	(void)state;
	assert_true(web_open(&web, 0));
	int end = connect_to(&web);
	assert_int_equal(send(end, "POST\r\n\r\n", 8, 0), 8);
	serve_without_descriptors(&web);
	assert_int_equal(accepts, 1);
	serves(&web, serve_for_long, end);
	assert_int_equal(recv(end, said, sizeof said, MSG_WAITALL), sizeof said);
	assert_memory_equal(said, "HTTP/1.1 400", sizeof said);
	close(end);
	web_close(&web);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_silent_client_is_left_at_its_deadline),
		cmocka_unit_test(a_client_waits_for_a_descriptor)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
