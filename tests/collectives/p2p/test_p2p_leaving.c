/* slow: 2 s */
/* Without this a rank that receives from anybody could wait for its deadline though all others have
 * left, or give up while one of them could still send. Ranks as threads, over every way. */
#include <tutti/tutti.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

#define RANKS_MAX 4
#define STILL_MS  350 /* longer than a broken connection waits for an explanation */

static const char *const ways[] = {"shm", "tcp", NULL}; /* NULL: a window, and shm */

/* How the others leave and how rank 0 waits. */
struct leaving {
	const char *transports;
	int size;
	bool spoke;    /* they have sent something before, and it was received           */
	bool is_async; /* the recv is posted before they leave; else it may come later   */
};

static tutti_comm *comms[RANKS_MAX];

static const char *text_of(const struct leaving *c)
{
	static char text[100];
	snprintf(text, sizeof text, "%d ranks over %s, the others leave %s, recv is %s", c->size,
		 c->transports ? c->transports : "a window", c->spoke ? "after a word" : "silently",
		 c->is_async ? "asynchronous" : "blocking");
	return text;
}

static void open_ranks(const struct leaving *c)
{
	tutti_config config = {.transports = c->transports, .timeout_ms = 60000};
	int32_t word = 7, got = 0;

	if (tutti_init_all(comms, c->size, &config) != TUTTI_OK)
		fail_msg("%s: init: %s", text_of(c), tutti_comm_error(NULL));
	for (int r = 1; r < c->size && c->spoke; r++)
		assert_int_equal(tutti_send(&word, 1, TUTTI_I32, 0, comms[r], NULL), TUTTI_OK);
	for (int r = 1; r < c->size && c->spoke; r++)
		assert_int_equal(tutti_recv(&got, 1, TUTTI_I32, TUTTI_ANY, comms[0], NULL),
				 TUTTI_OK);
}

static void close_ranks(int from, int to)
{
	for (int r = from; r < to; r++) {
		tutti_comm_destroy(comms[r]);
		comms[r] = NULL;
	}
}

static void *others_leave(void *arg)
{
	close_ranks(1, ((struct leaving *)arg)->size);
	return NULL;
}

static tutti_status receive_in_vain(struct leaving *c)
{
	tutti_work *work = NULL;
	tutti_call call = {.work = &work};
	int32_t got;
	pthread_t thread;

	if (c->is_async)
		assert_int_equal(tutti_recv(&got, 1, TUTTI_I32, TUTTI_ANY, comms[0], &call),
				 TUTTI_OK);
	assert_int_equal(pthread_create(&thread, NULL, others_leave, c), 0);
	tutti_status status = c->is_async
				      ? tutti_work_wait(&work, 0)
				      : tutti_recv(&got, 1, TUTTI_I32, TUTTI_ANY, comms[0], NULL);
	pthread_join(thread, NULL);
	return status;
}

static void nobody_is_left(struct leaving *c)
{
	static const char *const names[] = {"", "", "rank 1 ", "", "ranks 1 to 3 "};
	open_ranks(c);
	tutti_status status = receive_in_vain(c);
	const char *why = tutti_comm_error(comms[0]);

	if (status != TUTTI_ERR_PEER)
		fail_msg("%s: status %d: %s", text_of(c), (int)status, why);
	if (!strstr(why, "no rank is left that could send") || !strstr(why, names[c->size]))
		fail_msg("%s: does not say who has left: %s", text_of(c), why);
	/* A rank that has spoken says goodbye. */
	if (c->spoke && !strstr(why, " left the communicator (tutti_comm_destroy)"))
		fail_msg("%s: does not say how: %s", text_of(c), why);
	close_ranks(0, 1);
}

static void test_nobody_is_left(void **state)
{
	for (int w = 0; w < 3; w++)
		for (int size = 2; size <= RANKS_MAX; size += 2)
			for (int k = 0; k < 4; k++)
				nobody_is_left(&(struct leaving){ways[w], size, k & 1, k & 2});
}

/* All but the last leave: the recv goes on, and gets what the last one sends. */
static void one_is_left(struct leaving *c)
{
	tutti_work *work = NULL;
	int source = -1;
	tutti_call call = {.work = &work, .source = &source};
	int32_t got = 0, word = 11;

	open_ranks(c);
	assert_int_equal(tutti_recv(&got, 1, TUTTI_I32, TUTTI_ANY, comms[0], &call), TUTTI_OK);
	close_ranks(1, c->size - 1);
	tutti_status status = tutti_work_wait(&work, STILL_MS);
	if (status != TUTTI_IN_PROGRESS)
		fail_msg("%s, but one: status %d: %s", text_of(c), (int)status,
			 tutti_comm_error(comms[0]));
	assert_int_equal(tutti_send(&word, 1, TUTTI_I32, 0, comms[c->size - 1], NULL), TUTTI_OK);
	assert_int_equal(tutti_work_wait(&work, 0), TUTTI_OK);
	assert_int_equal(got, word);
	assert_int_equal(source, c->size - 1);
	close_ranks(c->size - 1, c->size);
	close_ranks(0, 1);
}

static void test_one_is_left(void **state)
{
	for (int w = 0; w < 3; w++)
		for (int spoke = 0; spoke < 2; spoke++)
			one_is_left(&(struct leaving){ways[w], 3 + spoke, spoke, true});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_is_left),
		cmocka_unit_test(test_one_is_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
