/* Would break: a rank says that its line is there before what belongs into it is. What it sends
 * lies where nobody may read: in the fault, which comes while the payload is written, nothing may
 * have been posted. One thread plays all ranks, so that no order of theirs is left to chance. */
#include "window_team.h"

#include "collectives/window/window_internal.h"
#include "core/status.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS 2

/* What the handler needs to know: whose call it is, and what its lines were. */
static struct watch {
	const struct window *window;
	int rank, faults, early;
	uint8_t *page;
	size_t bytes;
	uint64_t headers[WINDOW_LINES];
} watch;

static uint64_t header_of(uint32_t number)
{
	return atomic_load(&line_of(watch.window, number, watch.rank)->header);
}

static void look_and_let_read(int signal, siginfo_t *info, void *context)
{
	uint8_t *at = info->si_addr;

	(void)context;
	if (at < watch.page || at >= watch.page + watch.bytes || watch.faults++)
		_exit(128 + signal);
	for (uint32_t i = 0; i < WINDOW_LINES; i++)
		watch.early += header_of(i) != watch.headers[i];
	mprotect(watch.page, watch.bytes, PROT_READ | PROT_WRITE);
}

/* From here on a read of the page is a fault. */
static void watch_begin(const struct window *window, int rank)
{
	watch.window = window;
	watch.rank = rank;
	watch.faults = watch.early = 0;
	for (uint32_t i = 0; i < WINDOW_LINES; i++)
		watch.headers[i] = header_of(i);
	assert_int_equal(mprotect(watch.page, watch.bytes, PROT_NONE), 0);
}

/* Rank writer makes the call first; then all others, and all are done. */
static void post(struct window *const *windows, enum collective collective, size_t count,
		 int writer)
{
	struct call call = {collective, TUTTI_U8, TUTTI_SUM, writer, count, 1};
	struct window_run runs[RANKS];
	uint8_t ordinary[RANKS][RANKS * 1024] = {0}, out[RANKS][RANKS * 1024];
	bool moved;

	if (collective == COLL_REDUCE || collective == COLL_GATHER)
		call.root = !writer; /* the root has nothing to say to others */
	memset(watch.page, writer + 1, RANKS * count);
	watch_begin(windows[writer], writer);
	for (int i = 0; i < RANKS; i++) {
		int rank = (writer + i) % RANKS;
		struct call_args args = call_args_for(
			&call, rank == writer ? watch.page : ordinary[rank], out[rank]);
		window_begin(windows[rank], &runs[rank], &args);
		window_advance(windows[rank], &runs[rank], &moved);
	}
	for (int rank = 0; rank < RANKS; rank++)
		assert_int_equal(window_advance(windows[rank], &runs[rank], &moved), TUTTI_OK);
	if (watch.faults != 1 || watch.early)
		fail_msg("%s of %zu bytes: rank %d has looked at them %d times, and %d lines were "
			 "posted by then",
			 collective_name(collective), count, writer, watch.faults, watch.early);
}

/* Payloads that go into the line itself, its body, and beyond. */
static void test_payload_before_line(void **state)
{
	static const enum collective each[] = {
		COLL_ALL_REDUCE, COLL_REDUCE_SCATTER, COLL_ALL_GATHER, COLL_BROADCAST,
		COLL_REDUCE,     COLL_ALL_TO_ALL,     COLL_SCATTER,    COLL_GATHER};
	static const size_t counts[] = {1, LINE_PAYLOAD / RANKS, LINE_PAYLOAD + 1, 512};
	struct sigaction action = {.sa_sigaction = look_and_let_read, .sa_flags = SA_SIGINFO},
			 before;
	struct team team = {.size = RANKS};
	struct window *windows[RANKS];

	assert_int_equal(sigaction(SIGSEGV, &action, &before), 0); /* cmocka has one of its own */
	team_open(&team, windows);
	for (size_t c = 0; c < sizeof each / sizeof *each; c++)
		for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
			for (int writer = 0; writer < RANKS; writer++)
				post(windows, each[c], counts[i], writer);
	team_close(windows, RANKS);
	sigaction(SIGSEGV, &before, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_payload_before_line),
	};
	watch.bytes = (size_t)sysconf(_SC_PAGESIZE);
	watch.page =
		mmap(NULL, watch.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (watch.page == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
