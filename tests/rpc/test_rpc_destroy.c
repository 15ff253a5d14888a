/* What would break: a tutti_rpc_destroy that waits for ever, without a word, for a function of the
 * program's that does not return, or a reply that nobody ends; or that frees what these use later.
 */
/* slow: 12 s */
#include "tests/rpc/rpc_ranks.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/limit.h"
#include "tests/unit.h"

enum kind { HELD, RUNS, RUNS_SHORT, DONE, RELEASE, DIED };

static struct scene {
	enum kind kind;
	bool aborts;
	const char *says; /* destroy, on stderr, of what it waited for */
} scene;

static struct rpc_rank all[RANKS_MAX];
static atomic_int begun, is_open, returned;

static atomic_bool has_no_timeout;
static atomic_int shutdown_ms;

tutti_status __real_tutti_rpc_shutdown(tutti_rpc *rpc, int timeout_ms);
tutti_status __wrap_tutti_rpc_shutdown(tutti_rpc *rpc, int timeout_ms);

/* Of an rpc without a timeout: notes what destroy has asked for, and waits less. */
tutti_status __wrap_tutti_rpc_shutdown(tutti_rpc *rpc, int timeout_ms)
{
	if (!atomic_load(&has_no_timeout))
		return __real_tutti_rpc_shutdown(rpc, timeout_ms);
	atomic_store(&shutdown_ms, timeout_ms);
	return __real_tutti_rpc_shutdown(rpc, 50);
}

/* Of whichever function: until the rpc has been destroyed. */
static void block(void)
{
	atomic_fetch_add(&begun, 1);
	while (!atomic_load(&is_open))
		poll(NULL, 0, 1);
	atomic_fetch_add(&returned, 1);
}

static void blocks_release(void *arg)
{
	(void)arg;
	block();
}

static void blocks_done(void *arg, tutti_status status)
{
	(void)arg;
	(void)status;
	block();
}

static void blocks_died(void *arg, int rank)
{
	(void)arg;
	(void)rank;
	block();
}

static tutti_status stuck(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	static const uint8_t bytes[300];
	const tutti_rpc_piece piece = {bytes, sizeof bytes};
	struct rpc_rank *r = arg;

	(void)request;
	switch (scene.kind) {
	case HELD:
		r->kept = reply;
		atomic_fetch_add(&begun, 1);
		return TUTTI_IN_PROGRESS;
	case RUNS:
	case RUNS_SHORT:
		block();
		return tutti_rpc_reply_copy(reply, bytes, sizeof bytes);
	case RELEASE:
		return tutti_rpc_reply_pieces(reply, &piece, 1, blocks_release, NULL);
	default:
		return TUTTI_OK;
	}
}

/* Leaves when the function has begun. */
static void call_stuck(struct rpc_rank *r)
{
	const tutti_rpc_options options = {.timeout_ms = -1};
	tutti_rpc_future *future;

	RPC_OK(r, tutti_rpc_call_async(r->rpc, 1, "stuck", NULL, 0, NULL, &options, &future));
	rpc_until(r, &begun, 1);
	tutti_rpc_release(&future);
}

/* Ends what was left behind by destroy: safely, though nobody hears it. */
static void return_late(struct rpc_rank *r)
{
	static const uint8_t bytes[300];
	const tutti_rpc_piece piece = {bytes, sizeof bytes};

	atomic_store(&is_open, 1);
	if (scene.kind == HELD) {
		RPC_OK(r, tutti_rpc_reply_pieces(r->kept, &piece, 1, blocks_release, NULL));
		RPC_TRUE(r, tutti_rpc_reply_is_cancelled(r->kept));
		tutti_rpc_reply_end(r->kept, TUTTI_OK);
	}
	rpc_until(r, &returned, 1);
}

static void expect_held(struct rpc_rank *r)
{
	tutti_status status;

	do /* its thread may not have returned yet */
		status = tutti_rpc_shutdown(r->rpc, 50);
	while (strstr(tutti_comm_error(NULL), "rank 0, runs"));
	rpc_expect_error(r, status, TUTTI_ERR_TIMEOUT,
			 "serves 1: 'stuck', called by rank 0, is held");
}

static void leaves(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	const tutti_rpc_options options = {.done = blocks_done};
	const tutti_rpc_function function = {.name = "stuck",
					     .fn = stuck,
					     .arg = r,
					     .flags = scene.kind == RUNS_SHORT ? TUTTI_RPC_SHORT
									       : 0};

	rpc_open(
		r, rank,
		&(tutti_rpc_config){.timeout_ms = 150,
				    .died = scene.kind == DIED && rank->rank ? blocks_died : NULL});
	RPC_OK(r, tutti_rpc_register(r->rpc, &function));
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	if (rank->rank == 0) {
		if (scene.kind != DONE && scene.kind != DIED)
			call_stuck(r);
		if (scene.kind == DIED)
			tutti_rpc_abort(r->rpc);
		tutti_rpc_destroy(r->rpc);
		return;
	}
	if (scene.kind == DONE)
		RPC_OK(r, tutti_rpc_call_async(r->rpc, 1, "echo", NULL, 0, NULL, &options, NULL));
	rpc_until(r, &begun, 1);
	if (scene.aborts)
		tutti_rpc_abort(r->rpc);
	else if (scene.kind == HELD)
		expect_held(r);
	tutti_rpc_destroy(r->rpc);
	RPC_TRUE(r, !atomic_load(&returned));
	return_late(r);
}

/* ---- what is written to stderr ---- */

static int own_stderr, captured;

static int capture(void **state)
{
	own_stderr = dup(STDERR_FILENO);
	captured = memfd_create("stderr", 0);
	return dup2(captured, STDERR_FILENO) < 0;
}

/* Shows it after a failure. */
static int release(void **state)
{
	char text[4000];
	ssize_t n = pread(captured, text, sizeof text, 0);

	dup2(own_stderr, STDERR_FILENO);
	close(own_stderr);
	close(captured);
	return write(STDERR_FILENO, text, n > 0 ? (size_t)n : 0) < 0;
}

/* Since the last time. */
static const char *written(void)
{
	static char text[4000];
	ssize_t n = pread(captured, text, sizeof text - 1, 0);

	text[n > 0 ? n : 0] = 0;
	if (ftruncate(captured, 0) != 0 || lseek(captured, 0, SEEK_SET) != 0)
		abort();
	return text;
}

static void destroy_has_a_deadline(void **state)
{
	static const struct scene scenes[] = {
		{HELD, false,
		 "'stuck', called by rank 0, is held: tutti_rpc_reply_end was not called"},
		{HELD, true,
		 "'stuck', called by rank 0, is held: tutti_rpc_reply_end was not called"},
		{RUNS, false, "'stuck', called by rank 0, runs"},
		{RUNS, true, "'stuck', called by rank 0, runs"},
		{RUNS_SHORT, true, "'stuck', called by rank 0, runs"},
		{DONE, true, "a done, release or died function"},
		{RELEASE, true, "a done, release or died function"},
		{DIED, true, "a done, release or died function"},
	};

	for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
		scene = scenes[i];
		atomic_store(&begun, 0);
		atomic_store(&is_open, 0);
		atomic_store(&returned, 0);
		with_ranks(2, NULL, 1, leaves);
		const char *text = written();
		char start[200];
		snprintf(start, sizeof start,
			 "rank 1: tutti_rpc_destroy gave up waiting: %s. Left allocated: the rpc",
			 scene.says);
		const char *line = strstr(text, start);
		if (!line || strncmp(strchr(line, '\n') - 8, " threads", 8) != 0)
			fail_msg("scene %zu: no '%s' in stderr: %s", i, start, text);
	}
}

/* Rank 0 is in no shutdown. */
static void stays(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];

	rpc_open(r, rank, &(tutti_rpc_config){.timeout_ms = -1});
	if (rank->rank == 0)
		rpc_until(r, &returned, 1);
	tutti_rpc_destroy(r->rpc);
	atomic_fetch_add(&returned, 1);
}

static void shutdown_has_a_deadline(void **state)
{
	atomic_store(&returned, 0);
	atomic_store(&has_no_timeout, true);
	with_ranks(2, NULL, 1, stays);
	atomic_store(&has_no_timeout, false);
	assert_int_equal(atomic_load(&shutdown_ms), 60000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(destroy_has_a_deadline, capture, release),
		cmocka_unit_test_setup_teardown(shutdown_has_a_deadline, capture, release),
	};

	test_limit(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
