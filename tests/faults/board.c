/* See board.h. */
#include "tests/faults/board.h"

#include "core/clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const char *const happenings[] = {"init",    "failure", "steps",     "asks",
					 "verdict", "shrinks", "survivors", "grows",
					 "grown",   "abort",   "leaves"};

struct board *board_open(void)
{
	void *memory = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

void board_clear(struct board *board)
{
	memset(board, 0, sizeof *board);
}

struct event *board_note(struct seat *seat, enum happening what)
{
	int at = atomic_fetch_add(&seat->count, 1);

	if (at >= EVENTS_MOST)
		return NULL;
	struct event *e = &seat->events[at];
	*e = (struct event){.what = what,
			    .generation = atomic_load(&seat->generation),
			    .at_ns = clock_now_ns()};
	return e;
}

int board_count(const struct seat *seat)
{
	int count = atomic_load((atomic_int *)(uintptr_t)&seat->count);

	return count < EVENTS_MOST ? count : EVENTS_MOST;
}

static void show_event(const struct event *e, int rank, uint64_t since_ns)
{
	printf("  %9.3f ms  rank %d %-9s generation %d, segment %d: %s",
	       (double)(int64_t)(e->at_ns - since_ns) * 1e-6, rank, happenings[e->what],
	       e->generation, e->segment, tutti_status_string(e->status));
	if (e->what == HAD_SHRINK || e->what == HAD_GROW)
		printf(", members %#x", e->members);
	if (e->what == BEGAN_AGREE || e->what == HAD_AGREE)
		printf(", flag %#x", e->flag);
	if (e->failed)
		printf(", failed %#x", e->failed);
	if (e->message[0])
		printf(", in %s: %s", e->call[0] ? e->call : "several", e->message);
	printf("\n");
}

void board_show(const struct board *board, int ranks, uint64_t since_ns)
{
	for (int r = 0; r < ranks; r++) {
		const struct seat *seat = &board->seats[r];
		for (int i = 0; i < board_count(seat); i++)
			if (seat->events[i].what != HAD_STEPS)
				show_event(&seat->events[i], r, since_ns);
	}
}
