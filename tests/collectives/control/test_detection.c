/* slow: 19 s */
/* Would break: a rank that dies or is stopped is noticed late, by some, or without its name; or a
 * rank that only computes is taken for one that is stopped. Every way ranks can be connected; how
 * long it takes is printed, and compared with what a process does meanwhile that counts turns. */
#include "tests/collectives/rank_processes.h"

#include "core/clock.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define ODD 2 /* the rank that something happens to */

/* Turns of 5 ms on a quiet machine; what is promised there is 100 ms in a node and 1 s beyond.
 * Beside 40 busy processes on 2 cores it was 203 at the most. */
#define MOST_TURNS    600
#define SILENCE_MS    700
#define SILENCE_TURNS (SILENCE_MS / 5)

static tutti_status sum(tutti_comm *comm, int n)
{
	static float x[3000];
	tutti_status status = TUTTI_OK;

	for (int i = 0; status == TUTTI_OK && (n == 0 || i < n); i++)
		status = tutti_all_reduce(x, x, i % 2 ? 3000 : 1, TUTTI_F32, TUTTI_SUM, comm, NULL);
	return status;
}

static void must(tutti_status status)
{
	if (status == TUTTI_OK)
		return;
	fprintf(stderr, "%s\n", tutti_comm_error(NULL));
	_exit(2);
}

/* ---- death --------------------------------------------------------------------------------- */

static void dies_between_calls(tutti_comm *comm)
{
	must(sum(comm, 6));
	if (tutti_rank(comm) == ODD) {
		processes_happens();
		raise(SIGKILL);
	}
	processes_report(comm, sum(comm, 0));
}

/* The others wait in the call already. */
static void dies_late(tutti_comm *comm)
{
	must(sum(comm, 6));
	if (tutti_rank(comm) == ODD) {
		processes_wait(&shared->here[0], PROCESSES - 1);
		poll(NULL, 0, 30); /* not needed: so that most of them sleep by now */
		processes_happens();
		raise(SIGKILL);
	}
	atomic_fetch_add(&shared->here[0], 1);
	processes_report(comm, sum(comm, 0));
}

/* No rank has sent anything to it yet. */
static void dies_unknown(tutti_comm *comm)
{
	char byte;

	if (tutti_rank(comm) == ODD) {
		processes_wait(&shared->here[0], PROCESSES - 1);
		processes_happens();
		raise(SIGKILL);
	}
	atomic_fetch_add(&shared->here[0], 1);
	processes_report(comm, tutti_recv(&byte, 1, TUTTI_U8, ODD, comm, NULL));
}

/* Every rank waits for any other, and some of these are there. */
static void dies_as_anybody(tutti_comm *comm)
{
	char byte;

	if (tutti_rank(comm) == ODD) {
		processes_wait(&shared->here[0], PROCESSES - 1);
		poll(NULL, 0, 100);
		processes_happens();
		raise(SIGKILL);
	}
	atomic_fetch_add(&shared->here[0], 1);
	processes_report(comm, tutti_recv(&byte, 1, TUTTI_U8, TUTTI_ANY, comm, NULL));
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

static int turns_until(const struct report *got)
{
	return got->at - atomic_load(&shared->happened_at);
}

static void look_at_deaths(const char *what, const struct way *way)
{
	double ms[PROCESSES];
	int n = 0, turns = 0;

	for (int r = 0; r < PROCESSES; r++) {
		const struct report *got = &shared->reports[r];
		if (r == ODD)
			continue;
		if (got->status != TUTTI_ERR_PEER || got->failed != 1 || got->first_failed != ODD ||
		    !(strstr(got->error, "ank 2 (process") || strstr(got->error, "of rank 2 (")))
			fail_msg("%s, %s: rank %d: %s, %d failed, first %d: %s", what, way->name, r,
				 tutti_status_string(got->status), got->failed, got->first_failed,
				 got->error);
		ms[n++] = (double)(got->at_ns - shared->happened_ns) * 1e-6;
		turns = turns_until(got) > turns ? turns_until(got) : turns;
	}
	qsort(ms, (size_t)n, sizeof *ms, compare);
	print_message("%-20s %-11s first %6.1f ms, last %6.1f ms, %d turns; rank 0: %s\n", what,
		      way->name, ms[0], ms[n - 1], turns, shared->reports[0].error);
	if (turns > MOST_TURNS)
		fail_msg("%s, %s: %d turns are too many", what, way->name, turns);
}

static void deaths(const char *what, void (*body)(tutti_comm *))
{
	for (int w = 0; w < way_count; w++) {
		processes_run(&ways[w], NULL, body, NULL, 1u << ODD);
		look_at_deaths(what, &ways[w]);
	}
}

static void test_deaths(void **state)
{
	deaths("between calls", dies_between_calls);
	deaths("in a call", dies_late);
	deaths("never heard of", dies_unknown);
	deaths("among others", dies_as_anybody);
}

/* ---- another program ----------------------------------------------------------------------- */

/* Its process lives on, without the memory and the descriptors of the rank. */
static void execs(tutti_comm *comm)
{
	must(sum(comm, 6));
	if (tutti_rank(comm) == ODD) {
		processes_wait(&shared->here[0], PROCESSES - 1);
		processes_happens();
		execlp("sleep", "sleep", "100", (char *)NULL);
		_exit(2);
	}
	atomic_fetch_add(&shared->here[0], 1);
	processes_report(comm, sum(comm, 0));
}

static void kill_it_after_the_others(void)
{
	processes_wait(&shared->ended, PROCESSES - 1);
	kill(shared->pids[ODD], SIGKILL);
}

static void test_another_program(void **state)
{
	for (int w = 0; w < way_count; w++) {
		processes_run(&ways[w], NULL, execs, kill_it_after_the_others, 1u << ODD);
		look_at_deaths("another program", &ways[w]);
	}
}

/* ---- silence ------------------------------------------------------------------------------- */

static const char *const short_silence[] = {"TUTTI_SILENCE_MS=700", NULL};
static const char *const never[] = {"TUTTI_SILENCE_MS=0", NULL};

static void stops(tutti_comm *comm)
{
	must(sum(comm, 6));
	if (tutti_rank(comm) == ODD) {
		processes_wait(&shared->here[0], PROCESSES - 1);
		processes_happens();
		raise(SIGSTOP);
	}
	atomic_fetch_add(&shared->here[0], 1);
	processes_report(comm, sum(comm, 0));
}

/* Two that are no neighbours, on each side of rank 2. */
static void two_stop(tutti_comm *comm)
{
	must(sum(comm, 6));
	if (tutti_rank(comm) % 2 == 1) {
		processes_wait(&shared->here[0], PROCESSES - 2);
		processes_happens();
		raise(SIGSTOP);
	}
	atomic_fetch_add(&shared->here[0], 1);
	processes_report(comm, sum(comm, 0));
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

/* All that were told have the same message. A rank that wakes up has failed, too. */
static void look_at_silence(const struct way *way, bool is_odd)
{
	for (int r = 0; r < PROCESSES; r++) {
		const struct report *got = &shared->reports[r];
		bool was_stopped = is_odd ? r == ODD : r % 2 == 1, names;
		double ms = (double)(got->at_ns - shared->happened_ns) * 1e-6;
		names = is_odd ? strstr(got->error, "Rank 2 (process") != NULL
			       : strstr(got->error, "Rank 1 (process") ||
					 strstr(got->error, "Rank 3 (process");
		if (got->status == TUTTI_OK)
			fail_msg("%s: rank %d did not fail", way->name, r);
		if (was_stopped)
			continue;
		if (got->status != TUTTI_ERR_TIMEOUT || !names ||
		    !strstr(got->error, way->nodes > 1 ? "is s" : "is stopped") ||
		    !strstr(got->error, "TUTTI_SILENCE_MS"))
			fail_msg("%s: rank %d: %s: %s", way->name, r,
				 tutti_status_string(got->status), got->error);
		if (turns_until(got) > SILENCE_TURNS + MOST_TURNS)
			fail_msg("%s: rank %d knew after %d turns", way->name, r, turns_until(got));
		if (r == 0)
			print_message("%-11s %.0f ms, %d turns: %s\n", way->name, ms,
				      turns_until(got), got->error);
	}
}

static void test_stopped(void **state)
{
	for (int w = 0; w < way_count; w++) {
		processes_run(&ways[w], short_silence, stops, wake_one_after_the_others, 0);
		look_at_silence(&ways[w], true);
		processes_run(&ways[w], short_silence, two_stop, wake_two_after_the_others, 0);
		look_at_silence(&ways[w], false);
	}
}

/* For three times as long as silence would be. */
static void computes(tutti_comm *comm)
{
	must(sum(comm, 6));
	if (tutti_rank(comm) == ODD) {
		uint64_t until = deadline_after_ms(3 * SILENCE_MS);
		while (clock_now_ns() < until)
			;
	}
	processes_report(comm, sum(comm, 3));
}

/* Children of a rank are no part of it, before exec and after. */
static void starts_programs(tutti_comm *comm)
{
	must(sum(comm, 6));
	if (tutti_rank(comm) == ODD) {
		uint64_t until = deadline_after_ms(SILENCE_MS);
		while (clock_now_ns() < until) {
			pid_t child = fork();
			if (child == 0) {
				execlp("true", "true", (char *)NULL);
				_exit(2);
			}
			waitpid(child, NULL, 0);
		}
	}
	processes_report(comm, sum(comm, 3));
}

static void stops_for_a_while(tutti_comm *comm)
{
	must(sum(comm, 6));
	if (tutti_rank(comm) == ODD) {
		atomic_fetch_add(&shared->here[1], 1);
		raise(SIGSTOP);
	}
	processes_report(comm, sum(comm, 3));
}

static void wake_after_a_while(void)
{
	processes_wait(&shared->here[1], 1);
	poll(NULL, 0, 2 * SILENCE_MS);
	wake_all();
}

static void wake_soon(void)
{
	processes_wait(&shared->here[1], 1);
	poll(NULL, 0, SILENCE_MS / 4);
	wake_all();
}

/* As a batch system, or a laptop, does. */
static void stop_all(void)
{
	processes_wait(&shared->here[1], 1);
	poll(NULL, 0, SILENCE_MS / 4);
	for (int r = 0; r < PROCESSES; r++)
		kill(shared->pids[r], SIGSTOP);
	poll(NULL, 0, 2 * SILENCE_MS);
	wake_all();
}

static void all_are_well(const struct way *way)
{
	for (int r = 0; r < PROCESSES; r++)
		if (shared->reports[r].status != TUTTI_OK)
			fail_msg("%s: rank %d: %s", way->name, r, shared->reports[r].error);
}

static void test_not_silent(void **state)
{
	for (int w = 0; w < way_count; w++) {
		processes_run(&ways[w], short_silence, computes, NULL, 0);
		all_are_well(&ways[w]);
		processes_run(&ways[w], short_silence, starts_programs, NULL, 0);
		all_are_well(&ways[w]);
		processes_run(&ways[w], never, stops_for_a_while, wake_after_a_while, 0);
		all_are_well(&ways[w]);
		processes_run(&ways[w], short_silence, stops_for_a_while, wake_soon, 0);
		all_are_well(&ways[w]);
		processes_run(&ways[w], short_silence, stops_for_a_while, stop_all, 0);
		all_are_well(&ways[w]);
	}
}

/* ---- a ring that was cut ------------------------------------------------------------------- */

/* Ranks 1 and 3 leave; 2 and 4 wait for each other; rank 0, which is connected to neither, aborts.
 */
static void leave_and_abort(tutti_comm *comm)
{
	int rank = tutti_rank(comm);
	char byte;

	if (rank % 2 == 1) {
		tutti_comm_destroy(comm);
		atomic_fetch_add(&shared->here[0], 1);
		processes_wait(&shared->ended, 3);
		_exit(0);
	}
	if (rank == 0) {
		processes_wait(&shared->here[0], 2);
		processes_wait(&shared->here[1], 2);
		poll(NULL, 0, 100);
		processes_happens();
		tutti_comm_abort(comm);
		processes_report(comm, TUTTI_ERR_ABORTED);
		return;
	}
	atomic_fetch_add(&shared->here[1], 1);
	processes_report(comm, tutti_recv(&byte, 1, TUTTI_U8, rank == 2 ? 4 : 2, comm, NULL));
}

static void test_ring_is_closed(void **state)
{
	for (int w = 0; w < way_count; w++) {
		processes_run(&ways[w], NULL, leave_and_abort, NULL, 0);
		for (int r = 2; r < PROCESSES; r += 2) {
			const struct report *got = &shared->reports[r];
			if (got->status != TUTTI_ERR_ABORTED || turns_until(got) > MOST_TURNS)
				fail_msg("%s: rank %d: %d turns: %s: %s", ways[w].name, r,
					 turns_until(got), tutti_status_string(got->status),
					 got->error);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deaths),         cmocka_unit_test(test_another_program),
		cmocka_unit_test(test_stopped),        cmocka_unit_test(test_not_silent),
		cmocka_unit_test(test_ring_is_closed),
	};
#if defined(__SANITIZE_THREAD__)
	puts("its ranks are processes, which TSan sees nothing of"); /* when they have threads */
	return 77;
#endif
	return processes_open() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
