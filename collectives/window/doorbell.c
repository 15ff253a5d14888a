/* Sleeping and waking: the futex of a thread that waits in window_drive, and the doorbell of one
 * that sleeps on descriptors. The doorbell is a socket whose name lies in the rank's area. A rank
 * makes its own when it first needs one, to sleep on it or to ring another. A rank that posts only
 * loads one word, head->sleepers, while no rank sleeps.
 *
 * A sleeper counts itself, looks once more, then sleeps. A poster stores its flag, then loads the
 * count. Both could miss each other if the poster's load overtook its store. A futex sleep is
 * timed, so that costs 1 ms at worst. A sleep on descriptors may be long: there the sleeper runs
 * membarrier between counting and looking, which puts a full fence into every running thread of
 * every registered process. */
#include "collectives/window/doorbell.h"

#include "collectives/window/run_progress.h"
#include "core/auth.h"
#include "core/log.h"
#include "core/net.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLEEP_NS            1000000
#define DOORBELL_NAME_BYTES 32

static long doorbell_membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

void doorbell_open(struct window *w)
{
	if (doorbell_membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) != 0)
		atomic_store(&w->at.head->needs_fence, 1);
}

/* A read-modify-write is a full fence on every machine we know, and TSan understands it. */
void doorbell_full_fence(struct window *w)
{
	atomic_fetch_add(&w->at.head->sleepers, 0);
}

static void doorbell_enter(struct window *w)
{
	atomic_fetch_add(&w->at.head->sleepers, 1);
}

static void doorbell_leave(struct window *w)
{
	atomic_fetch_sub(&w->at.head->sleepers, 1);
}

void window_sleep(const struct window_awaited *awaited)
{
	struct window *w = awaited->window;
	struct timespec timeout = {0, SLEEP_NS};
	uint32_t doorbell = atomic_load(&w->area->doorbell);

	atomic_store(&w->area->sleeps_for, (uint32_t)awaited->rank + 1);
	doorbell_enter(w);
	/* EINTR, EAGAIN and ETIMEDOUT all mean: look again. */
	if (!window_has_come(awaited))
		syscall(SYS_futex, &w->area->doorbell, FUTEX_WAIT, doorbell, &timeout, NULL, 0);
	doorbell_leave(w);
	atomic_store(&w->area->sleeps_for, 0);
}

static void doorbell_name(char name[DOORBELL_NAME_BYTES], uint64_t number)
{
	snprintf(name, DOORBELL_NAME_BYTES, "tutti-doorbell-%016llx", (unsigned long long)number);
}

/* -1: it cannot be made now, and nobody can ring. Sleeps on descriptors are short (10 ms). */
static int doorbell_of(struct window *w)
{
	char name[DOORBELL_NAME_BYTES];
	uint64_t number;
	int fd = atomic_load(&w->doorbell), none = -1;

	if (fd >= 0)
		return fd;
	auth_random(&number, sizeof number);
	doorbell_name(name, number);
	if (net_unix_doorbell(name, &fd) != TUTTI_OK) {
		log_seldom("%s", last_error());
		return -1;
	}
	if (!atomic_compare_exchange_strong(&w->doorbell, &none,
					    fd)) { /* another thread was first */
		close(fd);
		return none;
	}
	/* Pairs with ring. */
	atomic_store_explicit(&w->area->doorbell_id, number, memory_order_release);
	return fd;
}

static void window_doorbell_ring(struct window *w, int rank)
{
	uint64_t number =
		atomic_load_explicit(&w->at.areas[rank].doorbell_id, memory_order_acquire);
	char name[DOORBELL_NAME_BYTES];
	int own = number ? doorbell_of(w) : -1;

	doorbell_name(name, number);
	if (own >= 0)
		net_unix_ring(own, name);
}

static void window_doorbell_wake(struct window *w, int rank)
{
	struct rank_area *area = &w->at.areas[rank];

	if (atomic_load(&area->sleeps_for)) {
		atomic_fetch_add(&area->doorbell, 1);
		syscall(SYS_futex, &area->doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
	}
	/* The first rank to disarm it rings. */
	if (atomic_load(&area->is_armed) && atomic_exchange(&area->is_armed, 0))
		window_doorbell_ring(w, rank);
}

void doorbell_wake(struct window *w)
{
	for (int rank = 0; rank < w->size; rank++) {
		uint32_t sleeps_for = atomic_load(&w->at.areas[rank].sleeps_for);
		if (sleeps_for == (uint32_t)w->rank + 1 || atomic_load(&w->at.areas[rank].is_armed))
			window_doorbell_wake(w, rank);
	}
}

void doorbell_wake_all(void *window)
{
	struct window *w = window;

	for (int rank = 0; rank < w->size; rank++)
		window_doorbell_wake(w, rank);
}

int window_event_fd(struct window *w)
{
	return doorbell_of(w);
}

bool window_arm(struct window *w, const struct window_run *run)
{
	doorbell_of(w);
	doorbell_enter(w);
	w->is_armed = true;
	atomic_store(&w->area->is_armed, 1);
	if (!atomic_load(&w->at.head->needs_fence))
		doorbell_membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
	if (!progress_is_ready(w, run))
		return false;
	window_disarm(w);
	return true;
}

void window_disarm(struct window *w)
{
	if (!w->is_armed)
		return;
	w->is_armed = false;
	doorbell_leave(w);
	atomic_store(&w->area->is_armed, 0);
	/* A later ring only makes the next sleep short. */
	if (atomic_load(&w->doorbell) >= 0)
		net_unix_quiet(atomic_load(&w->doorbell));
}
