/* Breaks when a connection of our own (to itself, or merely from that port) keeps a port from the
 * rank that is to listen there, or when a listener takes the port where a job meets. */
#include "core/net.h"

#include "core/clock.h"
#include "core/status.h"

#include <errno.h>

#include "tests/own_network.h"

#define FIRST  40000
#define BESIDE 30000 /* is handed out to nobody */

static uint64_t later(void)
{
	return deadline_after_ms(20000);
}

static void listen_on_each(int ports)
{
	int fd;

	for (int i = 0; i < ports; i++) {
		OWN_NETWORK_NEED(net_listen(NULL, FIRST + i, 4, &fd, NULL) == TUTTI_OK);
		close(fd);
		OWN_NETWORK_NEED(net_listen("127.0.0.1", FIRST + i, 4, &fd, NULL) == TUTTI_OK);
		close(fd);
	}
}

/* On loopback, a connect to a free port of those that systems hand out gets that very port as its
 * own now and then, and meets itself. With two such ports it nearly always does. */
static void meet_itself(void)
{
	int met;

	for (int i = 0; i < 200; i++)
		OWN_NETWORK_NEED(net_try_connect("127.0.0.1", FIRST + i % 2, later(), &met) ==
				 TUTTI_IN_PROGRESS);
	listen_on_each(2);
}

static void nobody_meets_himself(void **state)
{
	own_network_case(FIRST, 2, meet_itself);
}

enum { DIALERS = 4 };

/* As many as there are ports, so that each has one. */
static void dial_from_each(void)
{
	int listener, dialers[DIALERS], accepted[DIALERS];

	OWN_NETWORK_NEED(net_listen("127.0.0.1", BESIDE, 8, &listener, NULL) == TUTTI_OK);
	for (int i = 0; i < DIALERS; i++) {
		OWN_NETWORK_NEED(net_try_connect("127.0.0.1", BESIDE, later(), &dialers[i]) ==
				 TUTTI_OK);
		OWN_NETWORK_NEED(net_accept(listener, later(), &accepted[i]) == TUTTI_OK);
	}
	listen_on_each(DIALERS);
	/* The end that closes first keeps its port for a minute. */
	for (int i = 0; i < DIALERS; i++)
		close(dialers[i]);
	for (int i = 0; i < DIALERS; i++)
		close(accepted[i]);
	listen_on_each(DIALERS);
}

static void dialers_ports_can_be_listened_on(void **state)
{
	own_network_case(FIRST, DIALERS, dial_from_each);
}

static void leave_reserved(void)
{
	int fds[3], port;

	net_reserve_port(FIRST);
	net_reserve_port(FIRST + 2);
	for (int i = 0; i < 2; i++) {
		OWN_NETWORK_NEED(net_listen(NULL, 0, 4, &fds[i], &port) == TUTTI_OK);
		OWN_NETWORK_NEED(port == FIRST + 1 || port == FIRST + 3);
	}
	OWN_NETWORK_NEED(net_listen(NULL, 0, 4, &fds[2], &port) == TUTTI_ERR_SYSTEM);
	OWN_NETWORK_NEED(errno == EADDRINUSE);
	OWN_NETWORK_NEED(net_listen(NULL, FIRST, 4, &fds[2], &port) == TUTTI_OK);
	OWN_NETWORK_NEED(port == FIRST);
}

static void reserved_ports_are_for_those_who_name_them(void **state)
{
	own_network_case(FIRST, 4, leave_reserved);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_meets_himself),
		cmocka_unit_test(dialers_ports_can_be_listened_on),
		cmocka_unit_test(reserved_ports_are_for_those_who_name_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
