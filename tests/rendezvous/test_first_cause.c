/* slow: 4 s */
/* Breaks when a rank that finds no rank 0 says anything but the first cause: that a name is
 * unknown, an address has no route, a port refuses; also where it looks at several ports, as under
 * torchrun. And when a name is looked up more than once a round. */
#include "tests/own_network.h"
#include "tests/rendezvous/ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>

#define PLACE      40000
#define TIMEOUT_MS 600

static atomic_int lookups, rounds;

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
	atomic_fetch_add(&rounds, 1);
	__real_net_pause(attempt, deadline_ns);
}

static const struct {
	const char *host, *says, *counts;
} causes[] = {
	{"no-such-host.invalid", "the host name no-such-host.invalid cannot be resolved: ", NULL},
	{"203.0.113.7", "cannot be reached (Network is unreachable)", "16 tries: 16 no route"},
	{"127.0.0.1", "(Connection refused)", "16 tries: 16 refused"},
};

static void expect(const struct rank_run *run, const char *says)
{
	if (run->status == TUTTI_ERR_TIMEOUT && strstr(run->error, says) &&
	    strstr(run->error, "rank 0 is missing") && !strstr(run->error, "secret"))
		return;
	fprintf(stderr, "status %d \"%s\" instead of \"%s\"\n", run->status, run->error, says);
	_exit(1);
}

static void look_for_nobody(void)
{
	for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
		for (int is_taken = 0; is_taken < 2; is_taken++) {
			struct rank_run runs[2];
			ranks_prepare(runs, 2, PLACE);
			runs[1].timeout_ms = TIMEOUT_MS;
			runs[1].job.port_is_taken = is_taken;
			strcpy(runs[1].job.host, causes[i].host);
			atomic_store(&lookups, 0);
			atomic_store(&rounds, 0);
			ranks_main(&runs[1]);
			expect(&runs[1], causes[i].says);
			if (is_taken && causes[i].counts)
				expect(&runs[1], causes[i].counts);
			if (is_taken)
				expect(&runs[1], "on the ports 40001 to 40016");
			OWN_NETWORK_NEED(atomic_load(&lookups) <= atomic_load(&rounds) + 1);
		}
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

static void run(void (*body)(void))
{
	int status = own_network_run(PLACE + 100, PLACE + 200, body);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip(); /* a network of one's own needs root, or namespaces for users */
	assert_int_equal(status, 0);
}

static void the_first_cause_is_said(void **state)
{
	(void)state;
	run(look_for_nobody);
}

static void an_answer_says_more_than_no_route(void **state)
{
	(void)state;
	run(try_two_addresses);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_cause_is_said),
					   cmocka_unit_test(an_answer_says_more_than_no_route)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
