/* Segments: made by a window's leader, mapped once by each process. */
#include "collectives/window/segment.h"

#include "core/shared_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* All that this process has mapped; the lock is also that of their users and descriptors, until a
 * window is up: then they stay as they are. */
static pthread_mutex_t segments_lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *segments;

static void segment_free(struct segment *s)
{
	for (int i = 0; s->pid_fds && i < s->size; i++)
		if (s->pid_fds[i] >= 0)
			s->watches ? processes_forget(s->pid_fds[i]) : (void)close(s->pid_fds[i]);
	shared_memory_close(s->memory);
	free(s->pid_fds);
	free(s);
}

static struct segment *segment_new(int size)
{
	struct segment *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->size = size;
	s->users = 1;
	s->pid_fds = malloc((size_t)size * sizeof *s->pid_fds);
	if (!s->pid_fds) {
		segment_free(s);
		return NULL;
	}
	for (int i = 0; i < size; i++)
		s->pid_fds[i] = -1;
	return s;
}

/* Every call touches the lines, and two ranks that touch the same page for the first time at once
 * wait some 20 us for each other. An older kernel (before Linux 5.14) refuses. */
static void touch_lines(void *base, const struct geometry *g)
{
#ifdef MADV_POPULATE_WRITE
	madvise(base, g->bodies_at, MADV_POPULATE_WRITE);
#else
	(void)base;
	(void)g;
#endif
}

/* Under the lock: another rank of this process may come with the same memory. */
static tutti_status find_or_map(struct segment **segment, int fd)
{
	static const struct shared_memory_use use = {WINDOW_MAX_RANKS, true};
	struct shared_memory *memory;
	struct geometry geometry;
	struct segment *s;

	if (pread(fd, &geometry, sizeof geometry, 0) != (ssize_t)sizeof geometry)
		return fail_errno(
			"The geometry cannot be read from the window's shared memory (pread)");
	if (!geometry_is_sound(&geometry))
		return fail(TUTTI_ERR_MISMATCH,
			    "The shared memory that another rank of this node passed is no window "
			    "(have all ranks the same version of Tutti?).");
	TRY(shared_memory_open(&memory, fd, geometry.total_bytes, use));
	for (s = segments; s && s->memory != memory; s = s->next)
		;
	if (s) {
		shared_memory_close(memory);
		s->users++;
	} else if (!(s = segment_new(geometry.size))) {
		shared_memory_close(memory);
		return fail(TUTTI_ERR_MEMORY, "No memory for a window of %u ranks.",
			    (unsigned)geometry.size);
	} else {
		s->memory = memory;
		s->head = memory->base;
		s->geometry = geometry;
		touch_lines(memory->base, &geometry);
		s->next = segments;
		segments = s;
	}
	*segment = s;
	return TUTTI_OK;
}

tutti_status window_segment_open(struct segment **segment, int fd)
{
	pthread_mutex_lock(&segments_lock);
	tutti_status status = find_or_map(segment, fd);
	pthread_mutex_unlock(&segments_lock);
	return status;
}

void segment_take_process(struct segment *s, int rank, int pid_fd)
{
	pthread_mutex_lock(&segments_lock);
	bool is_known = s->pid_fds[rank] >= 0;
	if (!is_known)
		s->pid_fds[rank] = pid_fd;
	pthread_mutex_unlock(&segments_lock);
	if (is_known)
		close(pid_fd);
}

/* No window of this segment is up in this process before the first of its ranks comes here. */
void segment_share_processes(struct segment *s)
{
	const struct rank_area *areas = segment_places(s).areas;

	pthread_mutex_lock(&segments_lock);
	for (int rank = 0; rank < s->size && !s->watches; rank++)
		if (s->pid_fds[rank] >= 0)
			s->pid_fds[rank] = processes_watch(areas[rank].process, s->pid_fds[rank]);
	s->watches = true;
	pthread_mutex_unlock(&segments_lock);
}

struct places segment_places(const struct segment *s)
{
	const struct geometry *g = &s->geometry;
	uint8_t *base = (uint8_t *)s->head;

	return (struct places){.head = s->head,
			       .areas = (struct rank_area *)(void *)(base + g->areas_at),
			       .lines = base + g->lines_at,
			       .bodies = base + g->bodies_at,
			       .rows = base + g->rows_at,
			       .slots = base + g->slots_at,
			       .board = (struct board_place *)(void *)(base + g->board_at)};
}

void segment_hold(struct segment *s)
{
	pthread_mutex_lock(&segments_lock);
	s->users++;
	pthread_mutex_unlock(&segments_lock);
}

void segment_drop(struct segment *s)
{
	struct segment **at = &segments;

	if (!s)
		return;
	pthread_mutex_lock(&segments_lock);
	bool is_last = --s->users == 0;
	while (is_last && *at != s)
		at = &(*at)->next;
	if (is_last)
		*at = s->next;
	pthread_mutex_unlock(&segments_lock);
	if (is_last)
		segment_free(s);
}

tutti_status window_segment_create(const struct geometry *geometry, struct segment **segment,
				   int *fd)
{
	struct segment *s = NULL;
	tutti_status status;

	TRY(shared_memory_create("tutti-window", geometry->total_bytes, fd));
	if (pwrite(*fd, geometry, sizeof *geometry, 0) != (ssize_t)sizeof *geometry)
		status = fail_errno(
			"The geometry cannot be written to the window's shared memory (pwrite)");
	else
		status = window_segment_open(&s, *fd);
	if (status != TUTTI_OK) {
		close(*fd);
		return status;
	}
	*segment = s;
	return TUTTI_OK;
}
