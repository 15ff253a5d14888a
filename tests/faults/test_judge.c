/* Would break: that the fault suite takes anything for right. Each case is what a few ranks might
 * have written down, right but for one thing, and the judge has to see just that; the right ones
 * have to pass. Besides, that messages are read as they are meant, and that a seed means one
 * thing. */
#include "tests/faults/judge.h"
#include "tests/faults/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define RANKS       4
#define VICTIM      2
#define INJECTED_NS 1000u
#define LATER       2000u

static struct board *board;
static struct truth truth;
static struct scenario scenario;
static struct verdict verdict;

static struct event *write_event(int rank, enum happening what, tutti_status status, uint64_t at_ns)
{
	struct event *e = board_note(&board->seats[rank], what);

	e->status = status;
	e->at_ns = at_ns;
	e->size = RANKS;
	for (int r = 0; r < RANKS; r++)
		e->ids[r] = (int8_t)r;
	return e;
}

/* Rank VICTIM was killed; all others were told so and have gone on. */
static void write_death(void)
{
	board_clear(board);
	memset(&verdict, 0, sizeof verdict);
	scenario = (struct scenario){.ranks = RANKS};
	truth = (struct truth){.scenario = &scenario, .dead_ns = {[VICTIM] = INJECTED_NS}};
	for (int r = 0; r < RANKS; r++) {
		truth.pids[r] = 100 + r;
		write_event(r, HAD_INIT, TUTTI_OK, 10);
		if (r == VICTIM)
			continue;
		struct event *e = write_event(r, HAD_FAILURE, TUTTI_ERR_PEER, LATER);
		e->failed = 1u << VICTIM;
		snprintf(e->call, sizeof e->call, "all_reduce");
		snprintf(e->message, sizeof e->message,
			 "Rank 2 (process 102 on box) has died: rank 2 (tcp 127.0.0.1:4120, "
			 "channel 2) closed its connection to rank 1. Rank %d was in all_reduce "
			 "#12 (ring) and waited for rank %d; 3 of 7 steps are done.",
			 r, (r + 1) % RANKS);
		write_event(r, BEGAN_SHRINK, TUTTI_OK, LATER + 1);
		write_event(r, HAD_SHRINK, TUTTI_OK, LATER + 2)->members = 0xb;
		write_event(r, LEAVES, TUTTI_OK, LATER + 3)->generation = 1;
	}
}

static struct event *event_of(int rank, enum happening what)
{
	struct seat *seat = &board->seats[rank];

	for (int i = 0; i < board_count(seat); i++)
		if (seat->events[i].what == what)
			return &seat->events[i];
	fail_msg("no such event");
	return NULL;
}

static void expect(int complaints, const char *of)
{
	judge(&verdict, board, &truth);
	if ((complaints == 0) != (verdict.complaints == 0) || !strstr(verdict.text, of))
		fail_msg("%d complaints: %s", verdict.complaints, verdict.text);
}

static void say(int rank, const char *message)
{
	struct event *e = event_of(rank, HAD_FAILURE);

	snprintf(e->message, sizeof e->message, "%s", message);
}

/* ---- what one rank is told ------------------------------------------------------------------- */

static void test_right(void **state)
{
	write_death();
	expect(0, "");
	assert_int_equal(judge_first_ns(&truth), INJECTED_NS);
	assert_int_equal(judge_told_ns(board, &truth, 0), LATER);
	assert_int_equal(judge_told_ns(board, &truth, VICTIM), 0);
}

static void test_nothing_had_happened(void **state)
{
	write_death();
	truth.dead_ns[VICTIM] = LATER + 10;
	expect(1, "though nothing had happened");
}

/* A connection that is made again is nothing that anybody may be told of; one that is not is. */
static void test_broken_connection(void **state)
{
	for (int reconnects = 0; reconnects < 2; reconnects++) {
		write_death();
		truth.dead_ns[VICTIM] = 0;
		truth.broken_ns = INJECTED_NS;
		truth.ends = 1u << VICTIM | 1u << 1;
		truth.reconnects = reconnects;
		judge(&verdict, board, &truth);
		assert_int_equal(strstr(verdict.text, "though nothing had happened") != NULL,
				 reconnects);
	}
}

static void test_another_is_named(void **state)
{
	write_death();
	say(0, "Rank 3 (process 103 on box) has died.");
	expect(1, "nothing has happened to rank 3");
}

static void say_lost(void)
{
	for (int r = 0; r < RANKS; r++)
		if (r != VICTIM)
			say(r, "Rank 2 (process 102 on box) is lost.");
}

/* The end of a connection proves no death. */
static void test_the_living_have_not_died(void **state)
{
	for (int lives = 0; lives < 2; lives++) {
		write_death();
		if (lives) {
			truth.dead_ns[VICTIM] = 0;
			truth.broken_ns = INJECTED_NS;
			truth.ends = 1u << VICTIM | 1u << 1;
		}
		judge(&verdict, board, &truth);
		assert_int_equal(strstr(verdict.text, "alive is rank 2") != NULL, lives);
		say_lost();
		memset(&verdict, 0, sizeof verdict);
		judge(&verdict, board, &truth);
		assert_null(strstr(verdict.text, "alive is rank"));
	}
}

static void test_nobody_is_named(void **state)
{
	write_death();
	say(0, "A rank has died: rank 1 was told so.");
	expect(1, "names none of");
}

/* In a child that the victim is not in, a rank waits for one that waits for the victim. */
static void test_child_without_victim(void **state)
{
	for (int names = 0; names < 2; names++) {
		write_death();
		struct event *e = event_of(0, HAD_FAILURE);
		e->size = 2;
		e->ids[0] = 3;
		e->ids[1] = 0;
		say(0, names ? "rank 1: barrier #0 (direct): waited 5 ms; not in this call: rank 0."
			     : "rank 1: barrier #0 (direct): waited 5 ms.");
		memset(&verdict, 0, sizeof verdict);
		judge(&verdict, board, &truth);
		assert_int_equal(strstr(verdict.text, "names none of") == NULL, names);
	}
}

static void test_another_process(void **state)
{
	write_death();
	say(0, "Rank 2 (process 103 on box) has died.");
	expect(1, "is process 102, not 103");
}

static void test_another_call(void **state)
{
	write_death();
	snprintf(event_of(1, HAD_FAILURE)->call, 32, "broadcast");
	expect(1, "rank 1 was in broadcast");
}

static void test_another_status(void **state)
{
	write_death();
	event_of(1, HAD_FAILURE)->status = TUTTI_ERR_TIMEOUT;
	expect(1, "is not what happened");
	write_death();
	event_of(1, HAD_FAILURE)->status = TUTTI_ERR_ABORTED;
	expect(1, "is not what happened");
	write_death();
	event_of(1, HAD_FAILURE)->status = TUTTI_ERR_ABORTED;
	say(1, "rank 0 aborted this communicator while it was being made: rank 2 has died");
	expect(0, "");
}

static void test_living_rank_is_listed(void **state)
{
	write_death();
	event_of(3, HAD_FAILURE)->failed = 1u << 1;
	expect(1, "tutti_comm_failed lists 0x2");
}

/* Ranks of a child count anew. */
static void test_numbers_of_a_child(void **state)
{
	write_death();
	struct event *e = event_of(3, HAD_FAILURE);
	e->size = 2;
	e->ids[0] = VICTIM;
	e->ids[1] = 3;
	say(3, "Rank 0 (process 102 on box) has died. Rank 1 was in all_reduce #3 (ring).");
	expect(0, "");
	say(3, "Rank 1 (process 103 on box) has died, and so did rank 0.");
	expect(1, "nothing has happened to rank 3");
}

/* A rank that waits in the parent for a rank whose child has failed is told nothing before the
 * deadline. */
static void test_failure_of_a_child(void **state)
{
	for (int is_child = 0; is_child < 2; is_child++) {
		write_death();
		event_of(3, HAD_FAILURE)->is_child = is_child;
		event_of(1, HAD_FAILURE)->status = TUTTI_ERR_TIMEOUT;
		event_of(1, HAD_FAILURE)->at_ns = 2 * LATER;
		say(1, "rank 1: broadcast #3: waited 5000 ms; not in this call: ranks 2, 3");
		event_of(1, HAD_FAILURE)->call[0] = '\0';
		judge(&verdict, board, &truth);
		assert_int_equal(strstr(verdict.text, "is not what happened") == NULL, is_child);
	}
}

static void test_stopped(void **state)
{
	write_death();
	truth.dead_ns[VICTIM] = 0;
	truth.silent_ns[VICTIM] = INJECTED_NS;
	for (int r = 0; r < RANKS; r++) {
		if (r == VICTIM)
			continue;
		say(r, "Rank 2 (process 102 on box) is stopped (SIGSTOP, or a debugger).");
		event_of(r, HAD_FAILURE)->status = TUTTI_ERR_TIMEOUT;
		event_of(r, HAD_FAILURE)->failed = 0;
	}
	expect(0, "");
	assert_int_equal(judge_first_ns(&truth), INJECTED_NS);
	say(0, "Rank 1 (process 101 on box) is silent; rank 2 is well.");
	expect(1, "nothing has happened to rank 1");
}

static void test_sides(void **state)
{
	write_death();
	truth.dead_ns[VICTIM] = 0;
	truth.cut_ns = INJECTED_NS;
	truth.side = 1u << VICTIM;
	say_lost();
	for (int r = 0; r < RANKS; r++)
		if (r != VICTIM)
			event_of(r, HAD_FAILURE)->status = TUTTI_ERR_TIMEOUT;
	expect(0, "");
	truth.side = 0xf; /* all on one side */
	memset(&verdict, 0, sizeof verdict);
	expect(1, "though nothing had happened");
}

/* ---- what they do together ------------------------------------------------------------------- */

/* After write_death: the others have grown by a new rank in the dead one's place, which has joined.
 */
static void write_growth(void)
{
	write_death();
	scenario.grows = true;
	scenario.fault_count = 1;
	scenario.faults[0].victims = 1u << VICTIM;
	for (int r = 0; r < RANKS; r++) {
		if (r == VICTIM)
			continue;
		struct event *e = write_event(r, HAD_GROW, TUTTI_OK, LATER + 2);
		e->generation = 1;
		e->members = 0x1b;
	}
	write_event(RANKS, HAD_INIT, TUTTI_OK, LATER + 2);
}

static void test_growth(void **state)
{
	static const char why[] = "tutti_comm_grow: rank 2 did not come within 5000 ms";

	write_growth();
	expect(0, "");
	/* One has it, the others not: for nothing, and of three. */
	write_growth();
	event_of(0, HAD_GROW)->status = TUTTI_ERR_TIMEOUT;
	snprintf(event_of(0, HAD_GROW)->message, sizeof why, "%s", why);
	judge(&verdict, board, &truth);
	assert_int_equal(verdict.complaints, 4);
	assert_non_null(strstr(verdict.text, "rank 0 could not grow though nothing had happened"));
	assert_non_null(strstr(verdict.text, "rank 1 has grown, and rank 0 has not"));
	assert_non_null(strstr(verdict.text, "rank 4 has grown, and rank 0 has not"));
	/* The joiner did not come in time, because it was stopped; or for no reason. */
	for (int is_stopped = 0; is_stopped < 2; is_stopped++) {
		write_growth();
		truth.absent = 1u << RANKS;
		truth.silent_ns[RANKS] = is_stopped ? INJECTED_NS : 0;
		for (int r = 0; r <= RANKS; r++)
			if (r != VICTIM) {
				struct event *e = event_of(r, r < RANKS ? HAD_GROW : HAD_INIT);
				e->status = TUTTI_ERR_TIMEOUT;
				snprintf(e->message, sizeof why, "%s", why);
			}
		judge(&verdict, board, &truth);
		assert_int_equal(verdict.complaints, is_stopped ? 0 : RANKS - 1);
	}
	/* No new rank is in it. */
	write_growth();
	event_of(1, HAD_GROW)->members = 0xb;
	judge(&verdict, board, &truth);
	assert_non_null(strstr(verdict.text, "without anybody new"));
	assert_non_null(strstr(verdict.text, "rank 0 is in 0x1b and rank 1 in 0xb"));
}

static void test_left_behind(void **state)
{
	write_death();
	for (int r = 0; r < 2; r++)
		event_of(r, HAD_SHRINK)->members = 0x3;
	event_of(3, HAD_SHRINK)->members = 0x8;
	event_of(3, HAD_SHRINK)->at_ns = LATER + 9;
	expect(1, "rank 3 is well, and is missing");
}

static void test_two_groups(void **state)
{
	write_death();
	truth.dead_ns[VICTIM] = 0;
	truth.silent_ns[3] = truth.silent_ns[VICTIM] = INJECTED_NS;
	for (int r = 0; r < 2; r++)
		event_of(r, HAD_SHRINK)->members = 0x3;
	event_of(3, HAD_SHRINK)->members = 0x8;
	event_of(0, LEAVES)->at_ns = 9 * LATER; /* rank 0 is still there */
	expect(1, "rank 3 is in 0x8 and rank 0 in 0x3");
	/* When both have ended, a rank that wakes up is the last. */
	memset(&verdict, 0, sizeof verdict);
	event_of(0, LEAVES)->at_ns = LATER + 3;
	for (int r = 0; r < 2; r++) {
		say(r, "Rank 2 is stopped.");
		event_of(r, HAD_FAILURE)->failed = 0;
	}
	event_of(3, HAD_SHRINK)->at_ns = LATER + 9;
	expect(0, "");
}

static void test_dead_member(void **state)
{
	write_death();
	for (int r = 0; r < RANKS; r++)
		if (r != VICTIM)
			event_of(r, HAD_SHRINK)->members = 0xf;
	expect(1, "rank 2 has never asked");
}

static void test_refused(void **state)
{
	write_death();
	event_of(1, HAD_SHRINK)->status = TUTTI_ERR_TIMEOUT;
	expect(1, "enough are well");
	/* A rank that was aborted while it asked is told so, and nobody else is. */
	for (int who = 0; who < 2; who++) {
		write_death();
		truth.aborter = 1u << 1;
		truth.aborted_ns = INJECTED_NS;
		event_of(who, HAD_SHRINK)->status = TUTTI_ERR_ABORTED;
		judge(&verdict, board, &truth);
		assert_int_equal(strstr(verdict.text, "aborted") == NULL, who == 1);
	}
	/* One of two cannot know. */
	write_death();
	truth.dead_ns[VICTIM] = 0;
	truth.silent_ns[0] = truth.silent_ns[1] = truth.silent_ns[VICTIM] = INJECTED_NS;
	say_lost();
	event_of(3, HAD_SHRINK)->status = TUTTI_ERR_TIMEOUT;
	for (int r = 0; r < 2; r++)
		event_of(r, HAD_SHRINK)->status = TUTTI_ERR_TIMEOUT;
	expect(0, "");
}

/* Ranks other than the victim agree that rank 3 has failed. */
static void write_verdicts(void)
{
	uint32_t flag = UINT32_MAX;

	write_death();
	for (int r = 0; r < RANKS; r++)
		if (r != VICTIM)
			flag &= write_event(r, BEGAN_AGREE, TUTTI_OK, LATER)->flag =
				~(1u << r) & ~(r == 3 ? 1u << 11 : 0);
	for (int r = 0; r < RANKS; r++)
		if (r != VICTIM)
			write_event(r, HAD_AGREE, TUTTI_ERR_PEER, LATER)->flag = flag;
}

static void test_verdicts(void **state)
{
	write_verdicts();
	expect(0, "");
	write_verdicts();
	event_of(1, HAD_AGREE)->flag |= 1u << 11;
	expect(1, "but those who took part said");
	write_verdicts();
	event_of(1, HAD_AGREE)->status = TUTTI_OK;
	expect(1, "took part, and it says");
	write_verdicts();
	event_of(0, BEGAN_AGREE)->flag = event_of(0, HAD_AGREE)->flag |= 1u << 3;
	expect(1, "was told");
}

/* ---- messages and seeds --------------------------------------------------------------------- */

static void test_words(void **state)
{
	struct claim c[CLAIMS_MOST];

	assert_int_equal(words_read("ranks 1, 3 and 5 to 7 are missing; rank 9 has failed", c), 6);
	assert_int_equal(c[4].rank, 7);
	assert_int_equal(c[5].kind, CLAIM_FAILED);
	assert_int_equal(words_read("the connection to rank 0 was lost (has it died?)", c), 1);
	assert_int_equal(c[0].kind, CLAIM_GONE);
	assert_int_equal(words_read("Rank 12 (process 34 on (a) box) is silent: it", c), 1);
	assert_int_equal(c[0].pid, 34);
	assert_int_equal(words_read("thanks to all ranks", c), 0);
	assert_true(words_misplace("Rank 3 was in broadcast #1", 3, "reduce"));
	assert_false(words_misplace("Rank 3 was in broadcast #1", 3, "broadcast"));
	assert_false(words_misplace("Rank 3 was in broadcast #1", 2, "reduce"));
}

static void test_seeds(void **state)
{
	int kinds[KINDS] = {0}, points[POINTS] = {0}, ways[WAYS] = {0};

	for (uint64_t seed = 1; seed <= 2000; seed++) {
		const struct wish any = {-1, -1, -1, -1};
		struct scenario a, b;
		scenario_draw(&a, seed, &any);
		scenario_draw(&b, seed, &any);
		assert_memory_equal(&a, &b, sizeof a);
		const struct fault *f = scenario_fault(&a);
		uint32_t all = (1u << scenario_seats(&a)) - 1, gone = f->victims;
		if (a.fault_count > 1)
			gone |= a.faults[0].victims;
		assert_true(a.ranks >= (f->kind == KIND_LATE ? 2 : 3) && a.ranks <= RANKS_MOST);
		assert_true((gone & ~all) == 0);
		if (f->kind == KIND_KILL || is_long_stop(f->kind))
			assert_true(f->victims != 0 && gone != all);
		kinds[f->kind]++;
		points[f->point]++;
		ways[a.way]++;
	}
	for (int i = 0; i < KINDS; i++)
		assert_true(kinds[i] > 30);
	for (int i = 0; i < POINTS; i++)
		assert_true(points[i] > 100);
	for (int i = 0; i < WAYS; i++)
		assert_true(i >= WAY_VERBS ? ways[i] == 0 : ways[i] > 100);
}

/* No seed draws them by itself; asked for, they have the faults of processes and of sockets. */
static void test_fabrics(void **state)
{
	for (int way = WAY_VERBS; way <= WAY_UCX; way++) {
		int kinds[KINDS] = {0};
		for (uint64_t seed = 1; seed <= 1000; seed++) {
			struct scenario s;
			scenario_draw(&s, seed, &(struct wish){way, -1, -1, -1});
			assert_int_equal(s.way, way);
			assert_true(s.hosts == 1 && !(way == WAY_UCX && s.is_summed));
			kinds[scenario_fault(&s)->kind]++;
		}
		for (int i = 0; i < KINDS; i++)
			assert_true(i >= KIND_LOSS && i <= KIND_VANISH ? kinds[i] == 0
								       : kinds[i] > 30);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right),
		cmocka_unit_test(test_nothing_had_happened),
		cmocka_unit_test(test_broken_connection),
		cmocka_unit_test(test_another_is_named),
		cmocka_unit_test(test_the_living_have_not_died),
		cmocka_unit_test(test_nobody_is_named),
		cmocka_unit_test(test_child_without_victim),
		cmocka_unit_test(test_another_process),
		cmocka_unit_test(test_another_call),
		cmocka_unit_test(test_another_status),
		cmocka_unit_test(test_living_rank_is_listed),
		cmocka_unit_test(test_numbers_of_a_child),
		cmocka_unit_test(test_failure_of_a_child),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_sides),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_left_behind),
		cmocka_unit_test(test_two_groups),
		cmocka_unit_test(test_dead_member),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_verdicts),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_seeds),
		cmocka_unit_test(test_fabrics),
	};

	board = board_open();
	return board ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
