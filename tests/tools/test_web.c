/* What would break: a client of tutti-top --web that says nothing keeps its connection. */
#include "tools/tutti-top/web.h"

#include "core/clock.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
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

static void a_silent_client_is_left_at_its_deadline(void **state)
{
	static struct web web;

	(void)state;
	assert_true(web_open(&web, 0));
	struct pollfd end = {.fd = connect_to(&web), .events = POLLIN};
	int status;
	pid_t server = fork();
	assert_true(server >= 0);
	if (server == 0) {
		serve_with_a_client_overdue_soon(&web);
		_exit(0);
	}
	int ready = poll(&end, 1, (int)test_limit_stretched(30) * 1000);
	kill(server, SIGKILL);
	assert_int_equal(waitpid(server, &status, 0), server);
	assert_int_equal(ready, 1);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(recv(end.fd, &(char){0}, 1, 0), 0);
	close(end.fd);
	web_close(&web);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_silent_client_is_left_at_its_deadline)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
