/* Breaks when a rank that finds no rank 0 says anything but the first cause: that a name is
 * unknown, an address has no route, a port refuses; also where it looks at several ports, as under
 * torchrun, at several addresses, and where the deadline comes amid a round. And when a name is
 * looked up more than once a round. */
#include "core/auth.h"
#include "core/cancel.h"
#include "tests/core/join/ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>

#include "tests/own_network.h"

#define PLACE 40000

/* The deadline passes when so many rounds are over and so many proofs were tried, or in one of the
 * connects, counted from 1. */
static struct {
	int rounds, proofs, connect;
} end;

static atomic_int lookups, rounds, connects, proofs;
static bool is_late;

tutti_status __real_net_look_up(const char *host, int port, int flags, struct addrinfo **list);
tutti_status __wrap_net_look_up(const char *host, int port, int flags, struct addrinfo **list);
tutti_status __wrap_net_look_up(const char *host, int port, int flags, struct addrinfo **list)
{
	atomic_fetch_add(&lookups, 1);
	return __real_net_look_up(host, port, flags, list);
}

void __real_net_pause(int attempt, uint64_t deadline_ns);
void __wrap_net_pause(int attempt, uint64_t deadline_ns);
void __wrap_net_pause(int attempt, uint64_t deadline_ns)
{
	int over = atomic_fetch_add(&rounds, 1) + 1;

	is_late = is_late || (over >= end.rounds && atomic_load(&proofs) >= end.proofs);
	__real_net_pause(attempt, deadline_ns);
}

tutti_status __real_net_connect(const struct addrinfo *list, const char *host, int port,
				uint64_t deadline_ns, int *fd);
tutti_status __wrap_net_connect(const struct addrinfo *list, const char *host, int port,
				uint64_t deadline_ns, int *fd);
tutti_status __wrap_net_connect(const struct addrinfo *list, const char *host, int port,
				uint64_t deadline_ns, int *fd)
{
	if (atomic_fetch_add(&connects, 1) + 1 != end.connect)
		return __real_net_connect(list, host, port, deadline_ns, fd);
	is_late = true;
	net_say_unconnected(host, ETIMEDOUT);
	return TUTTI_IN_PROGRESS;
}

static bool deadline_has_come(void *unused)
{
	(void)unused;
	return is_late;
}

static void look(struct rank_run *run)
{
	is_late = false;
	atomic_store(&lookups, 0);
	atomic_store(&rounds, 0);
	atomic_store(&connects, 0);
	atomic_store(&proofs, 0);
	cancel_begin(deadline_has_come, NULL);
	ranks_main(run);
	cancel_end();
}

static const struct {
	const char *host, *says, *counts;
} causes[] = {
	{"no-such-host.invalid", "the host name no-such-host.invalid cannot be resolved: ", NULL},
	{"203.0.113.7", "cannot be reached (Network is unreachable)", "16 tries: 16 no route"},
	{"127.0.0.1", "(Connection refused)", "16 tries: 16 refused"},
};

static void expect_end(const struct rank_run *run, tutti_status status, const char *says)
{
	if (run->status == status && strstr(run->error, says) &&
	    strstr(run->error, "rank 0 is missing"))
		return;
	fprintf(stderr, "status %d \"%s\" instead of %d \"%s\"\n", run->status, run->error, status,
		says);
	_exit(1);
}

static void expect(const struct rank_run *run, const char *says)
{
	expect_end(run, TUTTI_ERR_TIMEOUT, says);
	OWN_NETWORK_NEED(!strstr(run->error, "secret"));
}

static void look_for_nobody(void)
{
	end.rounds = 3;
	for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
		for (int is_taken = 0; is_taken < 2; is_taken++) {
			struct rank_run runs[2];
			ranks_prepare(runs, 2, PLACE);
			runs[1].job.port_is_taken = is_taken;
			strcpy(runs[1].job.host, causes[i].host);
			look(&runs[1]);
			expect(&runs[1], causes[i].says);
			if (is_taken && causes[i].counts)
				expect(&runs[1], causes[i].counts);
			if (is_taken)
				expect(&runs[1], "on the ports 40001 to 40016");
			OWN_NETWORK_NEED(atomic_load(&lookups) <= atomic_load(&rounds));
		}
}

/* A try that the deadline cuts short says nothing: what the round before it told counts, and no
 * port is tried after it. */
static void cut_rounds_short(void)
{
	static const struct {
		int ports, rounds, connect, connects;
		const char *says;
	} cuts[] = {
		{1, 1, 0, 1, "no process listens at 127.0.0.1:40000 (Connection refused)"},
		{1, 9, 2, 2, "no process listens at 127.0.0.1:40000 (Connection refused)"},
		{16, 9, 16 + 5, 16 + 5, "16 tries: 16 refused"},
		{16, 9, 5, 5, "5 tries: 4 refused, 1 no answer"},
	};

	for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
		struct rank_run runs[2];
		ranks_prepare(runs, 2, PLACE);
		runs[1].job.port_is_taken = cuts[i].ports > 1;
		end.rounds = cuts[i].rounds;
		end.connect = cuts[i].connect;
		look(&runs[1]);
		expect(&runs[1], cuts[i].says);
		OWN_NETWORK_NEED(atomic_load(&connects) == cuts[i].connects);
	}
}

/* Another program, which answers every caller. */
static void *answer_all(void *listener)
{
	uint8_t hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES] = {1};
	int fd;

	for (;;) {
		OWN_NETWORK_NEED(net_accept(*(int *)listener, ranks_later(), &fd) == TUTTI_OK);
		if (net_recv_all(fd, hello, sizeof hello, ranks_later()) == TUTTI_OK &&
		    net_send_all(fd, answer, sizeof answer, ranks_later()) == TUTTI_OK)
			atomic_fetch_add(&proofs, 1);
		close(fd);
	}
	return NULL;
}

static void look_at_two(const char *hosts, tutti_status status, const char *says,
			const char *counts)
{
	struct rank_run runs[2];

	ranks_prepare(runs, 2, PLACE);
	runs[1].job.is_url = 1;
	strcpy(runs[1].job.host, hosts);
	look(&runs[1]);
	expect_end(&runs[1], status, says);
	expect_end(&runs[1], status, counts);
}

/* The addresses of a URL are one machine's: one without a route hides nothing. */
static void look_at_two_addresses(void)
{
	static const char *const hosts[] = {"203.0.113.7,127.0.0.1", "127.0.0.1,203.0.113.7",
					    "127.0.0.1,[2001:db8::1]", "127.0.0.1,no-such-host"};
	pthread_t thread;
	int fd;

	end.rounds = 2;
	for (int i = 0; i < 4; i++)
		look_at_two(hosts[i], TUTTI_ERR_TIMEOUT, "(Connection refused)",
			    i < 3 ? "2 tries: 1 refused, 1 no route"
				  : "2 tries: 1 refused, 1 unknown name");
	OWN_NETWORK_NEED(net_listen("127.0.0.1", PLACE, 9, &fd, NULL) == TUTTI_OK);
	OWN_NETWORK_NEED(pthread_create(&thread, NULL, answer_all, &fd) == 0);
	end.proofs = 3;
	for (int i = 0; i < 3; i++)
		look_at_two(hosts[i], TUTTI_ERR_AUTH,
			    "127.0.0.1:40000 cannot prove that it knows this rank's secret",
			    "2 tries: 1 another secret, 1 no route");
}

static void fill(struct addrinfo *info, struct sockaddr_in *in, const char *address)
{
	*in = (struct sockaddr_in){.sin_family = AF_INET};
	inet_pton(AF_INET, address, &in->sin_addr);
	*info = (struct addrinfo){
		.ai_family = AF_INET, .ai_addr = (struct sockaddr *)in, .ai_addrlen = sizeof *in};
}

/* Of a host's addresses one that answers, though with a refusal, says more than one without a
 * route, in either order. */
static void try_two_addresses(void)
{
	static const char *const addresses[] = {"203.0.113.7", "127.0.0.1"};

	for (int first = 0; first < 2; first++) {
		struct sockaddr_in in[2];
		struct addrinfo infos[2];
		int fd;
		fill(&infos[0], &in[0], addresses[first]);
		fill(&infos[1], &in[1], addresses[1 - first]);
		infos[0].ai_next = &infos[1];
		OWN_NETWORK_NEED(net_connect(infos, "two", PLACE, ranks_later(), &fd) ==
				 TUTTI_IN_PROGRESS);
		OWN_NETWORK_NEED(errno == ECONNREFUSED);
		OWN_NETWORK_NEED(strstr(last_error(), "no process listens at two:40000"));
	}
}

static void the_first_cause_is_said(void **state)
{
	own_network_case(PLACE + 100, 101, look_for_nobody);
}

static void the_deadline_hides_no_cause(void **state)
{
	own_network_case(PLACE + 100, 101, cut_rounds_short);
}

static void an_answer_says_more_than_no_route(void **state)
{
	own_network_case(PLACE + 100, 101, try_two_addresses);
	own_network_case(PLACE + 100, 101, look_at_two_addresses);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_cause_is_said),
					   cmocka_unit_test(the_deadline_hides_no_cause),
					   cmocka_unit_test(an_answer_says_more_than_no_route)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
