/* Breaks when a job cannot have the port that it asks for although only connections of an earlier
 * job have it, when two jobs have one port, when rank 0 cannot listen at its job's, or when another
 * program is given it. */
#include "core/rank/fresh.h"

#include "core/clock.h"
#include "core/net.h"
#include "core/status.h"

#include <errno.h>

#include "tests/own_network.h"

#define FIRST 40000

static uint64_t later(void)
{
	return deadline_after_ms(20000);
}

/* A connection to number that the server's side closes first: that side has the port for a minute,
 * as the server of a job has that fails while its ranks join. */
static void leave_a_connection(const char *host, int number)
{
	int listener, near, far;
	char byte;

	OWN_NETWORK_NEED(net_listen(host, number, 1, &listener, NULL) == TUTTI_OK);
	OWN_NETWORK_NEED(net_try_connect(host, number, later(), &near) == TUTTI_OK);
	OWN_NETWORK_NEED(net_accept(listener, later(), &far) == TUTTI_OK);
	close(far);
	OWN_NETWORK_NEED(net_recv_all(near, &byte, 1, later()) == TUTTI_ERR_PEER);
	close(near);
	close(listener);
}

static void keep_what_a_connection_has(void)
{
	struct fresh_port port;
	int fd;

	leave_a_connection("127.0.0.1", FIRST - 1);
	leave_a_connection("::1", FIRST - 2);
	for (int number = FIRST - 2; number < FIRST; number++) {
		OWN_NETWORK_NEED(fresh_port_keep(&port, number) == 0 && port.number == number);
		OWN_NETWORK_NEED(net_listen(NULL, number, 1, &fd, NULL) == TUTTI_OK);
		close(fd);
		OWN_NETWORK_NEED(net_listen("127.0.0.1", number, 1, &fd, NULL) == TUTTI_OK);
		close(fd);
		fresh_port_free(&port);
	}
}

static void connections_keep_no_job_out(void **state)
{
	own_network_case(FIRST, 100, keep_what_a_connection_has);
}

static void refuse_what_others_have(void)
{
	struct fresh_port one, two;
	int fd;

	OWN_NETWORK_NEED(fresh_port_keep(&one, FIRST - 1) == 0);
	OWN_NETWORK_NEED(fresh_port_keep(&two, FIRST - 1) == -1 && errno == EADDRINUSE);
	OWN_NETWORK_NEED(two.number == FIRST - 1 && two.fd == -1 && two.lock_fd == -1);
	fresh_port_free(&one);
	OWN_NETWORK_NEED(fresh_port_keep(&two, FIRST - 1) == 0);
	fresh_port_free(&two);
	OWN_NETWORK_NEED(net_listen("127.0.0.1", FIRST - 1, 1, &fd, NULL) == TUTTI_OK);
	OWN_NETWORK_NEED(fresh_port_keep(&two, FIRST - 1) == -1 && errno == EADDRINUSE);
	close(fd);
	OWN_NETWORK_NEED(net_listen("::1", FIRST - 1, 1, &fd, NULL) == TUTTI_OK);
	OWN_NETWORK_NEED(fresh_port_keep(&two, FIRST - 1) == -1 && errno == EADDRINUSE);
}

static void a_port_has_one_job(void **state)
{
	own_network_case(FIRST, 100, refuse_what_others_have);
}

/* Of four ports three jobs have one each: all that connect or listen on any port get the fourth. */
static void give_it_to_nobody_else(void)
{
	struct fresh_port kept[4];
	int listener, left = 4 * FIRST + 6, port, fd;

	for (int i = 0; i < 4; i++) {
		OWN_NETWORK_NEED(fresh_port_keep(&kept[i], 0) == 0);
		OWN_NETWORK_NEED(kept[i].number >= FIRST && kept[i].number < FIRST + 4);
		for (int k = 0; k < i; k++)
			OWN_NETWORK_NEED(kept[i].number != kept[k].number);
		left -= kept[i].number;
	}
	OWN_NETWORK_NEED(left == 0);
	struct fresh_port none;
	OWN_NETWORK_NEED(fresh_port_keep(&none, 0) == -1 && errno == EADDRINUSE);
	OWN_NETWORK_NEED(net_listen(NULL, 0, 1, &fd, NULL) == TUTTI_ERR_SYSTEM);
	OWN_NETWORK_NEED(net_listen(NULL, FIRST - 1, 9, &listener, NULL) == TUTTI_OK);
	OWN_NETWORK_NEED(net_try_connect("127.0.0.1", FIRST - 1, later(), &fd) != TUTTI_OK);
	port = kept[3].number;
	fresh_port_free(&kept[3]);
	for (int i = 0; i < 20; i++) {
		int bound;
		OWN_NETWORK_NEED(net_listen(NULL, 0, 1, &fd, &bound) == TUTTI_OK);
		OWN_NETWORK_NEED(bound == port);
		close(fd);
	}
}

static void the_system_gives_it_to_nobody(void **state)
{
	own_network_case(FIRST, 4, give_it_to_nobody_else);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connections_keep_no_job_out),
		cmocka_unit_test(a_port_has_one_job),
		cmocka_unit_test(the_system_gives_it_to_nobody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
