/* Breaks when memory that is refused in tutti_comm_shrink crashes a rank, makes it close what is
 * not its own, or lets the ranks disagree on whether they go on. The ranks are threads; some of
 * their requests are refused in turn, with LIMITS_ALL=1 every one. */
#include "core/clock.h"
#include "tests/limit.h"
#include "tests/limits/job.h"
#include "tests/limits/shim.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS      3
#define TIMEOUT_MS 1500  /* when ranks may wait and fail */
#define AMPLE_MS   30000 /* when nothing is refused, on any machine */
#define SAMPLES    4

struct survivor {
	tutti_comm *comm, *child;
	tutti_status status;
	char error[512];
	int size;
	double sum;
};

static uint64_t seed;

static void *shrink(void *arg)
{
	struct survivor *s = arg;
	double one = 1;

	s->status = tutti_comm_shrink(s->comm, &s->child);
	snprintf(s->error, sizeof s->error, "%s", tutti_comm_error(NULL));
	if (s->status == TUTTI_OK) {
		s->size = tutti_size(s->child);
		s->status =
			tutti_all_reduce(&one, &s->sum, 1, TUTTI_F64, TUTTI_SUM, s->child, NULL);
		snprintf(s->error, sizeof s->error, "%s", tutti_comm_error(s->child));
	}
	tutti_comm_destroy(s->child);
	return NULL;
}

/* For all ranks that went on together the sums are right. A rank that did not has a message. */
static void judge(const struct survivor *s, const char *what)
{
	for (int r = 0; r < RANKS; r++) {
		if (s[r].status == TUTTI_OK && s[r].sum != s[r].size)
			fail_msg("%s: rank %d has the sum %g of %d", what, r, s[r].sum, s[r].size);
		if (s[r].status != TUTTI_OK && !s[r].error[0])
			fail_msg("%s: rank %d has status %d and no message", what, r, s[r].status);
	}
}

/* Returns whether anything was refused. number -1: nothing is. */
static bool try(const char *transports, long number, long *requests)
{
	tutti_config config = {.transports = transports,
			       .timeout_ms = number < 0 ? AMPLE_MS : TIMEOUT_MS};
	struct survivor s[RANKS] = {{0}};
	tutti_comm *comms[RANKS];
	pthread_t threads[RANKS];
	int guard = open("/dev/null", O_RDONLY), files = job_open_files();
	char what[100];

	snprintf(what, sizeof what, "request %ld for memory, %s", number,
		 transports ? transports : "window");
	test_limit(60);
	assert_int_equal(tutti_init_all(comms, RANKS, &config), TUTTI_OK);
	tutti_comm_abort(comms[0]);
	long before = shim_calls(SHIM_MEMORY);
	if (number >= 0)
		shim_fail(SHIM_MEMORY, number, false);
	for (int r = 0; r < RANKS; r++) {
		s[r].comm = comms[r];
		assert_int_equal(__real_pthread_create(&threads[r], NULL, shrink, &s[r]), 0);
	}
	for (int r = 0; r < RANKS; r++)
		pthread_join(threads[r], NULL);
	bool was_refused = shim_stop();
	*requests = shim_calls(SHIM_MEMORY) - before;
	for (int r = 0; r < RANKS; r++)
		tutti_comm_destroy(comms[r]);
	judge(s, what);
	if (number < 0)
		for (int r = 0; r < RANKS; r++)
			assert_int_equal(s[r].status, TUTTI_OK);
	if (job_open_files() != files || fcntl(guard, F_GETFD) < 0)
		fail_msg("%s: %d descriptors, not %d", what, job_open_files(), files);
	close(guard);
	test_limit(0);
	return number >= 0 && was_refused;
}

static void refuse_in_turn(const char *transports)
{
	long requests, unused, refused = 0;

	assert_false(try(transports, -1, &requests));
	long stride = getenv("LIMITS_ALL") ? 1 : requests / SAMPLES + 1;
	for (long i = getenv("LIMITS_ALL") ? 0 : (long)(seed % (uint64_t)stride); i < requests;
	     i += stride)
		refused += try(transports, i, &unused);
	print_message("%s: of %ld requests for memory %ld were refused\n",
		      transports ? transports : "window", requests, refused);
	assert_true(refused > 0);
}

static void by_window(void **state)
{
	refuse_in_turn(NULL);
}

static void by_tcp(void **state)
{
	setenv("TUTTI_WINDOW", "0", 1);
	refuse_in_turn("tcp");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_window),
		cmocka_unit_test(by_tcp),
	};

	seed = getenv("TEST_SEED") ? strtoull(getenv("TEST_SEED"), NULL, 0) : clock_now_ns();
	printf("TEST_SEED=%" PRIu64 "\n", seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
