/* What would break: a rank that joins a job that grows, and is told that it has joined, though
 * those that were there gave that up at the last moment. It would go on by itself, with others of
 * its kind: two jobs out of one. Or ranks that wait until their deadline for the one among them
 * that was to meet the new ones, and has died. */
#include "collectives/comm/join.h"

#include <tutti/tutti.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/limit.h"
#include "tests/unit.h"

enum { ASK_READINESS = 1, ASK_REPORTS }; /* grow.c's questions, from the second on */

enum { ENDS_WELL, IS_WRONG = 10 };

static bool dies_at_verdict, dies_when_ready; /* in this process */

tutti_status __real_comm_ask(struct tutti_comm *comm, struct consensus_question *question,
			     uint32_t which, uint8_t *marks, void *records);
tutti_status __wrap_comm_ask(struct tutti_comm *comm, struct consensus_question *question,
			     uint32_t which, uint8_t *marks, void *records);

/* All ranks have arrived by then. */
tutti_status __wrap_comm_ask(struct tutti_comm *comm, struct consensus_question *question,
			     uint32_t which, uint8_t *marks, void *records)
{
	if (dies_at_verdict && which == 4 * ASK_REPORTS + CALL_GROW)
		raise(SIGKILL);
	tutti_status status = __real_comm_ask(comm, question, which, marks, records);
	if (dies_when_ready && which == 4 * ASK_READINESS + CALL_GROW)
		raise(SIGKILL);
	return status;
}

static char place[128], meeting[160];

static tutti_config config_of(int rank, int size, const char *url)
{
	return (tutti_config){
		.rank = rank, .world_size = size, .rendezvous = url, .timeout_ms = 60000};
}

static _Noreturn void end(bool is_right, const char *what, tutti_status status)
{
	if (!is_right)
		fprintf(stderr, "%s: %s: %s\n", what, tutti_status_string(status),
			tutti_comm_error(NULL));
	_exit(is_right ? ENDS_WELL : IS_WRONG);
}

static _Noreturn void come(void)
{
	tutti_config config = config_of(2, 3, meeting);
	tutti_comm *comm = NULL;

	setenv("TUTTI_RESTARTED", "1", 1);
	tutti_status status = tutti_init(&comm, &config);
	end(status == TUTTI_ERR_PEER && !comm && strstr(tutti_comm_error(NULL), "rank "),
	    "the new rank's init", status);
}

/* Ranks 0 and 1 are there; rank 1 dies, and rank 0 hears of it. */
static void be_there(int rank)
{
	tutti_config config = config_of(rank, 2, place), later = {.rendezvous = meeting};
	tutti_comm *comm, *grown = NULL;

	if (rank == 2)
		come();
	tutti_status status = tutti_init(&comm, &config);
	if (status != TUTTI_OK)
		end(false, "init", status);
	dies_at_verdict = rank == 1;
	status = tutti_comm_grow(comm, 3, &later, &grown);
	tutti_comm_destroy(comm);
	end(status == TUTTI_ERR_PEER && !grown, "grow", status);
}

/* Rank 0 dies before it serves, and rank 1 hears of it long before its deadline. */
static void lose_server(int rank)
{
	tutti_config config = config_of(rank, 2, place);
	tutti_config later = {.rendezvous = meeting, .timeout_ms = 24 * 3600 * 1000};
	tutti_comm *comm, *grown = NULL;

	test_limit(60);
	tutti_status status = tutti_init(&comm, &config);
	if (status != TUTTI_OK)
		end(false, "init", status);
	dies_when_ready = rank == 0;
	status = tutti_comm_grow(comm, 3, &later, &grown);
	tutti_comm_destroy(comm);
	end(status == TUTTI_ERR_PEER && !grown, "grow", status);
}

/* codes: how they ended. */
static void run(int ranks, void (*be)(int rank), int *codes)
{
	char folder[] = "/tmp/tutti-verdict-XXXXXX";
	pid_t pids[3];

	assert_non_null(mkdtemp(folder));
	snprintf(place, sizeof place, "file://%s/first", folder);
	snprintf(meeting, sizeof meeting, "file://%s/second", folder);
	for (int r = 0; r < ranks; r++) {
		pids[r] = fork();
		assert_true(pids[r] >= 0);
		if (pids[r] == 0)
			be(r);
	}
	for (int r = 0; r < ranks; r++)
		assert_int_equal(waitpid(pids[r], &codes[r], 0), pids[r]);
	unlink(place + strlen("file://"));
	unlink(meeting + strlen("file://"));
	assert_int_equal(rmdir(folder), 0);
}

static void nobody_joins_what_was_given_up(void **state)
{
	int codes[3];

	run(3, be_there, codes);
	assert_true(WIFSIGNALED(codes[1]) && WTERMSIG(codes[1]) == SIGKILL);
	assert_int_equal(codes[0], ENDS_WELL);
	assert_int_equal(codes[2], ENDS_WELL);
}

static void nobody_waits_for_a_dead_server(void **state)
{
	int codes[2];

	run(2, lose_server, codes);
	assert_true(WIFSIGNALED(codes[0]) && WTERMSIG(codes[0]) == SIGKILL);
	assert_int_equal(codes[1], ENDS_WELL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_joins_what_was_given_up),
		cmocka_unit_test(nobody_waits_for_a_dead_server),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
