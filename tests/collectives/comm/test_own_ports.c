/* Would break: a job's own communicators take the port at which it meets, so that no later init or
 * grow can. */
#include "core/clock.h"
#include "core/net.h"
#include "core/status.h"

#include <tutti/tutti.h>

#include <errno.h>
#include <pthread.h>

#include "tests/own_network.h"

#define FIRST 40000
#define PORTS 32
#define PLACE 40007 /* where the ranks meet: listeners get odd ports first */
#define DUPS  PORTS

struct rank {
	pthread_t thread;
	const char *rendezvous;
	int number;
	tutti_comm *first, *dups[DUPS], *second;
	int made;
};

static void init(struct rank *r, tutti_comm **comm)
{
	tutti_config config = {.rank = r->number,
			       .world_size = 2,
			       .rendezvous = r->rendezvous,
			       .timeout_ms = 30000};

	OWN_NETWORK_NEED(tutti_init(comm, &config) == TUTTI_OK);
}

/* Of all ports, that one alone is free when the others are taken. */
static void expect_place_is_free(void)
{
	int fds[PORTS + 1], count = 0, fd;

	while (net_listen(NULL, 0, 1, &fds[count], NULL) == TUTTI_OK)
		count++;
	OWN_NETWORK_NEED(errno == EADDRINUSE);
	OWN_NETWORK_NEED(net_listen(NULL, PLACE, 1, &fd, NULL) == TUTTI_OK);
	close(fd);
	while (count > 0)
		close(fds[--count]);
}

/* Until a listener of a rank finds no port. */
static void dup_often(struct rank *r)
{
	tutti_status status = TUTTI_OK;

	while (r->made < DUPS && status == TUTTI_OK) {
		status = tutti_comm_dup(r->first, &r->dups[r->made]);
		r->made += status == TUTTI_OK;
	}
	OWN_NETWORK_NEED(status == TUTTI_ERR_SYSTEM &&
			 strstr(tutti_comm_error(NULL), "Address already in use"));
}

static void *run_rank(void *arg)
{
	struct rank *r = arg;

	init(r, &r->first);
	dup_often(r);
	if (r->number == 0)
		expect_place_is_free();
	for (int i = 0; i < r->made / 2; i++)
		tutti_comm_destroy(r->dups[i]);
	init(r, &r->second);
	for (int i = r->made / 2; i < r->made; i++)
		tutti_comm_destroy(r->dups[i]);
	tutti_comm_destroy(r->second);
	tutti_comm_destroy(r->first);
	return NULL;
}

/* Else the port of the first meeting is not handed out for a minute. */
static void no_time_wait(void)
{
	int fd = open("/proc/sys/net/ipv4/tcp_max_tw_buckets", O_WRONLY | O_CLOEXEC);

	OWN_NETWORK_NEED(fd >= 0 && write(fd, "0", 1) == 1);
	close(fd);
}

static void run_ranks(const char *rendezvous)
{
	struct rank ranks[2] = {{.rendezvous = rendezvous},
				{.rendezvous = rendezvous, .number = 1}};

	no_time_wait();
	for (int r = 0; r < 2; r++)
		OWN_NETWORK_NEED(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]) == 0);
	for (int r = 0; r < 2; r++)
		pthread_join(ranks[r].thread, NULL);
}

static void meet_by_environment(void)
{
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("MASTER_PORT", "40007", 1);
	run_ranks(NULL);
}

static void meet_by_config(void)
{
	run_ranks("tcp://127.0.0.1:40007");
}

/* A process that is to be a rank, and has made communicators of its own before. */
static void meet_later(void)
{
	tutti_comm *comms[2];

	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("MASTER_PORT", "40007", 1);
	OWN_NETWORK_NEED(tutti_init_all(comms, 2, NULL) == TUTTI_OK);
	expect_place_is_free();
	for (int i = 0; i < 2; i++)
		tutti_comm_destroy(comms[i]);
}

static void run(void (*body)(void))
{
	/* Ranks that share memory keep no port. */
	setenv("TUTTI_TRANSPORTS", "tcp", 1);
	own_network_case(FIRST, PORTS, body);
}

static void test_environment(void **state)
{
	run(meet_by_environment);
}

static void test_config(void **state)
{
	run(meet_by_config);
}

static void test_later(void **state)
{
	run(meet_later);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_environment),
					   cmocka_unit_test(test_config),
					   cmocka_unit_test(test_later)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
