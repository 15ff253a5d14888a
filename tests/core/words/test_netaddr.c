/* Breaks when a host and port are taken for others than they are: an IPv6 address without brackets
 * for a host and a port, or junk around them for a part. */
#include "core/words/netaddr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/random.h"
#include "tests/unit.h"

#define LETTERS_50  "abcdefghijabcdefghijabcdefghijabcdefghijabcdefghij"
#define LETTERS_250 LETTERS_50 LETTERS_50 LETTERS_50 LETTERS_50 LETTERS_50

static const char no_port[] = "has no port", brackets[] = "brackets: with a port write [";
static const char two_colons[] = "has two colons: write";
static const char bad_port[] = "no port from 1 to 65535", no_host[] = "has no host";
static const char before[] = "has text before its '['", behind[] = "has text behind its ']'";
static const char no_scope[] = "has a link-local IPv6 address without a scope: name the interface";
static const char no_ipv6[] = "no IPv6 address in its brackets", too_long[] = "too long";

/* port 0: of a wrong text, host is a part of what is said. */
static const struct {
	const char *text, *host;
	int port;
} places[] = {
	{"node1:29500", "node1", 29500},
	{"a:1", "a", 1},
	{"a:65535", "a", 65535},
	{"node_1.rack-2.example:00080", "node_1.rack-2.example", 80},
	{"10.0.0.1:29500", "10.0.0.1", 29500},
	{"[::1]:29500", "::1", 29500},
	{"[::]:1", "::", 1},
	{"[fd98:7::1]:29500", "fd98:7::1", 29500},
	{"[::ffff:10.0.0.1]:5", "::ffff:10.0.0.1", 5},
	{"[fe80::1%eth0]:29500", "fe80::1%eth0", 29500},
	{"[fe80::1%2]:29500", "fe80::1%2", 29500},
	{"[fe80::1%br-12_3.4@x:1]:29500", "fe80::1%br-12_3.4@x:1", 29500},
	{"[fec0::1]:29500", "fec0::1", 29500},
	{"*:7", "*", 7},
	{"m\303\274hle:7", "m\303\274hle", 7},
	{LETTERS_250 "fghij:7", LETTERS_250 "fghij", 7},
	/* without brackets */
	{"fd98:7::1", brackets, 0},
	{"fd98:7::1:29500", brackets, 0},
	{"::1", brackets, 0},
	{"::", brackets, 0},
	{"::1:29500", brackets, 0},
	{"1:2:3:4:5:6:7:8", brackets, 0},
	{"1:2:3:4:5:6:7:8:29500", brackets, 0},
	{"fe80::1%eth0", brackets, 0},
	{"fe80::1%eth0:29500", brackets, 0},
	{"a:b:c:1", brackets, 0},
	/* neither a host and a port nor IPv6 */
	{"a:b:1", two_colons, 0},
	{"nodea:80:81", two_colons, 0},
	{"nodea::80", two_colons, 0},
	{"nodea:80,nodeb:80", two_colons, 0},
	{"tcp://nodea:80", two_colons, 0},
	/* without a port */
	{"", no_port, 0},
	{"nodea", no_port, 0},
	{"[fd98:7::1]", no_port, 0},
	{"[fe80::1%eth0]", no_port, 0},
	{"10.0.0.1", no_port, 0},
	{"nodea:", bad_port, 0},
	{"[::1]:", bad_port, 0},
	{"nodea:0", bad_port, 0},
	{"nodea:65536", bad_port, 0},
	{"nodea:000080", bad_port, 0},
	{"nodea:4294996796", bad_port, 0},
	{"nodea:18446744073709581116", bad_port, 0},
	{"nodea:+80", bad_port, 0},
	{"nodea:-80", bad_port, 0},
	{"nodea:0x50", bad_port, 0},
	{"nodea:8e1", bad_port, 0},
	{"nodea: 80", bad_port, 0},
	{"nodea:80 ", bad_port, 0},
	{"nodea:80\n", bad_port, 0},
	{"nodea:80/", bad_port, 0},
	/* without a host, or with more than that */
	{":29500", no_host, 0},
	{" nodea:80", no_host, 0},
	{"nodea :80", no_host, 0},
	{"node a:80", no_host, 0},
	{"\tnodea:80", no_host, 0},
	{"node\177:80", no_host, 0},
	{"user@nodea:80", no_host, 0},
	{"nodea,nodeb:80", no_host, 0},
	{"node/a:80", no_host, 0},
	{"nodea%eth0:80", no_host, 0},
	{"10.0.0.1%eth0:80", no_host, 0},
	{"[]:80", no_host, 0},
	{"[nodea]:80", no_ipv6, 0},
	{"[10.0.0.1]:80", no_ipv6, 0},
	{"[fd98:7::1:80", "has no ']'", 0},
	{"fd98:7::1]:80", brackets, 0},
	{"x[::1]:80", before, 0},
	{"x[::1]", before, 0},
	{"x[fd98]:80", before, 0},
	{"nodea,[::1]:80", before, 0},
	{"[::1]x:80", behind, 0},
	{"[[::1]]:80", no_ipv6, 0},
	{"[::1]:80:81", behind, 0},
	{"[:::1]:80", no_ipv6, 0},
	{"[12345::1]:80", no_ipv6, 0},
	{"[fe80::1%]:80", no_ipv6, 0},
	{"[fe80::1%a b]:80", no_ipv6, 0},
	{"[fe80::1%a,b]:80", no_ipv6, 0},
	{"[fe80::1%a%b]:80", no_ipv6, 0},
	{"[fe80::1%0123456789abcdef]:80", no_ipv6, 0},
	{"[%eth0]:80", no_ipv6, 0},
	/* no socket can connect to these */
	{"[fe80::1]:29500", no_scope, 0},
	{"[FE80::1]:29500", no_scope, 0},
	{"[febf:ffff::1]:29500", no_scope, 0},
	{LETTERS_250 "fghijk:7", too_long, 0},
};

static void hosts_with_ports(void **state)
{
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		char host[256] = "none";
		int port = 0;
		const char *why = netaddr_read(places[i].text, host, sizeof host, &port);

		if (places[i].port == 0 && (!why || !strstr(why, places[i].host)))
			fail_msg("\"%s\" %s, not %s", places[i].text, why ? why : "is taken",
				 places[i].host);
		if (places[i].port && why)
			fail_msg("\"%s\" %s", places[i].text, why);
		assert_int_equal(port, places[i].port);
		assert_string_equal(host, places[i].port ? places[i].host : "none");
	}
}

/* A NULL host: it is none, and why is a part of what is said. */
static const struct {
	const char *text, *host, *why;
} hosts[] = {
	{"node1", "node1", NULL},
	{"10.0.0.1", "10.0.0.1", NULL},
	{"fd98:7::1", "fd98:7::1", NULL},
	{"[fd98:7::1]", "fd98:7::1", NULL},
	{"fe80::1%eth0", "fe80::1%eth0", NULL},
	{"[fe80::1%eth0]", "fe80::1%eth0", NULL},
	{"1:2:3:4:5:6:7:80", "1:2:3:4:5:6:7:80", NULL},
	{"localhost", "localhost", NULL},
	{"", NULL, no_host},
	{"[]", NULL, no_host},
	{"[node1]", NULL, no_ipv6},
	{"node1:29500", NULL, "a host alone"},
	{"[::1]:29500", NULL, "a host alone"},
	{"node1:x", NULL, no_host},
	{"node1,node2", NULL, no_host},
	{" node1", NULL, no_host},
	{"node1\n", NULL, no_host},
	{"[::1", NULL, "has no ']'"},
	{"x[::1]", NULL, before},
	{"[::1]x", NULL, behind},
	{"fe80::1", NULL, no_scope},
	{"[fe80::1]", NULL, no_scope},
	{"user@node1", NULL, no_host},
	{LETTERS_250 LETTERS_50, NULL, too_long},
};

static void hosts_alone(void **state)
{
	for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
		char host[256] = "none";
		const char *why = netaddr_read_host(hosts[i].text, host, sizeof host);

		if (!hosts[i].why != !why || (why && !strstr(why, hosts[i].why)))
			fail_msg("\"%s\" %s", hosts[i].text, why ? why : "is taken");
		assert_string_equal(host, why ? "none" : hosts[i].host);
	}
}

/* Whatever the text is, nothing is written behind host, and an answer can be read again. */
static void random_texts(void **state)
{
	static const char letters[] = "::::..[[]]%%ffab019 -,/@xe";
	const char *given = getenv("TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 10) : 2026;

	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	for (int i = 0; i < 300000; i++) {
		char text[40] = "", host[12], again[12], whole[40];
		int n = (int)random_below(&seed, 30), port = -1, port_again;
		size_t room = 1 + random_below(&seed, sizeof host - 1);

		for (int at = 0; at < n; at++)
			text[at] = letters[random_below(&seed, sizeof letters - 1)];
		memset(host, '#', sizeof host);
		if (netaddr_read(text, host, room, &port)) {
			assert_int_equal(port, -1);
			for (size_t at = 0; at < sizeof host; at++)
				assert_int_equal(host[at], '#');
			continue;
		}
		assert_non_null(memchr(host, '\0', room));
		assert_true(port >= 1 && port <= 65535);
		snprintf(whole, sizeof whole, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
		assert_null(netaddr_read(whole, again, sizeof again, &port_again));
		assert_string_equal(again, host);
		assert_int_equal(port_again, port);
		assert_null(netaddr_read_host(host, again, sizeof again));
	}
}

static void kinds_of_hosts(void **state)
{
	assert_true(netaddr_is_literal("10.0.0.1") && netaddr_is_literal("fe80::1%eth0"));
	assert_false(netaddr_is_literal("node1") || netaddr_is_literal("[::1]"));
	assert_true(netaddr_lacks_scope("fe80::1") && netaddr_lacks_scope("[fe80::1]"));
	assert_false(netaddr_lacks_scope("fe80::1%eth0") || netaddr_lacks_scope("[fe80::1%2]"));
	assert_false(netaddr_lacks_scope("fd98::1") || netaddr_lacks_scope("node1"));
	assert_false(netaddr_lacks_scope("") || netaddr_lacks_scope("[]"));
	assert_true(netaddr_is_loopback("127.0.0.1") && netaddr_is_loopback("127.8.9.10"));
	assert_true(netaddr_is_loopback("::1") && netaddr_is_loopback("localhost"));
	assert_false(netaddr_is_loopback("10.0.0.1") || netaddr_is_loopback("::2"));
	assert_true(netaddr_is_loopback(netaddr_loopback()));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hosts_with_ports),
		cmocka_unit_test(hosts_alone),
		cmocka_unit_test(random_texts),
		cmocka_unit_test(kinds_of_hosts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
