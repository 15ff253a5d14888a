/* The run of COLL_MEM_ALLOC: the leader makes the memory and passes it to the others; all map it,
 * and use it when all could. */
#include "collectives/window/allocations.h"

#include "collectives/window/doorbell.h"
#include "collectives/window/run_progress.h"
#include "core/shared_memory.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/net.h"

#include <stdio.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static const struct window_path path; /* at the end */

#define PASS_TIMEOUT_NS 1000000000u

/* Every rank computes the same. */
static uint64_t next_id(struct window *w)
{
	uint64_t h = w->memory.comm_id[0] ^
		     (w->memory.comm_id[1] + ++w->memory.made * 0x9e3779b97f4a7c15u);

	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	h ^= h >> 31;
	return h ? h : 1;
}

void memory_begin(struct window *w, struct window_run *run)
{
	run->path = &path;
	run->pieces = 1; /* one generation, of a slot that stays empty */
	run->steps = 2;
	run->memory_id = next_id(w);
}

static tutti_status check_room(const struct window *w, const struct window_run *run)
{
	struct sysinfo info;

	if (sysinfo(&info) == 0 &&
	    allocation_bytes(w, run->args.count) / info.mem_unit > info.totalram)
		return fail(TUTTI_ERR_MEMORY,
			    "that is %zu bytes, more than the %llu of this machine: ask for less",
			    allocation_bytes(w, run->args.count),
			    (unsigned long long)info.totalram * info.mem_unit);
	return TUTTI_OK;
}

static tutti_status window_alloc_pass_on(struct window *w, const struct window_run *run, int fd)
{
	for (int rank = 1; w->memory.mail >= 0 && rank < w->size; rank++)
		TRY(net_send_fds(w->memory.mail, &run->memory_id, sizeof run->memory_id, &fd, 1,
				 clock_now_ns() + PASS_TIMEOUT_NS));
	return TUTTI_OK;
}

/* The leader's part. */
static tutti_status window_alloc_make(struct window *w, struct window_run *run, int *fd)
{
	TRY(check_room(w, run));
	TRY(shared_memory_create("tutti-memory", allocation_bytes(w, run->args.count), fd));
	return memory_take(w, run, *fd);
}

/* The leader sends it now. The memory of an earlier run that failed may lie before it. */
static tutti_status window_alloc_receive(struct window *w, struct window_run *run, int *fd)
{
	for (;;) {
		uint64_t id;
		TRY(net_recv_fds(w->memory.mail, &id, sizeof id, fd, 1,
				 clock_now_ns() + PASS_TIMEOUT_NS));
		if (id == run->memory_id)
			return TUTTI_OK;
		close(*fd);
	}
}

/* The others' part. A rank of the leader's process, or the second of another one, finds it mapped.
 */
static tutti_status window_alloc_take_memory(struct window *w, struct window_run *run)
{
	tutti_status status;
	int fd = -1;

	if (w->at.areas[0].memory_status != TUTTI_OK)
		return w->at.areas[0].memory_status;
	if (w->memory.mail >= 0)
		TRY(window_alloc_receive(w, run, &fd));
	status = memory_take(w, run, fd);
	if (fd >= 0)
		close(fd);
	return status;
}

static int rank_without(const struct window *w)
{
	int rank = 0;

	while (rank < w->size && w->at.areas[rank].memory_status == TUTTI_OK)
		rank++;
	return rank < w->size ? rank : -1;
}

void window_outcome_text(const struct window *w, const struct window_run *run, char *text,
			 size_t text_bytes)
{
	int rank = rank_without(w);

	snprintf(text, text_bytes,
		 "tutti_mem_alloc of %zu bytes on each of %d ranks: rank %d has failed: %.*s.",
		 run->args.count, w->size, rank, MEMORY_ERROR_BYTES - 1,
		 rank < 0 ? "" : w->at.areas[rank].memory_error);
}

/* All ranks decide alike: all have the memory, or none. */
static tutti_status outcome_of(struct window *w, struct window_run *run)
{
	char text[ERROR_BYTES];

	if (rank_without(w) < 0)
		return TUTTI_OK;
	memory_discard(run->memory_id);
	run->memory = NULL;
	window_outcome_text(w, run, text, sizeof text);
	return fail(TUTTI_ERR_MEMORY, "%s", text);
}

static bool of_leader(const struct window *w, const struct window_run *run, int rank)
{
	(void)w, (void)run;
	return rank == 0;
}

static struct need memory_need(const struct window *w, const struct window_run *run)
{
	if (run->step == 0)
		return (struct need){WORD_STAGED, w->generation + 1, of_leader};
	return (struct need){WORD_TAKEN, w->generation + 1, NULL};
}

/* All ranks are to know why. */
static void say_outcome(struct rank_area *area, tutti_status status)
{
	area->memory_status = status;
	if (status != TUTTI_OK)
		snprintf(area->memory_error, sizeof area->memory_error, "%s", last_error());
}

/* The others take it while it is sent: for a message to each of many ranks a socket has no room.
 * Where sending fails some rank gets none, and says so. */
static void window_alloc_lead(struct window *w, struct window_run *run)
{
	int fd = -1;
	tutti_status status = window_alloc_make(w, run, &fd);

	say_outcome(w->area, status);
	word_post(w, WORD_STAGED, w->generation + 1);
	if (status == TUTTI_OK && window_alloc_pass_on(w, run, fd) != TUTTI_OK)
		log_info("memory was not passed to all ranks: %s", last_error());
	if (fd >= 0)
		close(fd);
}

static tutti_status memory_step(struct window *w, struct window_run *run)
{
	if (run->step > 0) {
		run->outcome = outcome_of(w, run);
		return TUTTI_OK;
	}
	if (w->rank == 0) {
		window_alloc_lead(w, run);
	} else {
		say_outcome(w->area, window_alloc_take_memory(w, run));
		word_post(w, WORD_STAGED, w->generation + 1);
	}
	word_post(w, WORD_TAKEN, w->generation + 1);
	return TUTTI_OK;
}

static const struct window_path path = {"allocation", memory_need, memory_step};
