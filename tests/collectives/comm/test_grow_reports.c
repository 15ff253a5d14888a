/* What would break: a rank that joins a job that grows, and is told that it has joined, though
 * those that were there gave that up at the last moment. It would go on by itself, with others of
 * its kind: two jobs out of one. */
#include "collectives/comm/join.h"

#include <tutti/tutti.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define ASK_REPORTS 2 /* grow.c's third question */

enum { ENDS_WELL, IS_WRONG = 10 };

static bool dies_at_verdict; /* in this process */

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
	return __real_comm_ask(comm, question, which, marks, records);
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

/* Ranks 0 and 1 are there; rank 1 dies, and rank 0 hears of it. */
static _Noreturn void be_there(int rank)
{
	tutti_config config = config_of(rank, 2, place), later = {.rendezvous = meeting};
	tutti_comm *comm, *grown = NULL;

	tutti_status status = tutti_init(&comm, &config);
	if (status != TUTTI_OK)
		end(false, "init", status);
	dies_at_verdict = rank == 1;
	status = tutti_comm_grow(comm, 3, &later, &grown);
	tutti_comm_destroy(comm);
	end(status == TUTTI_ERR_PEER && !grown, "grow", status);
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

static void nobody_joins_what_was_given_up(void **state)
{
	char folder[] = "/tmp/tutti-verdict-XXXXXX";
	int codes[3];
	pid_t pids[3];

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(place, sizeof place, "file://%s/first", folder);
	snprintf(meeting, sizeof meeting, "file://%s/second", folder);
	for (int r = 0; r < 3; r++) {
		pids[r] = fork();
		assert_true(pids[r] >= 0);
		if (pids[r] == 0 && r == 2)
			come();
		if (pids[r] == 0)
			be_there(r);
	}
	for (int r = 0; r < 3; r++)
		assert_int_equal(waitpid(pids[r], &codes[r], 0), pids[r]);
	assert_true(WIFSIGNALED(codes[1]) && WTERMSIG(codes[1]) == SIGKILL);
	assert_int_equal(codes[0], ENDS_WELL);
	assert_int_equal(codes[2], ENDS_WELL);
	unlink(place + strlen("file://"));
	unlink(meeting + strlen("file://"));
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_joins_what_was_given_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
