/* Shared memory without a name: sealed memfds, where things lie in a window's segment, and this
 * process's mappings of them. Nothing outlives the processes that map it. */
#include "collectives/window/window_internal.h"

#include "core/grow.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HUGE_PAGE     (2u << 20)
#define LARGEST_BYTES ((uint64_t)1 << 44) /* of a segment: more than any window_bytes come to */
#define SEALS         (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Up to there one wait and reading everybody's data beat two waits and reading a share of it. More
 * would drive the callers' data out of the cache. */
#define ROOMY_SMALL          16384u
#define OVERSUBSCRIBED_SMALL 8192u
/* In an all_reduce with a core each the shares are worth it when a rank would read so much of
 * others. */
#define ALL_REDUCE_READS 4096u

/* What is best with a core for every rank, and with fewer: what stays in a core's cache; where
 * every wait is a switch of threads, few long pieces are better. */
#define ROOMY_SLOT          (128u << 10)
#define OVERSUBSCRIBED_SLOT (1u << 20)

/* A reduce that its root does alone, so that the others stage and are gone: with two ranks the root
 * reads as many lines of the other core as when both reduce a half; where ranks share two cores the
 * root's core has as much to do as when all ranks do, and nobody waits for a turn. With more cores
 * it is worth the switches of threads only. In slots, so that it goes with window_bytes. */
#define BY_ROOT_PAIR           128u
#define BY_ROOT_OVERSUBSCRIBED 16u
#define BY_ROOT_READS          (1u << 20)

/* All that this process has mapped; the lock is also that of their users and descriptors, until a
 * window is up: then they stay as they are. */
static pthread_mutex_t segments_lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *segments;

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* Lines and bodies have half of window_bytes at the most; where that is little, there are no
 * bodies. */
static void set_lines(struct geometry *g, const struct window_config *config)
{
	uint64_t most = config->window_bytes / (2 * WINDOW_LINES) / WINDOW_ALIGN * WINDOW_ALIGN;
	bool is_roomy = config->policy.spins != 0;

	g->line_bytes = round_up(LINE_BODY + LINE_BODY_BYTES, WINDOW_ALIGN);
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

static uint64_t longest_by_root(const struct geometry *g, const struct window_config *config)
{
	bool is_roomy = config->policy.spins != 0;

	if (g->size == 2)
		return (is_roomy ? BY_ROOT_PAIR : BY_ROOT_OVERSUBSCRIBED) * g->slot_bytes;
	if (is_roomy || g->size < 2)
		return 0;
	if (config->cores == 2)
		return BY_ROOT_OVERSUBSCRIBED * g->slot_bytes;
	return BY_ROOT_READS / (unsigned)(g->size - 1);
}

/* window_bytes holds the lines, two rows, the area and the slots of a rank; its recorder comes on
 * top. */
tutti_status segment_geometry(struct geometry *g, const struct window_config *config)
{
	uint64_t size = (uint64_t)config->size, fixed;
	uint64_t slot = config->policy.spins ? ROOMY_SLOT : OVERSUBSCRIBED_SLOT;

	if (config->size > WINDOW_MAX_RANKS)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "%d ranks on one node are more than a window's %d.", config->size,
			    WINDOW_MAX_RANKS);
	g->size = config->size;
	g->shares_cores = config->policy.spins == 0;
	set_lines(g, config);
	g->row_bytes = round_up(size * sizeof(struct pair), WINDOW_ALIGN);
	fixed = WINDOW_LINES * (g->line_bytes + g->body_bytes) + 2 * g->row_bytes +
		sizeof(struct rank_area);
	if (config->window_bytes < fixed + WINDOW_SLOTS * WINDOW_ALIGN * size)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "TUTTI_WINDOW_BYTES=%zu is too little for a window of %d ranks.",
			    config->window_bytes, config->size);
	if (slot > (config->window_bytes - fixed) / WINDOW_SLOTS)
		slot = (config->window_bytes - fixed) / WINDOW_SLOTS;
	g->slot_bytes = slot / WINDOW_ALIGN * WINDOW_ALIGN;
	g->by_root_bytes = longest_by_root(g, config);
	g->areas_at = round_up(sizeof(struct segment_head), WINDOW_ALIGN);
	g->lines_at = g->areas_at + size * sizeof(struct rank_area);
	g->bodies_at = g->lines_at + WINDOW_LINES * size * g->line_bytes;
	g->rows_at = g->bodies_at + WINDOW_LINES * size * g->body_bytes;
	g->slots_at = round_up(g->rows_at + 2 * size * g->row_bytes, 4096);
	g->recorders_at = round_up(g->slots_at + size * WINDOW_SLOTS * g->slot_bytes, 4096);
	g->total_bytes = round_up(g->recorders_at + size * sizeof(struct recorder), 4096);
	return TUTTI_OK;
}

tutti_status shared_create(const char *name, size_t bytes, int *fd)
{
	int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	tutti_status status;

	if (made < 0)
		return fail_errno("Shared memory cannot be made (memfd_create)");
	if (grow_file(made, bytes) == 0 && fcntl(made, F_ADD_SEALS, SEALS) == 0) {
		*fd = made;
		return TUTTI_OK;
	}
	status = fail_errno("Shared memory of %zu bytes cannot be made", bytes);
	close(made);
	return status;
}

/* What another process passed on: it must be as long as said, and stay so, or a load could be a
 * SIGBUS. */
static tutti_status check_shared(int fd, size_t bytes)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) != 0 || st.st_size < 0 ||
	    (uint64_t)st.st_size < bytes)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "The shared memory that was passed here is not sealed or too short.");
	return TUTTI_OK;
}

tutti_status shared_map(int fd, size_t bytes, void **base)
{
	size_t mapped = round_up(bytes, 4096), room = mapped + HUGE_PAGE;
	uint8_t *space, *at;
	size_t before;

	TRY(check_shared(fd, bytes));
	space = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (space == MAP_FAILED)
		return fail_errno("Address space for %zu bytes of shared memory", bytes);
	before = round_up((uintptr_t)space, HUGE_PAGE) - (uintptr_t)space;
	at = space + before;
	if (mmap(at, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		tutti_status status = fail_errno("Mapping %zu bytes of shared memory", bytes);
		munmap(space, room);
		return status;
	}
	if (before)
		munmap(space, before);
	munmap(at + mapped, room - before - mapped);
	/* Refused where the system has none to give: then 4 KiB pages. */
	madvise(at, mapped, MADV_HUGEPAGE);
	*base = at;
	return TUTTI_OK;
}

static void segment_free(struct segment *s)
{
	for (int i = 0; i < s->size; i++) {
		if (s->event_fds && s->event_fds[i] >= 0)
			close(s->event_fds[i]);
		if (s->pid_fds && s->pid_fds[i] >= 0)
			close(s->pid_fds[i]);
	}
	if (s->head)
		munmap(s->head, s->bytes);
	free(s->event_fds);
	free(s->pid_fds);
	free(s);
}

/* Places come one behind the other, each with room for what lies there. No product overflows: a
 * segment is at most LARGEST_BYTES long. */
static bool is_in_order(const struct geometry *g)
{
	uint64_t size = (uint64_t)g->size;
	const uint64_t at[] = {0,          g->areas_at, g->lines_at,     g->bodies_at,
			       g->rows_at, g->slots_at, g->recorders_at, g->total_bytes};
	const uint64_t bytes[] = {sizeof(struct segment_head),
				  size * sizeof(struct rank_area),
				  WINDOW_LINES * size * g->line_bytes,
				  WINDOW_LINES * size * g->body_bytes,
				  2 * size * g->row_bytes,
				  size * WINDOW_SLOTS * g->slot_bytes,
				  size * sizeof(struct recorder)};

	for (int i = 0; i < 7; i++)
		if (at[i] % WINDOW_ALIGN || at[i] > g->total_bytes || at[i + 1] < at[i] ||
		    at[i + 1] - at[i] < bytes[i])
			return false;
	return true;
}

/* A leader of another build, or none at all, may have written it. */
static bool is_sound(const struct geometry *g)
{
	const uint64_t strides[] = {g->line_bytes, g->body_bytes, g->row_bytes, g->slot_bytes};
	uint64_t in_line = g->small_bytes < LINE_BODY_BYTES ? g->small_bytes : LINE_BODY_BYTES;

	if (g->size < 1 || g->size > WINDOW_MAX_RANKS || g->total_bytes > LARGEST_BYTES)
		return false;
	for (int i = 0; i < 4; i++)
		if (strides[i] % WINDOW_ALIGN || strides[i] > g->total_bytes)
			return false;
	if (g->line_bytes < sizeof(struct line) || g->slot_bytes == 0 ||
	    g->row_bytes < (uint64_t)g->size * sizeof(struct pair) || !is_in_order(g))
		return false;
	return g->small_bytes >= LINE_PAYLOAD && g->line_bytes >= LINE_BODY + in_line &&
	       (g->small_bytes <= LINE_BODY_BYTES || g->small_bytes <= g->body_bytes) &&
	       g->small_all_reduce <= g->small_bytes;
}

static int *no_fds(int size)
{
	int *fds = malloc((size_t)size * sizeof *fds);

	for (int i = 0; fds && i < size; i++)
		fds[i] = -1;
	return fds;
}

static struct segment *segment_new(int size)
{
	struct segment *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->size = size;
	s->users = 1;
	s->event_fds = no_fds(size);
	s->pid_fds = no_fds(size);
	if (!s->event_fds || !s->pid_fds) {
		segment_free(s);
		return NULL;
	}
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

static tutti_status map_segment(struct segment **segment, int fd)
{
	struct geometry geometry;
	struct segment *s;
	void *base;
	tutti_status status;

	if (pread(fd, &geometry, sizeof geometry, 0) != (ssize_t)sizeof geometry)
		return fail_errno("Reading the head of a window");
	if (!is_sound(&geometry))
		return fail(TUTTI_ERR_MISMATCH, "The memory that was passed here is no window.");
	s = segment_new(geometry.size);
	if (!s)
		return fail(TUTTI_ERR_MEMORY, "No memory for a window.");
	status = shared_map(fd, geometry.total_bytes, &base);
	if (status != TUTTI_OK) {
		segment_free(s);
		return status;
	}
	s->head = base;
	s->geometry = geometry;
	s->bytes = round_up(geometry.total_bytes, 4096);
	touch_lines(base, &geometry);
	*segment = s;
	return TUTTI_OK;
}

/* Under the lock: another rank of this process may come with the same memory. */
static tutti_status find_or_map(struct segment **segment, int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return fail_errno("The shared memory that was passed here (fstat)");
	for (struct segment *s = segments; s; s = s->next) {
		if (s->file[0] != st.st_dev || s->file[1] != st.st_ino)
			continue;
		s->users++;
		*segment = s;
		return TUTTI_OK;
	}
	TRY(map_segment(segment, fd));
	(*segment)->file[0] = st.st_dev;
	(*segment)->file[1] = st.st_ino;
	(*segment)->next = segments;
	segments = *segment;
	return TUTTI_OK;
}

tutti_status window_segment_open(struct segment **segment, int fd)
{
	pthread_mutex_lock(&segments_lock);
	tutti_status status = find_or_map(segment, fd);
	pthread_mutex_unlock(&segments_lock);
	return status;
}

void segment_take_fds(struct segment *s, int rank, int event_fd, int pid_fd)
{
	pthread_mutex_lock(&segments_lock);
	bool is_known = s->event_fds[rank] >= 0;
	if (!is_known) {
		s->event_fds[rank] = event_fd;
		s->pid_fds[rank] = pid_fd;
	}
	pthread_mutex_unlock(&segments_lock);
	if (!is_known)
		return;
	close(event_fd);
	if (pid_fd >= 0)
		close(pid_fd);
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

static tutti_status make_doorbells(struct segment *s)
{
	for (int i = 0; i < s->size; i++) {
		s->event_fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (s->event_fds[i] < 0)
			return fail_errno("Making the doorbell of rank %d (eventfd)", i);
	}
	return TUTTI_OK;
}

tutti_status window_segment_create(const struct geometry *geometry, struct segment **segment,
				   int *fd)
{
	struct segment *s = NULL;
	tutti_status status;

	TRY(shared_create("tutti-window", geometry->total_bytes, fd));
	if (pwrite(*fd, geometry, sizeof *geometry, 0) != (ssize_t)sizeof *geometry)
		status = fail_errno("Writing the head of a window");
	else
		status = window_segment_open(&s, *fd);
	if (status == TUTTI_OK)
		status = make_doorbells(s);
	if (status != TUTTI_OK) {
		segment_drop(s);
		close(*fd);
		return status;
	}
	*segment = s;
	return TUTTI_OK;
}
