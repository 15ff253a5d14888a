/* Ranks that join, exchange some rounds and leave: as threads, or as processes. */
#ifndef TESTS_CORE_JOIN_RANKS_H
#define TESTS_CORE_JOIN_RANKS_H

#include "core/clock.h"
#include "core/net.h"
#include "core/status.h"
#include "core/join/rendezvous.h"
#include "tests/limit.h"
#include "tests/ports.h"
#include "tests/entries.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define LONG_MS 60000

struct rank_run {
	struct job job;
	struct env env;
	int joins, rounds, timeout_ms;
	size_t max_record;
	void (*between)(struct rank_run *run, struct rendezvous *r); /* after the join */
	void *arg;

	tutti_status status; /* of the last join or round */
	char error[ERROR_BYTES];
	int rounds_right; /* of the last join */
	uint8_t key[TUTTI_KEY_BYTES];
	uint64_t comm_id[2];
	pthread_t thread;
};

static inline bool ranks_wait_for_dir(const char *path, int count)
{
	uint64_t deadline_ns = deadline_after_ms(10000);

	while (entries_of(path) > count) {
		if (clock_now_ns() > deadline_ns)
			return false;
		net_pause(3, deadline_ns);
	}
	return true;
}

/* The exit code of a test whose tests failed so often, and which had so many descriptors before. */
static inline int ranks_end(int failed, int descriptors)
{
	if (ranks_wait_for_dir("/proc/self/fd", descriptors))
		return failed;
	fprintf(stderr, "descriptors were left behind\n");
	return failed + 1;
}

#define RANKS_PORTS_APART 25 /* the ports above may be probed */

static inline int ranks_free_port(void)
{
	static int used;

	for (;;) {
		int port = test_ports() + used, fd;
		used = (used + RANKS_PORTS_APART) %
		       (TEST_PORTS / RANKS_PORTS_APART * RANKS_PORTS_APART);
		if (net_listen(NULL, port, 1, &fd, NULL) != TUTTI_OK)
			continue; /* the server before may linger */
		close(fd);
		return port;
	}
}

static inline void ranks_prepare(struct rank_run *runs, int n, int port)
{
	memset(runs, 0, (size_t)n * sizeof *runs);
	for (int r = 0; r < n; r++) {
		struct rank_run *run = &runs[r];
		run->job = (struct job){.rank = r,
					.size = n,
					.local_rank = -1,
					.local_size = -1,
					.meeting = n == 1 ? JOB_ALONE : JOB_TCP,
					.port = port};
		strcpy(run->job.host, "127.0.0.1");
		strcpy(run->job.secret, "the secret of this test");
		run->env.timeout_ms = run->timeout_ms = LONG_MS;
		run->env.window_bytes = 1 << 20;
		run->joins = 1;
		run->rounds = 3;
		run->max_record = 100;
	}
}

/* A record whose length depends on the round and whose bytes depend on the rank too. */
static inline size_t ranks_record(const struct rank_run *run, int rank, int round, uint8_t *to)
{
	size_t bytes = round == 0 ? 0 : run->max_record - (size_t)(round % 7);

	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)((size_t)rank * 31 + (size_t)round * 7 + i * 13);
	return bytes;
}

static inline tutti_status ranks_round(struct rank_run *run, struct rendezvous *r, int round)
{
	size_t size = (size_t)run->job.size;
	uint8_t *mine = malloc(run->max_record), *all = malloc(size * run->max_record);
	size_t bytes = ranks_record(run, run->job.rank, round, mine);
	bool right = true;
	tutti_status status;

	memset(all, 0xee, size * run->max_record);
	status = rendezvous_all_gather(r, mine, bytes, all, deadline_after_ms(run->timeout_ms));
	for (int peer = 0; status == TUTTI_OK && peer < run->job.size; peer++) {
		ranks_record(run, peer, round, mine);
		right &= memcmp(mine, all + (size_t)peer * bytes, bytes) == 0;
	}
	run->rounds_right += status == TUTTI_OK && right;
	free(mine);
	free(all);
	return status;
}

static inline void *ranks_main(void *arg)
{
	struct rank_run *run = arg;
	struct rendezvous *r = NULL;

	for (int i = 0; i < run->joins && run->status == TUTTI_OK; i++) {
		uint64_t deadline_ns = deadline_after_ms(run->timeout_ms);
		run->rounds_right = 0;
		run->status = rendezvous_join(&r, &run->job, &run->env, deadline_ns);
		if (run->status != TUTTI_OK)
			break;
		rendezvous_identity(r, run->key, run->comm_id);
		if (run->between)
			run->between(run, r);
		for (int round = 0; round < run->rounds && run->status == TUTTI_OK; round++)
			run->status = ranks_round(run, r, round);
		/* Leaving must not lose the message. */
		rendezvous_leave(r, deadline_after_ms(run->timeout_ms));
	}
	if (run->status != TUTTI_OK)
		snprintf(run->error, sizeof run->error, "%s", last_error());
	return NULL;
}

static inline void ranks_run(struct rank_run *runs, int n)
{
	/* The last one first: rank 0 need not be there when the others come. */
	for (int r = n - 1; r >= 0; r--)
		assert_int_equal(pthread_create(&runs[r].thread, NULL, ranks_main, &runs[r]), 0);
	for (int r = 0; r < n; r++)
		pthread_join(runs[r].thread, NULL);
}

/* The process that is this rank; its status is 0 when all went well. */
static inline pid_t ranks_fork_one(struct rank_run *run)
{
	pid_t child = fork();

	if (child != 0)
		return child;
	test_limit(60);
	ranks_main(run);
	if (run->status != TUTTI_OK)
		fprintf(stderr, "rank %d: %s\n", run->job.rank, run->error);
	_exit(run->status != TUTTI_OK || run->rounds_right != run->rounds);
}

/* Every rank a process; all must end well. */
static inline void ranks_fork(struct rank_run *runs, int n)
{
	pid_t pids[64];

	for (int r = n - 1; r >= 0; r--)
		pids[r] = ranks_fork_one(&runs[r]);
	for (int r = 0; r < n; r++) {
		int status = -1;
		assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
		assert_int_equal(status, 0);
	}
}

static inline uint64_t ranks_later(void)
{
	return deadline_after_ms(LONG_MS);
}

/* A connection to the store at this port, which may not listen yet. */
static inline int ranks_call(int port)
{
	uint64_t deadline_ns = ranks_later();
	tutti_status status;
	int fd = -1;

	while ((status = net_try_connect("127.0.0.1", port, deadline_ns, &fd)) ==
		       TUTTI_IN_PROGRESS &&
	       clock_now_ns() < deadline_ns)
		net_pause(3, deadline_ns);
	assert_int_equal(status, TUTTI_OK);
	return fd;
}

static inline void ranks_expect(const struct rank_run *run, tutti_status status, const char *says)
{
	if (run->status != status || !strstr(run->error, says))
		fail_msg("rank %d: status %d \"%s\" instead of %d and \"%s\"", run->job.rank,
			 run->status, run->error, status, says);
	assert_null(strstr(run->error, "the secret of this test"));
}

static inline void ranks_expect_well(const struct rank_run *runs, int n)
{
	for (int r = 0; r < n; r++) {
		if (runs[r].status != TUTTI_OK)
			fail_msg("rank %d: %s", r, runs[r].error);
		assert_int_equal(runs[r].rounds_right, runs[r].rounds);
	}
}

static inline void ranks_start(struct rank_run *run)
{
	assert_int_equal(pthread_create(&run->thread, NULL, ranks_main, run), 0);
}

static inline void ranks_finish(struct rank_run *run)
{
	pthread_join(run->thread, NULL);
}

#endif
