/* slow: 9 s */
/* no_tsan: its ranks are processes: nothing is seen of what they share */
/* Would break: ranks that are processes, on one node and on several: one is killed, aborts, leaves,
 * makes no call, or another one than the rest, and all others are told who and what; also those
 * that were far away and those that were busy elsewhere. And ranks that end without a word after
 * their last call harm nobody. */
#include "tests/collectives/any_call.h"
#include "tests/collectives/rank_processes.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

#define BEFORE 6 /* calls that all make */

static const struct any_call sums = {COLL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, 3000, 0};
static const struct any_call other = {COLL_BROADCAST, TUTTI_F32, TUTTI_SUM, 0, 3000, 0};
static const struct any_call barrier = {COLL_BARRIER, TUTTI_F32, TUTTI_SUM, 0, 0, 0};

/* ---- ranks --------------------------------------------------------------------------------- */

static tutti_status make(tutti_comm *comm, const struct any_call *call)
{
	struct any_made made;
	tutti_status status = any_start(&made, call, comm, NULL);
	if (status == TUTTI_OK && !any_is_right(&made))
		status = TUTTI_ERR_INTERNAL;
	any_free(&made);
	return status;
}

static tutti_status make_before(tutti_comm *comm)
{
	tutti_status status = TUTTI_OK;
	for (int k = 0; k < BEFORE && status == TUTTI_OK; k++)
		status = make(comm, k % 2 ? &sums : &barrier);
	return status;
}

static tutti_status until_failed(tutti_comm *comm)
{
	tutti_status status = TUTTI_OK;
	while (status == TUTTI_OK)
		status = make(comm, &sums);
	return status;
}

/* The odd rank of each trouble is number 2. */
#define ODD      2
#define SHORT_MS 1500 /* ranks that share two cores with other tests are late by hundreds */

static void killed(tutti_comm *comm)
{
	tutti_status status = make_before(comm);
	if (tutti_rank(comm) == ODD)
		raise(SIGKILL);
	processes_report(comm, status == TUTTI_OK ? until_failed(comm) : status);
}

static void aborts(tutti_comm *comm)
{
	tutti_status status = make_before(comm);
	if (tutti_rank(comm) == ODD)
		tutti_comm_abort(comm);
	processes_report(comm, status == TUTTI_OK ? until_failed(comm) : status);
}

static void leaves(tutti_comm *comm)
{
	tutti_status status = make_before(comm);
	if (tutti_rank(comm) == ODD) {
		tutti_comm_destroy(comm);
		processes_wait(&shared->ended, PROCESSES - 1);
		_exit(0);
	}
	processes_report(comm, status == TUTTI_OK ? until_failed(comm) : status);
}

/* It has a send in flight that nobody receives, and waits for that in tutti_comm_destroy. */
static void leaves_a_message(tutti_comm *comm)
{
	const uint64_t word = 1;
	tutti_status status = make_before(comm);
	if (tutti_rank(comm) != ODD) {
		processes_report(comm, status == TUTTI_OK ? until_failed(comm) : status);
		return;
	}
	if (tutti_send(&word, 1, TUTTI_U64, ODD + 1, comm, NULL) != TUTTI_OK)
		_exit(2);
	tutti_comm_destroy(comm);
	processes_wait(&shared->ended, PROCESSES - 1);
	_exit(0);
}

/* Only the calls are short of time: joining may take long on a busy machine. */
static void absent(tutti_comm *comm)
{
	const tutti_call soon = {.timeout_ms = SHORT_MS};
	float sum = 1;
	tutti_status status = make_before(comm);
	if (tutti_rank(comm) == ODD)
		processes_wait(&shared->ended, PROCESSES - 1);
	while (status == TUTTI_OK)
		status = tutti_all_reduce(&sum, &sum, 1, TUTTI_F32, TUTTI_SUM, comm, &soon);
	processes_report(comm, status);
}

/* The call that comes to its deadline stands behind one that has time. */
static void absent_from_two(tutti_comm *comm)
{
	static float sums_of[2] = {1, 1};
	const tutti_call soon = {.timeout_ms = SHORT_MS};
	tutti_work *work = NULL;
	const tutti_call later = {.work = &work};
	tutti_status status = make_before(comm);

	if (tutti_rank(comm) == ODD)
		processes_wait(&shared->ended, PROCESSES - 1);
	if (status == TUTTI_OK)
		status = tutti_all_reduce(&sums_of[0], &sums_of[0], 1, TUTTI_F32, TUTTI_SUM, comm,
					  &later);
	if (status == TUTTI_OK)
		status = tutti_all_reduce(&sums_of[1], &sums_of[1], 1, TUTTI_F32, TUTTI_SUM, comm,
					  &soon);
	processes_report(comm, status);
	if (work)
		tutti_work_wait(&work, 0);
}

static void differs(tutti_comm *comm)
{
	tutti_status status = make_before(comm);
	if (status == TUTTI_OK)
		status = make(comm, tutti_rank(comm) == ODD ? &other : &sums);
	processes_report(comm, status == TUTTI_OK ? until_failed(comm) : status);
}

/* Only two ranks, which are no neighbours, come to the call; the others are elsewhere until those
 * two know. */
static void differs_from_afar(tutti_comm *comm)
{
	int rank = tutti_rank(comm);
	tutti_status status = make_before(comm);
	if (rank != 0 && rank != ODD)
		processes_wait(&shared->ended, 2);
	if (status == TUTTI_OK)
		status = make(comm, rank == ODD ? &other : &sums);
	processes_report(comm, status == TUTTI_OK ? until_failed(comm) : status);
}

static void ends_without_a_word(tutti_comm *comm)
{
	processes_report(comm, make_before(comm));
	_exit(0);
}

/* ---- the test ------------------------------------------------------------------------------ */

static bool names_odd(const char *error)
{
	return strstr(error, "ank 2") || strstr(error, "ranks 2");
}

#define check(r, condition)                                                                        \
	if (!(condition))                                                                          \
	fail_msg("%s: rank %d: not %s: %s: %d failed, first %d: %s", way->name, r, #condition,     \
		 tutti_status_string(got->status), got->failed, got->first_failed, got->error)

/* Runs body on every way, and has the report of each rank but the odd one, or of all, looked at. */
static void on_every_way(void (*body)(tutti_comm *), bool odd_reports,
			 void (*look)(const struct way *, int rank, const struct report *))
{
	for (const struct way *way = ways; way < ways + way_count; way++) {
		processes_run(way, NULL, body, NULL, body == killed ? 1u << ODD : 0);
		for (int r = 0; r < PROCESSES; r++)
			if (r != ODD || odd_reports)
				look(way, r, &shared->reports[r]);
	}
}

static void look_killed(const struct way *way, int r, const struct report *got)
{
	check(r, got->status == TUTTI_ERR_PEER);
	check(r, names_odd(got->error));
	check(r, got->failed == 1 && got->first_failed == ODD);
}

static void test_killed(void **state)
{
	on_every_way(killed, false, look_killed);
}

static void look_aborted(const struct way *way, int r, const struct report *got)
{
	check(r, got->status == TUTTI_ERR_ABORTED);
	check(r, names_odd(got->error));
}

static void test_aborts(void **state)
{
	on_every_way(aborts, true, look_aborted);
}

static void look_left(const struct way *way, int r, const struct report *got)
{
	check(r, got->status == TUTTI_ERR_PEER);
	check(r, names_odd(got->error));
}

static void test_leaves(void **state)
{
	on_every_way(leaves, false, look_left);
	on_every_way(leaves_a_message, false, look_left);
}

/* The first deadline that passes is a TIMEOUT there, and a failed peer elsewhere. */
static void look_absent(const struct way *way, int r, const struct report *got)
{
	int timeouts = 0;
	for (int k = 0; k < PROCESSES; k++)
		timeouts += shared->reports[k].status == TUTTI_ERR_TIMEOUT;
	check(r, timeouts > 0);
	check(r, got->status == TUTTI_ERR_TIMEOUT || got->status == TUTTI_ERR_PEER);
	check(r, names_odd(got->error));
}

static void test_absent(void **state)
{
	on_every_way(absent, true, look_absent);
	on_every_way(absent_from_two, true, look_absent);
}

static void look_mismatch(const struct way *way, int r, const struct report *got)
{
	char most[128], odd[128];
	any_words(&sums, PROCESSES, BEFORE, most, sizeof most);
	any_words(&other, PROCESSES, BEFORE, odd, sizeof odd);
	check(r, got->status == TUTTI_ERR_MISMATCH);
	check(r, strstr(got->error, most) && strstr(got->error, odd));
	check(r, strstr(got->error, "rank 2 called broadcast"));
}

static void test_differs(void **state)
{
	on_every_way(differs, true, look_mismatch);
	on_every_way(differs_from_afar, true, look_mismatch);
}

static void look_well(const struct way *way, int r, const struct report *got)
{
	check(r, got->status == TUTTI_OK);
}

static void test_ends_without_a_word(void **state)
{
	on_every_way(ends_without_a_word, true, look_well);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),  cmocka_unit_test(test_aborts),
		cmocka_unit_test(test_leaves),  cmocka_unit_test(test_absent),
		cmocka_unit_test(test_differs), cmocka_unit_test(test_ends_without_a_word),
	};
#if defined(__SANITIZE_THREAD__)
	return 77; /* it does not follow processes that start threads of their own */
#endif
	if (!processes_open())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
