/* slow: 3 s */
/* Without this a watchdog could not get a thread out of tutti_comm_agree, _shrink and _grow, or
 * would, with the abort that had sent it there; and the others would wait for a rank that has given
 * up. Ranks are threads. */
#include "collectives/control/agreement.h"
#include "tests/limit.h"

#include <tutti/tutti.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS      3
#define TIMEOUT_MS 86400000 /* a test that needs it hangs */

enum kind { AGREE, SHRINK, GROW, KINDS };

struct rank {
	enum kind kind;
	tutti_comm *comm, *made;
	int flag;
	bool lacks_memory;
	tutti_status status;
	char error[512];
	atomic_int is_back;
	pthread_t thread;
};

static const struct way {
	const char *name, *window, *transports;
} ways[] = {
#ifdef RECOVERS_OVER_VERBS /* on the fake of tests/verbs/fake */
	{"verbs", "0", "verbs"},
#else
	{"window", "1", "shm,tcp"},
	{"shm", "0", "shm"},
	{"tcp", "0", "tcp"},
#endif
};

#define WAYS ((int)(sizeof ways / sizeof ways[0]))

static _Thread_local bool lacks_memory;

tutti_status __real_agreement_init(struct agreement *a, const struct agreement_config *config);
tutti_status __wrap_agreement_init(struct agreement *a, const struct agreement_config *config);

tutti_status __wrap_agreement_init(struct agreement *a, const struct agreement_config *config)
{
	if (!lacks_memory)
		return __real_agreement_init(a, config);
	memset(a, 0, sizeof *a);
	return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for a test");
}

static char place[200], notice[200];

static tutti_status recover(struct rank *r)
{
	const tutti_config config = {.rendezvous = place, .secret = "grow"};

	switch (r->kind) {
	case AGREE:
		return tutti_comm_agree(r->comm, &r->flag);
	case SHRINK:
		return tutti_comm_shrink(r->comm, &r->made);
	default:
		return tutti_comm_grow(r->comm, RANKS + 1, &config, &r->made);
	}
}

static void *be_rank(void *arg)
{
	struct rank *r = arg;

	lacks_memory = r->lacks_memory;
	r->status = recover(r);
	snprintf(r->error, sizeof r->error, "%s", tutti_comm_error(NULL));
	atomic_store(&r->is_back, 1);
	return NULL;
}

static void open_ranks(struct rank *ranks, const struct way *way, enum kind kind)
{
	const tutti_config config = {.transports = way->transports, .timeout_ms = TIMEOUT_MS};
	tutti_comm *comms[RANKS];

	setenv("TUTTI_WINDOW", way->window, 1);
	assert_int_equal(tutti_init_all(comms, RANKS, &config), TUTTI_OK);
	for (int r = 0; r < RANKS; r++)
		ranks[r] = (struct rank){.kind = kind, .comm = comms[r], .flag = 15 & ~(1 << r)};
}

static void start(struct rank *r)
{
	assert_int_equal(pthread_create(&r->thread, NULL, be_rank, r), 0);
}

static void join(struct rank *r)
{
	pthread_join(r->thread, NULL);
}

static void abort_until_joined(struct rank *r)
{
	while (!atomic_load(&r->is_back)) {
		assert_int_equal(tutti_comm_abort(r->comm), TUTTI_OK);
		poll(NULL, 0, 5);
	}
	join(r);
}

/* One that comes before the call has begun does not end it: so it is said until it does. */
static void abort_until_back(struct rank *r, const char *way)
{
	abort_until_joined(r);
	if (r->status != TUTTI_ERR_ABORTED || r->made)
		fail_msg("%s, kind %d: rank %d: %s: %s", way, (int)r->kind, tutti_rank(r->comm),
			 tutti_status_string(r->status), r->error);
}

static void close_ranks(struct rank *ranks)
{
	for (int r = 0; r < RANKS; r++) {
		tutti_comm_destroy(ranks[r].made);
		tutti_comm_destroy(ranks[r].comm);
	}
	unsetenv("TUTTI_WINDOW");
}

static void check_sum(struct rank *a, struct rank *b)
{
	int32_t one[2] = {1, 10};
	tutti_comm *comms[2] = {a->made, b->made};
	tutti_work *works[2];

	for (int r = 0; r < 2; r++) {
		tutti_call call = {.work = &works[r]};
		assert_int_equal(tutti_size(comms[r]), 2);
		assert_int_equal(tutti_all_reduce(&one[r], &one[r], 1, TUTTI_I32, TUTTI_SUM,
						  comms[r], &call),
				 TUTTI_OK);
	}
	for (int r = 0; r < 2; r++) {
		assert_int_equal(tutti_work_wait(&works[r], 0), TUTTI_OK);
		assert_int_equal(one[r], 11);
	}
}

/* Rank 2 is waited for, and one of those who wait is told to stop. It counts as gone for the
 * others: these come to their end without it once rank 2 has come. */
static void abort_one(const struct way *way, enum kind kind, int given_up)
{
	struct rank ranks[RANKS], *other = &ranks[!given_up], *late = &ranks[2];

	open_ranks(ranks, way, kind);
	start(&ranks[0]);
	start(&ranks[1]);
	abort_until_back(&ranks[given_up], way->name);
	start(late);
	if (kind == GROW) /* nobody new ever comes */
		abort_until_back(other, way->name);
	else
		join(other);
	if (kind == GROW)
		abort_until_back(late, way->name);
	else
		join(late);
	if (kind == AGREE) {
		/* A rank that has gone may have said all that it had to say. */
		bool is_counted = other->status == TUTTI_OK;
		assert_true(is_counted || other->status == TUTTI_ERR_PEER);
		assert_int_equal(late->status, other->status);
		assert_int_equal(other->flag, is_counted ? 8 : 8 | 1 << given_up);
		assert_int_equal(late->flag, other->flag);
	} else if (kind == SHRINK) {
		assert_int_equal(other->status, TUTTI_OK);
		assert_int_equal(late->status, TUTTI_OK);
		check_sum(other, late);
	}
	close_ranks(ranks);
}

static void test_one_of_those_who_wait(void **state)
{
	for (int w = 0; w < WAYS; w++)
		for (int kind = 0; kind < KINDS; kind++)
			abort_one(&ways[w], (enum kind)kind, (w + kind) % 2);
}

/* The others need not wait for one that cannot take part: it has left. */
static void test_no_memory(void **state)
{
	for (int w = 0; w < WAYS; w++)
		for (int kind = 0; kind < GROW; kind++) {
			struct rank ranks[RANKS];
			open_ranks(ranks, &ways[w], (enum kind)kind);
			ranks[w].lacks_memory = true;
			for (int r = 0; r < RANKS; r++)
				start(&ranks[r]);
			for (int r = 0; r < RANKS; r++)
				join(&ranks[r]);
			for (int r = 0; r < RANKS; r++)
				assert_int_equal(ranks[r].status, r == w          ? TUTTI_ERR_MEMORY
								  : kind == AGREE ? TUTTI_ERR_PEER
										  : TUTTI_OK);
			close_ranks(ranks);
		}
}

/* They are at the place where new ranks are to come, or on their way there: who was there when
 * another left has heard of that, and ends by itself. The lowest serves them. */
static void test_in_the_meeting_of_a_job_that_grows(void **state)
{
	for (int w = 0; w < WAYS; w++)
		for (int given_up = 0; given_up < 2; given_up++) {
			struct rank ranks[RANKS];
			open_ranks(ranks, &ways[w], GROW);
			for (int r = 0; r < RANKS; r++)
				start(&ranks[r]);
			/* Rank 0 says there where it serves. */
			while (access(notice, F_OK) != 0)
				poll(NULL, 0, 1);
			abort_until_back(&ranks[given_up], ways[w].name);
			for (int r = 0; r < RANKS; r++) {
				if (r == given_up)
					continue;
				abort_until_joined(&ranks[r]);
				assert_true(ranks[r].status == TUTTI_ERR_PEER ||
					    ranks[r].status == TUTTI_ERR_ABORTED);
			}
			assert_int_not_equal(access(notice, F_OK), 0);
			close_ranks(ranks);
		}
}

static void test_aborts_of_before(void **state)
{
	for (int w = 0; w < WAYS; w++)
		for (int kind = 0; kind < GROW; kind++) {
			struct rank ranks[RANKS];
			open_ranks(ranks, &ways[w], (enum kind)kind);
			for (int r = 0; r < RANKS; r++)
				assert_int_equal(tutti_comm_abort(ranks[r].comm), TUTTI_OK);
			for (int r = 0; r < RANKS; r++)
				start(&ranks[r]);
			for (int r = 0; r < RANKS; r++) {
				join(&ranks[r]);
				assert_int_equal(ranks[r].status, TUTTI_OK);
				if (kind == AGREE)
					assert_int_equal(ranks[r].flag, 8);
			}
			close_ranks(ranks);
		}
}

static int find_place(void **state)
{
	const char *folder = getenv("TMPDIR");

	folder = folder ? folder : "/tmp";
	snprintf(place, sizeof place, "file://%.150s/tutti_abort_%d", folder, (int)getpid());
	snprintf(notice, sizeof notice, "%s.grow", place + sizeof "file://" - 1);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_of_those_who_wait),
		cmocka_unit_test(test_in_the_meeting_of_a_job_that_grows),
		cmocka_unit_test(test_aborts_of_before),
		cmocka_unit_test(test_no_memory),
	};

	test_limit(400); /* a hang ends here */
	return cmocka_run_group_tests(tests, find_place, NULL);
}
