/* Ranks as threads and as processes. */
#include "tests/limit.h"
#include "tests/train/ranks.h"

#include "train/base/base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

enum { MAX_RANKS = 16, TIMEOUT_MS = 30000 };

static atomic_int failures;

int checks_failed(void)
{
	return atomic_load(&failures);
}

void check_failed(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", file, line, what,
		tutti_comm_error(NULL));
	atomic_fetch_add(&failures, 1);
}

void check_error(const char *file, int line, tutti_status got, tutti_status status,
		 const char *text)
{
	const char *message = tutti_comm_error(NULL);

	if (got == status && strstr(message, text))
		return;
	fprintf(stderr, "%s:%d: got '%s' and '%s'; expected '%s' and '%s'\n", file, line,
		tutti_status_string(got), message, tutti_status_string(status), text);
	atomic_fetch_add(&failures, 1);
}

struct rank {
	pthread_t thread;
	tutti_comm *comm;
	rank_fn fn;
	void *arg;
};

static void *thread_main(void *arg)
{
	struct rank *rank = arg;
	rank->fn(rank->comm, rank->arg);
	return NULL;
}

int ranks_as_threads(int n, rank_fn fn, void *arg)
{
	return ranks_with_timeout(n, TIMEOUT_MS, fn, arg);
}

void ranks_test(void **state)
{
	const struct ranks_test *test = *state;

	for (int n = test->fewest; n <= test->most; n++)
		assert_int_equal(ranks_as_threads(n, test->fn, NULL), 0);
}

int ranks_with_timeout(int n, int timeout_ms, rank_fn fn, void *arg)
{
	tutti_config config = {.timeout_ms = timeout_ms};
	tutti_comm *comms[MAX_RANKS];
	struct rank ranks[MAX_RANKS];
	int before = atomic_load(&failures);

	if (tutti_init_all(comms, n, &config) != TUTTI_OK) {
		check_failed(__FILE__, __LINE__, "tutti_init_all");
		return 1;
	}
	for (int r = 0; r < n; r++) {
		ranks[r] = (struct rank){.comm = comms[r], .fn = fn, .arg = arg};
		if (pthread_create(&ranks[r].thread, NULL, thread_main, &ranks[r]) != 0)
			abort();
	}
	for (int r = 0; r < n; r++)
		pthread_join(ranks[r].thread, NULL);
	for (int r = 0; r < n; r++)
		tutti_comm_destroy(comms[r]);
	return atomic_load(&failures) - before;
}

static int process_main(const tutti_config *config, rank_fn fn, void *arg)
{
	tutti_comm *comm;

	test_limit(100);
	if (tutti_init(&comm, config) != TUTTI_OK) {
		check_failed(__FILE__, __LINE__, "tutti_init");
		return 1;
	}
	fn(comm, arg);
	tutti_comm_destroy(comm);
	return atomic_load(&failures) != 0;
}

static void be_on_node(int node)
{
	char host[32];

	snprintf(host, sizeof host, "node %d", node);
	setenv("TUTTI_HOST_ID", host, 1);
}

int ranks_as_processes(int n, rank_fn fn, void *arg)
{
	return ranks_on_nodes(n, NULL, fn, arg);
}

int ranks_on_nodes(int n, const int *nodes, rank_fn fn, void *arg)
{
	char folder[] = "/tmp/tutti_train_XXXXXX", url[64], command[64];
	int failed = 0, state;

	if (!mkdtemp(folder))
		return 1;
	snprintf(url, sizeof url, "file://%s/join", folder);
	fflush(NULL);
	for (int r = 0; r < n; r++) {
		tutti_config config = {
			.rank = r, .world_size = n, .rendezvous = url, .timeout_ms = TIMEOUT_MS};
		pid_t pid = fork();
		if (pid < 0)
			abort();
		if (pid == 0 && nodes)
			be_on_node(nodes[r]);
		if (pid == 0)
			_exit(process_main(&config, fn, arg));
	}
	for (int r = 0; r < n; r++)
		failed += wait(&state) < 0 || !WIFEXITED(state) || WEXITSTATUS(state) != 0;
	snprintf(command, sizeof command, "rm -rf %s", folder);
	return failed + (system(command) != 0);
}

uint64_t collectives(const tutti_trainer *trainer)
{
	tutti_train_stats stats;

	CHECK(tutti_trainer_stats(trainer, &stats) == TUTTI_OK);
	return stats.collectives;
}

tutti_status unit_forward(tutti_trainer *trainer, int unit)
{
	TRY(tutti_forward_begin(trainer, unit));
	return tutti_forward_end(trainer, unit);
}

tutti_status unit_backward(tutti_trainer *trainer, int unit)
{
	TRY(tutti_backward_begin(trainer, unit));
	return tutti_backward_end(trainer, unit);
}

tutti_status units_forward(tutti_trainer *trainer, int units)
{
	for (int u = 0; u < units; u++)
		TRY(unit_forward(trainer, u));
	return TUTTI_OK;
}

tutti_status units_backward(tutti_trainer *trainer, int units)
{
	for (int u = units - 1; u >= 0; u--)
		TRY(unit_backward(trainer, u));
	return TUTTI_OK;
}

tutti_status units_micro_batch(tutti_trainer *trainer, tutti_pass pass, double items, int units)
{
	TRY(tutti_micro_batch(trainer, pass, items, NULL));
	TRY(units_forward(trainer, units));
	return pass == TUTTI_PASS_EVAL ? TUTTI_OK : units_backward(trainer, units);
}
