/* Would break: a rank whose process may open too few files lets all ranks wait for their deadline,
 * and nobody says why. */
#include "core/clock.h"
#include "transport/registry.h"
#include "tests/limit.h"

#include <tutti/tutti.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS      3
#define SHORT      1 /* the rank that lacks descriptors        */
#define FEWEST     4 /* with less it does not come to the meeting */
#define MOST       40
#define TIMEOUT_MS 86400000 /* a rank that needs it hangs ... */
#define HANGS_S    140      /* ... and ends here          */

static struct told {
	atomic_int serves;
	char url[512];
	struct {
		tutti_status status;
		char error[600];
	} ranks[RANKS];
} * shared;

/* How ranks are connected; transports is NULL for all of them. */
struct way {
	const char *name, *window, *transports;
	int nodes;
};

static void limit_files(int n)
{
	int lowest = dup(0);
	struct rlimit limit;

	close(lowest);
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = (rlim_t)(lowest + n);
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* Every pair meets, so that every connection there may be is made. */
static tutti_status call_everybody(tutti_comm *comm)
{
	float x[RANKS] = {0}, y[RANKS];
	tutti_status status = tutti_barrier(comm, NULL);

	if (status == TUTTI_OK)
		status = tutti_all_to_all(x, y, 1, TUTTI_F32, comm, NULL);
	if (status == TUTTI_OK)
		status = tutti_all_reduce(x, x, RANKS, TUTTI_F32, TUTTI_SUM, comm, NULL);
	return status;
}

static void be_rank(int rank, const struct way *way, int n)
{
	char node[16];
	tutti_comm *comm = NULL;
	tutti_config config = {.rank = rank,
			       .world_size = RANKS,
			       .rendezvous = shared->url,
			       .timeout_ms = TIMEOUT_MS};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	test_limit(HANGS_S);
	snprintf(node, sizeof node, "node%d", rank * way->nodes / RANKS);
	setenv("TUTTI_HOST_ID", node, 1);
	setenv("TUTTI_WINDOW", way->window, 1);
	if (way->transports)
		setenv("TUTTI_TRANSPORTS", way->transports, 1);
	if (rank == SHORT)
		limit_files(n);
	tutti_status status = tutti_init(&comm, &config);
	if (status == TUTTI_OK)
		status = call_everybody(comm);
	shared->ranks[rank].status = status;
	snprintf(shared->ranks[rank].error, sizeof shared->ranks[rank].error, "%s",
		 tutti_comm_error(NULL));
	tutti_comm_destroy(comm);
	_exit(0);
}

static pid_t serve(void)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		test_limit(200);
		tutti_status status = tutti_rendezvous_open(shared->url, sizeof shared->url);
		atomic_store(&shared->serves, status == TUTTI_OK ? 1 : -1);
		for (;;)
			pause();
	}
	uint64_t deadline_ns = deadline_after_ms(60000);
	while (atomic_load(&shared->serves) == 0 && clock_now_ns() < deadline_ns)
		usleep(1000);
	assert_int_equal(atomic_load(&shared->serves), 1);
	return pid;
}

static void run(const struct way *way, int n)
{
	pid_t pids[RANKS], server;

	*shared = (struct told){0};
	server = serve();
	for (int r = 0; r < RANKS; r++) {
		pids[r] = fork();
		assert_true(pids[r] >= 0);
		if (pids[r] == 0)
			be_rank(r, way, n);
	}
	for (int r = 0; r < RANKS; r++) {
		int status;
		while (waitpid(pids[r], &status, 0) < 0 && errno == EINTR)
			;
		assert_int_equal(status, 0);
	}
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
}

static bool says_why(const char *error)
{
	return strstr(error, "ulimit") || strstr(error, "Too many open files");
}

static void look(const struct way *way, int n)
{
	tutti_status first = shared->ranks[SHORT].status;

	for (int r = 0; r < RANKS; r++) {
		bool is_like = (shared->ranks[r].status == TUTTI_OK) == (first == TUTTI_OK);
		bool says = first == TUTTI_OK || says_why(shared->ranks[r].error);
		if (!is_like || !says)
			fail_msg("%s, %d files: rank %d: %s: %s (rank %d: %s)", way->name, n, r,
				 tutti_status_string(shared->ranks[r].status),
				 shared->ranks[r].error, SHORT, shared->ranks[SHORT].error);
	}
}

/* Up to a number that is enough. */
static void try_numbers(const struct way *way)
{
	int enough = 0;

	for (int n = FEWEST; n <= MOST && enough < 3; n++) {
		run(way, n);
		look(way, n);
		enough = shared->ranks[SHORT].status == TUTTI_OK ? enough + 1 : 0;
	}
	assert_int_equal(enough, 3);
}

static void test_window(void **state)
{
	try_numbers(&(struct way){"window", "1", NULL, 1});
	try_numbers(&(struct way){"two nodes", "1", NULL, 2});
}

/* A fabric without a device has no address. */
static bool works_here(const struct tutti_transport *transport)
{
	const struct tutti_endpoint_config config = {.size = 2, .host_id = "descriptors"};
	struct tutti_endpoint *endpoint;

	assert_int_equal(transport->open(&endpoint, &config), TUTTI_OK);
	bool works = endpoint->address_bytes > 0;
	transport->destroy(endpoint);
	return works;
}

static void test_transports(void **state)
{
	const struct tutti_transport *list[TRANSPORTS_MAX];
	int count;

	assert_int_equal(transport_list(list, &count, NULL, NULL), TUTTI_OK);
	for (int i = 0; i < count; i++)
		if (works_here(list[i]))
			try_numbers(&(struct way){list[i]->name, "0", list[i]->name, 1});
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_window),
					   cmocka_unit_test(test_transports)};
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	puts("sanitizers need descriptors of their own");
	return 77;
#endif
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	return shared == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
