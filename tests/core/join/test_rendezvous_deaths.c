/* Breaks when the others do not learn that a rank has died, or forget it while they leave. */
#include "tests/limit.h"
#include "tests/core/join/ranks.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

static void die(struct rank_run *run, struct rendezvous *r)
{
	(void)run;
	(void)r;
	kill(getpid(), SIGKILL);
}

static void one_dies(int victim)
{
	struct rank_run runs[4];
	int status = 0;
	pid_t child;

	ranks_prepare(runs, 4, ranks_free_port());
	runs[victim].between = die;
	child = ranks_fork_one(&runs[victim]);
	for (int r = 0; r < 4; r++)
		if (r != victim)
			ranks_start(&runs[r]);
	for (int r = 0; r < 4; r++)
		if (r != victim)
			ranks_finish(&runs[r]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	for (int r = 0; r < 4; r++)
		if (r != victim)
			ranks_expect(&runs[r], TUTTI_ERR_PEER, victim ? "rank 2" : "rank 0");
}

static void death_in_a_round_is_said_to_all(void **state)
{
	one_dies(2);
}

static void the_death_of_rank_0_is_noticed(void **state)
{
	one_dies(0);
}

static void await_death(struct rank_run *run, struct rendezvous *r)
{
	(void)run;
	(void)r;
	for (;;)
		pause();
}

/* This process's one socket to that port. */
static int way_to(int port)
{
	struct sockaddr_in there;

	for (int fd = 0; fd < 1024; fd++) {
		socklen_t length = sizeof there;
		if (getpeername(fd, (struct sockaddr *)&there, &length) == 0 &&
		    there.sin_family == AF_INET && ntohs(there.sin_port) == port)
			return fd;
	}
	return -1;
}

/* The goodbye finds no server, and that is not what the caller is told. */
static void leaving_keeps_the_message(void **state)
{
	struct rank_run runs[2];
	struct rendezvous *r = NULL;
	struct pollfd way;
	char message[ERROR_BYTES];
	pid_t child;

	ranks_prepare(runs, 2, ranks_free_port());
	runs[0].between = await_death;
	child = ranks_fork_one(&runs[0]);
	assert_int_equal(rendezvous_join(&r, &runs[1].job, &runs[1].env, ranks_later()), TUTTI_OK);
	way = (struct pollfd){.fd = way_to(runs[1].job.port)};
	assert_true(way.fd >= 0);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(ranks_round(&runs[1], r, 1), TUTTI_ERR_PEER);
	snprintf(message, sizeof message, "%s", last_error());
	assert_non_null(strstr(message, "rank 0"));
	/* Until the system knows that what the round sent had no reader: POLLHUP comes unasked. */
	assert_int_equal(poll(&way, 1, LONG_MS), 1);
	rendezvous_leave(r, ranks_later());
	assert_string_equal(last_error(), message);
}

int main(void)
{
	test_ports(); /* its descriptor is not counted */
	int fds = open_descriptors();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(death_in_a_round_is_said_to_all),
		cmocka_unit_test(the_death_of_rank_0_is_noticed),
		cmocka_unit_test(leaving_keeps_the_message),
	};

	test_limit(110);
	return ranks_end(cmocka_run_group_tests(tests, NULL, NULL), fds);
}
