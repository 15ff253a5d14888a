/* Segments: their geometry; made by a window's leader, mapped once by each process. */
#include "collectives/window/segment.h"
#include "core/shared_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGEST_BYTES ((uint64_t)1 << 44) /* of a segment: more than any window_bytes come to */

/* The longest payload of a line. Up to there one wait and reading the data of all ranks beat two
 * waits and reading a share of it. More would drive the callers' data out of the cache. */
#define ROOMY_SMALL          16384u
#define OVERSUBSCRIBED_SMALL 8192u
/* In an all_reduce with a core for every rank: shares pay when a rank would read more than this of
 * others. */
#define ALL_REDUCE_READS 4096u

/* The best sizes with a core for every rank, and with fewer: a slot that stays in a core's cache;
 * where every wait is a switch of threads, few long pieces are better. */
#define ROOMY_SLOT          (128u << 10)
#define OVERSUBSCRIBED_SLOT (1u << 20)

/* The longest reduce that its root does alone, so that the others stage and return: in slots, or
 * bytes that are read. Of two ranks the root reads as many lines of the other core as when both
 * reduce a half. Where ranks share two cores, the root's core has as much to do as when all ranks
 * reduce, and no rank waits for its turn. With more cores it pays only for the switches of threads
 * that it saves. */
#define BY_ROOT_PAIR           128u
#define BY_ROOT_OVERSUBSCRIBED 16u
#define BY_ROOT_READS          (1u << 20)

static uint64_t window_segment_geometry_round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* Lines and bodies have half of window_bytes at the most; where that is little, there are no
 * bodies. */
static void window_segment_set_lines(struct geometry *g, const struct window_config *config)
{
	uint64_t most = config->window_bytes / (2 * WINDOW_LINES) / WINDOW_ALIGN * WINDOW_ALIGN;
	bool is_roomy = !config->policy.shares_cores;

	g->line_bytes = window_segment_geometry_round_up(LINE_BODY + LINE_BODY_BYTES, WINDOW_ALIGN);
	g->small_bytes = is_roomy ? ROOMY_SMALL : OVERSUBSCRIBED_SMALL;
	g->body_bytes = g->small_bytes + BODY_GAP;
	if (most < g->line_bytes + g->body_bytes) {
		most = most < WINDOW_ALIGN ? WINDOW_ALIGN : most;
		g->line_bytes = most < g->line_bytes ? most : g->line_bytes;
		g->small_bytes = g->line_bytes - LINE_BODY;
		if (g->small_bytes > LINE_BODY_BYTES)
			g->small_bytes = LINE_BODY_BYTES;
		g->body_bytes = 0;
	}
	g->small_all_reduce = g->small_bytes;
	if (is_roomy && g->size > 1 && g->small_bytes > ALL_REDUCE_READS / (unsigned)(g->size - 1))
		g->small_all_reduce = ALL_REDUCE_READS / (unsigned)(g->size - 1);
	if (g->small_all_reduce < LINE_PAYLOAD)
		g->small_all_reduce = LINE_PAYLOAD;
}

static uint64_t window_segment_longest_by_root(const struct geometry *g,
					       const struct window_config *config)
{
	bool is_roomy = !config->policy.shares_cores;

	if (g->size == 2)
		return (is_roomy ? BY_ROOT_PAIR : BY_ROOT_OVERSUBSCRIBED) * g->slot_bytes;
	if (is_roomy || g->size < 2)
		return 0;
	if (config->cores == 2)
		return BY_ROOT_OVERSUBSCRIBED * g->slot_bytes;
	return BY_ROOT_READS / (unsigned)(g->size - 1);
}

/* window_bytes holds the lines, two rows, the area and the slots of a rank; its place on the board
 * comes on top. */
tutti_status geometry_choose(struct geometry *g, const struct window_config *config)
{
	uint64_t size = (uint64_t)config->size, fixed;
	uint64_t slot = config->policy.shares_cores ? OVERSUBSCRIBED_SLOT : ROOMY_SLOT;

	if (config->size > WINDOW_MAX_RANKS)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "A window takes %d ranks at the most, and %d are on this node.",
			    WINDOW_MAX_RANKS, config->size);
	g->size = config->size;
	g->shares_cores = config->policy.shares_cores;
	window_segment_set_lines(g, config);
	g->row_bytes =
		window_segment_geometry_round_up(size * sizeof(struct row_entry), WINDOW_ALIGN);
	fixed = WINDOW_LINES * (g->line_bytes + g->body_bytes) + 2 * g->row_bytes +
		sizeof(struct rank_area);
	if (config->window_bytes < fixed + WINDOW_SLOTS * WINDOW_ALIGN * size)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "TUTTI_WINDOW_BYTES=%zu is too little: a window of %d ranks takes at "
			    "least %llu.",
			    config->window_bytes, config->size,
			    (unsigned long long)(fixed + WINDOW_SLOTS * WINDOW_ALIGN * size));
	if (slot > (config->window_bytes - fixed) / WINDOW_SLOTS)
		slot = (config->window_bytes - fixed) / WINDOW_SLOTS;
	g->slot_bytes = slot / WINDOW_ALIGN * WINDOW_ALIGN;
	g->by_root_bytes = window_segment_longest_by_root(g, config);
	g->areas_at = window_segment_geometry_round_up(sizeof(struct segment_head), WINDOW_ALIGN);
	g->lines_at = g->areas_at + size * sizeof(struct rank_area);
	g->bodies_at = g->lines_at + WINDOW_LINES * size * g->line_bytes;
	g->rows_at = g->bodies_at + WINDOW_LINES * size * g->body_bytes;
	g->slots_at = window_segment_geometry_round_up(g->rows_at + 2 * size * g->row_bytes, 4096);
	g->board_at = window_segment_geometry_round_up(
		g->slots_at + size * WINDOW_SLOTS * g->slot_bytes, 4096);
	g->total_bytes = window_segment_geometry_round_up(
		g->board_at + size * sizeof(struct board_place), 4096);
	return TUTTI_OK;
}

/* Places come one behind the other, each with room for what lies there. No product overflows: a
 * segment is at most LARGEST_BYTES long. */
static bool window_segment_is_in_order(const struct geometry *g)
{
	uint64_t size = (uint64_t)g->size;
	const uint64_t at[] = {0,          g->areas_at, g->lines_at, g->bodies_at,
			       g->rows_at, g->slots_at, g->board_at, g->total_bytes};
	const uint64_t bytes[] = {sizeof(struct segment_head),
				  size * sizeof(struct rank_area),
				  WINDOW_LINES * size * g->line_bytes,
				  WINDOW_LINES * size * g->body_bytes,
				  2 * size * g->row_bytes,
				  size * WINDOW_SLOTS * g->slot_bytes,
				  size * sizeof(struct board_place)};

	for (int i = 0; i < 7; i++)
		if (at[i] % WINDOW_ALIGN || at[i] > g->total_bytes || at[i + 1] < at[i] ||
		    at[i + 1] - at[i] < bytes[i])
			return false;
	return true;
}

/* Another build, or another program, may have written it. */
static bool window_segment_geometry_is_sound(const struct geometry *g)
{
	const uint64_t strides[] = {g->line_bytes, g->body_bytes, g->row_bytes, g->slot_bytes};
	uint64_t in_line = g->small_bytes < LINE_BODY_BYTES ? g->small_bytes : LINE_BODY_BYTES;

	if (g->size < 1 || g->size > WINDOW_MAX_RANKS || g->total_bytes > LARGEST_BYTES)
		return false;
	for (int i = 0; i < 4; i++)
		if (strides[i] % WINDOW_ALIGN || strides[i] > g->total_bytes)
			return false;
	if (g->line_bytes < sizeof(struct line) || g->slot_bytes == 0 ||
	    g->row_bytes < (uint64_t)g->size * sizeof(struct row_entry) ||
	    !window_segment_is_in_order(g))
		return false;
	return g->small_bytes >= LINE_PAYLOAD && g->line_bytes >= LINE_BODY + in_line &&
	       (g->small_bytes <= LINE_BODY_BYTES || g->small_bytes <= g->body_bytes) &&
	       g->small_all_reduce <= g->small_bytes;
}

/* The processes of other ranks, watched by descriptors (pidfds): one for each process, for all
 * segments that it shares with this one. */

struct watched {
	struct watched *next;
	uint64_t token;
	int fd, users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct watched *processes;

/* The processes of other ranks, each watched by one descriptor however many segments
 * they share with this one. token: process_token() there, or 0. Returns the descriptor to use, and
 * closes pid_fd if it is another. */
static int window_segment_processes_watch(uint64_t token, int pid_fd)
{
	struct watched *p;

	pthread_mutex_lock(&lock);
	for (p = token ? processes : NULL; p && p->token != token; p = p->next)
		;
	if (p) {
		p->users++;
		close(pid_fd);
		pid_fd = p->fd;
	} else if ((p = malloc(sizeof *p))) { /* else nobody shares it */
		*p = (struct watched){processes, token, pid_fd, 1};
		processes = p;
	}
	pthread_mutex_unlock(&lock);
	return pid_fd;
}

static void window_segment_processes_forget(int pid_fd)
{
	struct watched **at = &processes, *p;

	pthread_mutex_lock(&lock);
	while ((p = *at) && p->fd != pid_fd)
		at = &p->next;
	bool is_last = !p || --p->users == 0;
	if (is_last && p)
		*at = p->next;
	pthread_mutex_unlock(&lock);
	if (!is_last)
		return;
	close(pid_fd);
	free(p);
}

/* All that this process has mapped; the lock is also that of their users and descriptors, until a
 * window is up: then they stay as they are. */
static pthread_mutex_t segments_lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *segments;

static void segment_free(struct segment *s)
{
	for (int i = 0; s->pid_fds && i < s->size; i++)
		if (s->pid_fds[i] >= 0)
			s->watches ? window_segment_processes_forget(s->pid_fds[i])
				   : (void)close(s->pid_fds[i]);
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
static void window_segment_touch_lines(void *base, const struct geometry *g)
{
#ifdef MADV_POPULATE_WRITE
	madvise(base, g->bodies_at, MADV_POPULATE_WRITE);
#else
	(void)base;
	(void)g;
#endif
}

/* Under the lock: another rank of this process may come with the same memory. */
static tutti_status window_segment_find_or_map(struct segment **segment, int fd)
{
	static const struct shared_memory_use use = {WINDOW_MAX_RANKS, true};
	struct shared_memory *memory;
	struct geometry geometry;
	struct segment *s;

	if (pread(fd, &geometry, sizeof geometry, 0) != (ssize_t)sizeof geometry)
		return fail_errno(
			"The geometry cannot be read from the window's shared memory (pread)");
	if (!window_segment_geometry_is_sound(&geometry))
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
		window_segment_touch_lines(memory->base, &geometry);
		s->next = segments;
		segments = s;
	}
	*segment = s;
	return TUTTI_OK;
}

tutti_status window_segment_open(struct segment **segment, int fd)
{
	pthread_mutex_lock(&segments_lock);
	tutti_status status = window_segment_find_or_map(segment, fd);
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
			s->pid_fds[rank] = window_segment_processes_watch(areas[rank].process,
									  s->pid_fds[rank]);
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
