/* slow: 20 s */
/* no_tsan: its ranks are processes */
/* Would break: a deadline that passes before TUTTI_SILENCE_MS blames healthy ranks for one that is
 * stopped, or tells only some of the others; or blames a stop where a rank only is elsewhere.
 * Collectives and messages, over every way in which ranks can be connected. */
#include "tests/collectives/rank_processes.h"

#include "core/clock.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit.h"

#define ODD      2 /* the rank that something happens to */
#define LIMIT_MS 300

static const tutti_call limited = {.timeout_ms = LIMIT_MS};

static tutti_status sum(tutti_comm *comm, int n, const tutti_call *call)
{
	static float x[3000];
	tutti_status status = TUTTI_OK;

	for (int i = 0; status == TUTTI_OK && (n == 0 || i < n); i++)
		status = tutti_all_reduce(x, x, i % 2 ? 3000 : 1, TUTTI_F32, TUTTI_SUM, comm, call);
	return status;
}

static void must(tutti_status status)
{
	if (status == TUTTI_OK)
		return;
	fprintf(stderr, "%s\n", tutti_comm_error(NULL));
	_exit(2);
}

/* ---- ranks --------------------------------------------------------------------------------- */

static void stop_after_us(long us)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGSTOP};
	struct itimerspec at = {.it_value = {0, us * 1000}};
	timer_t timer;

	if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
	    timer_settime(timer, 0, &at, NULL) != 0) {
		perror("a timer");
		_exit(2);
	}
}

static void stops_before_the_call(tutti_comm *comm)
{
	must(sum(comm, 6, NULL));
	if (tutti_rank(comm) == ODD) {
		processes_wait(&shared->here[0], PROCESSES - 1);
		raise(SIGSTOP);
	}
	atomic_fetch_add(&shared->here[0], 1);
	processes_report(comm, sum(comm, 0, &limited));
}

/* Wherever it is by then, most often in a call that it has entered. */
static void stops_in_a_call(tutti_comm *comm)
{
	must(sum(comm, 6, NULL));
	if (tutti_rank(comm) == ODD)
		stop_after_us(3000);
	processes_report(comm, sum(comm, 0, &limited));
}

static void two_stop(tutti_comm *comm)
{
	must(sum(comm, 6, NULL));
	if (tutti_rank(comm) % 2 == 1)
		stop_after_us(3000);
	processes_report(comm, sum(comm, 0, &limited));
}

/* Rank 1 alone waits for rank 2; every other one for a rank that waits itself. */
static void stops_in_a_chain(tutti_comm *comm)
{
	int rank = tutti_rank(comm);
	char byte;

	must(sum(comm, 6, NULL));
	if (rank == ODD)
		raise(SIGSTOP);
	processes_report(comm,
			 tutti_recv(&byte, 1, TUTTI_U8, (rank + 1) % PROCESSES, comm, &limited));
}

/* Until the others have been told. */
static void is_elsewhere(tutti_comm *comm)
{
	must(sum(comm, 6, NULL));
	if (tutti_rank(comm) == ODD)
		processes_wait(&shared->ended, PROCESSES - 1);
	processes_report(comm, sum(comm, 1, &limited));
}

static void wake_all(void)
{
	for (int r = 0; r < PROCESSES; r++)
		kill(shared->pids[r], SIGCONT);
}

static void wake_one_after_the_others(void)
{
	processes_wait(&shared->ended, PROCESSES - 1);
	wake_all();
}

static void wake_two_after_the_others(void)
{
	processes_wait(&shared->ended, PROCESSES - 2);
	wake_all();
}

/* ---- looks --------------------------------------------------------------------------------- */

static bool names_stopped(const char *error, unsigned stopped, const struct way *way)
{
	for (int r = 0; r < PROCESSES; r++) {
		char who[64];
		snprintf(who, sizeof who, "Rank %d (process %d ", r, (int)shared->pids[r]);
		if (stopped >> r & 1 && strncmp(error, who, strlen(who)) == 0)
			return strstr(error, way->nodes > 1 ? ") is s" : ") is stopped") != NULL;
	}
	return false;
}

static void look_at_stop(const char *what, const struct way *way, unsigned stopped)
{
	for (int r = 0; r < PROCESSES; r++) {
		const struct report *got = &shared->reports[r];
		if (stopped >> r & 1) {
			if (got->status == TUTTI_OK)
				fail_msg("%s, %s: rank %d did not fail", what, way->name, r);
			continue;
		}
		if (got->status != TUTTI_ERR_TIMEOUT || !names_stopped(got->error, stopped, way))
			fail_msg("%s, %s: rank %d: %s: %s", what, way->name, r,
				 tutti_status_string(got->status), got->error);
	}
	print_message("%-12s %-11s rank 0: %s\n", what, way->name, shared->reports[0].error);
}

static void stop_one(const char *what, void (*body)(tutti_comm *))
{
	for (int w = 0; w < way_count; w++) {
		processes_run(&ways[w], NULL, body, wake_one_after_the_others, 0);
		look_at_stop(what, &ways[w], 1u << ODD);
	}
}

static void test_before_the_call(void **state)
{
	stop_one("before", stops_before_the_call);
}

static void test_in_a_call(void **state)
{
	stop_one("in a call", stops_in_a_call);
}

static void test_messages(void **state)
{
	stop_one("messages", stops_in_a_chain);
}

static void test_two(void **state)
{
	for (int w = 0; w < way_count; w++) {
		processes_run(&ways[w], NULL, two_stop, wake_two_after_the_others, 0);
		look_at_stop("two", &ways[w], 1u << 1 | 1u << 3);
	}
}

/* On a loaded machine others are late, too. */
static bool says_that_odd_is_missing(const char *error)
{
	static const char before[] = "in this call: rank";
	const char *list = strstr(error, before);

	if (!list)
		return false;
	list += strlen(before);
	return memchr(list, '0' + ODD, strspn(list, "s 0123456789,")) != NULL;
}

/* It is well: the ranks whose deadline has passed, or whose peer's has, say that it is not there.
 */
static void test_elsewhere(void **state)
{
	for (int w = 0; w < way_count; w++) {
		processes_run(&ways[w], NULL, is_elsewhere, NULL, 0);
		for (int r = 0; r < PROCESSES; r++) {
			const struct report *got = &shared->reports[r];
			if (got->status == TUTTI_OK || !says_that_odd_is_missing(got->error) ||
			    strstr(got->error, "is s"))
				fail_msg("%s: rank %d: %s: %s", ways[w].name, r,
					 tutti_status_string(got->status), got->error);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_before_the_call), cmocka_unit_test(test_in_a_call),
		cmocka_unit_test(test_messages),        cmocka_unit_test(test_two),
		cmocka_unit_test(test_elsewhere),
	};
	if (!processes_open())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
