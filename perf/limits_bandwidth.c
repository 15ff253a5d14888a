/* Memory bandwidth as collectives use memory. Every core's buffers are written by that core right
 * before, so what another core wants lies as modified lines in this one's caches, as far as it
 * fits: no loop finds data where it has left them itself.
 *
 *     reduce       c = a + b, all three the core's own: 2 in, 1 out
 *     copy         the next core's buffer into one of its own; counted are the bytes copied
 *     2 in 2 out   two cores halve the work: a = b = a + b, a of the one and b of the other
 *
 * In the first and the last all bytes loaded and stored count. The buffers are shared memory, as
 * the library's are. */
#include "limits.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define BUFFERS  3
#define MOST     ((size_t)64 << 20)
#define TRIES    41
#define WARMUPS  3
#define TOGETHER 0.25 /* of a try's time: how far apart its cores may begin */
#define VECTOR   64
#define INLINE   static inline __attribute__((always_inline))

typedef float vector __attribute__((vector_size(VECTOR)));

enum pattern { REDUCE, COPY, TWO_IN_TWO_OUT, PATTERNS };
static const char *const names[PATTERNS] = {"reduce", "copy", "2 in 2 out"};
static const size_t sizes[] = {64 << 10, 1 << 20, 16 << 20, MOST};

#define SIZES (sizeof sizes / sizeof *sizes)

struct span {
	double start, end; /* 0: not tried */
};

struct memory {
	unsigned char *base; /* a core's buffers, one after the other, then the next core's */
	struct span *spans;  /* of [core][size][pattern][try]                               */
};

static void *limits_bandwidth_buffer(const struct memory *m, int core, int which)
{
	return m->base + ((size_t)core * BUFFERS + (size_t)which) * MOST;
}

static struct span *limits_bandwidth_spans_of(const struct memory *m, int core, size_t size,
					      enum pattern pattern)
{
	return m->spans + (((size_t)core * SIZES + size) * PATTERNS + pattern) * TRIES;
}

INLINE void limits_bandwidth_run_any(struct trial *t, enum pattern pattern, size_t bytes)
{
	const struct memory *m = t->arg;
	const vector *from = limits_bandwidth_buffer(m, t->rank, 0);
	const vector *other = limits_bandwidth_buffer(m, t->rank, 1);
	vector *to = limits_bandwidth_buffer(m, t->rank, 2);
	vector *a = limits_bandwidth_buffer(m, t->rank & ~1, 0);
	vector *b = t->ranks == 1 ? limits_bandwidth_buffer(m, 0, 1)
				  : limits_bandwidth_buffer(m, t->rank | 1, 0);
	size_t vectors = bytes / VECTOR, share = t->ranks > 1 ? vectors / 2 : vectors;
	size_t first = (size_t)(t->rank & 1) * share;

	switch (pattern) {
	case REDUCE:
		for (size_t i = 0; i < vectors; i++)
			to[i] = from[i] + other[i];
		break;
	case COPY:
		memcpy(to, limits_bandwidth_buffer(m, (t->rank + 1) % t->ranks, 0), bytes);
		break;
	default:
		for (size_t i = first; i < first + share; i++)
			a[i] = b[i] = a[i] + b[i];
	}
}

static void limits_bandwidth_run_plain(struct trial *t, enum pattern pattern, size_t bytes)
{
	limits_bandwidth_run_any(t, pattern, bytes);
}

/* By the widest registers that the core has. */
#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void
limits_bandwidth_run_wide(struct trial *t, enum pattern pattern, size_t bytes)
{
	limits_bandwidth_run_any(t, pattern, bytes);
}

static void limits_bandwidth_run(struct trial *t, enum pattern pattern, size_t bytes)
{
	(__builtin_cpu_supports("avx512f") ? limits_bandwidth_run_wide
					   : limits_bandwidth_run_plain)(t, pattern, bytes);
}
#else
#define limits_bandwidth_run limits_bandwidth_run_plain
#endif

/* Those of this core's buffers that the pattern uses, each try with other values: no store writes
 * what is there already. */
static void limits_bandwidth_dirty(struct trial *t, enum pattern pattern, size_t bytes, int try)
{
	static const bool uses[PATTERNS][2][BUFFERS] = {
		[REDUCE] = {{true, true, true}, {true, true, true}},
		[COPY] = {{true, false, true}, {true, false, true}},
		[TWO_IN_TWO_OUT] = {{true, false, false}, {false, true, false}},
	};

	for (int i = 0; i < BUFFERS; i++) {
		float *at = limits_bandwidth_buffer(t->arg, t->rank, i);

		if (!uses[pattern][t->rank & 1][i] && (t->ranks > 1 || i != 1))
			continue;
		for (size_t k = 0; k < bytes / sizeof *at; k++)
			at[k] = (float)(try + i + 1);
	}
}

/* Again and again the same: what is to be found is not what a cold TLB costs. */
static void limits_bandwidth_try_pattern(struct trial *t, size_t size, enum pattern pattern)
{
	int tries = sizes[size] > (8 << 20) ? TRIES / 4 : TRIES;
	struct span *spans = limits_bandwidth_spans_of(t->arg, t->rank, size, pattern);

	for (int try = -WARMUPS; try < tries; try++) {
		struct span span;

		limits_bandwidth_dirty(t, pattern, sizes[size], try);
		limits_meet(t);
		span.start = limits_now();
		limits_bandwidth_run(t, pattern, sizes[size]);
		span.end = limits_now();
		if (try >= 0)
			spans[try] = span;
		limits_meet(t);
	}
}

static int limits_bandwidth_body(struct trial *t)
{
	for (size_t size = 0; size < SIZES; size++) {
		for (int pattern = 0; pattern < PATTERNS; pattern++)
			limits_bandwidth_try_pattern(t, size, (enum pattern)pattern);
	}
	return 0;
}

/* A try is as long as its slowest core. Not over 0: it was not made, or a core was away when the
 * others began, so that they had the memory for themselves. */
static double limits_bandwidth_seconds_of(const struct memory *m, int cores, size_t size,
					  enum pattern pattern, int try)
{
	double slowest = 0, first = 0, last = 0;

	for (int core = 0; core < cores; core++) {
		struct span span = limits_bandwidth_spans_of(m, core, size, pattern)[try];

		slowest = span.end - span.start > slowest ? span.end - span.start : slowest;
		first = core == 0 || span.start < first ? span.start : first;
		last = span.start > last ? span.start : last;
	}
	return last - first < slowest * TOGETHER ? slowest : 0;
}

/* GB/s of all cores together. False when they were never there together. */
static bool limits_bandwidth_rate_of(const struct memory *m, int cores, size_t size,
				     enum pattern pattern, struct spread *rate)
{
	static const double counted[PATTERNS] = {3, 1, 2};
	double seconds[TRIES], bytes = counted[pattern] * (double)sizes[size] * cores;
	int n = 0;

	if (pattern == TWO_IN_TWO_OUT && cores == 1)
		bytes *= 2;
	for (int try = 0; try < TRIES; try++) {
		seconds[n] = limits_bandwidth_seconds_of(m, cores, size, pattern, try);
		n += seconds[n] > 0;
	}
	if (n == 0)
		return false;
	*rate = limits_rate(limits_lowest(seconds, n), bytes / 1e9);
	return true;
}

/* One row: a pattern at all sizes. */
static void limits_bandwidth_report(const struct memory *m, int cores, enum pattern pattern)
{
	const char *comma = "";

	printf("%s, %d core%s, GB/s:", names[pattern], cores, cores > 1 ? "s" : "");
	for (size_t size = 0; size < SIZES; size++) {
		struct spread rate;

		if (limits_bandwidth_rate_of(m, cores, size, pattern, &rate)) {
			printf("%s %zu KiB %.1f (median %.1f)", comma, sizes[size] >> 10, rate.best,
			       rate.middle);
			limits_bandwidth_figure(names[pattern], cores, sizes[size], rate);
		} else {
			printf("%s %zu KiB not measured: the cores were never there together",
			       comma, sizes[size] >> 10);
		}
		comma = ",";
	}
	puts("");
}

static int limits_bandwidth_measure(struct trial *t, int cores)
{
	t->ranks = cores;
	if (limits_run(t, limits_bandwidth_body) != 0)
		return 1;
	for (int pattern = 0; pattern < PATTERNS; pattern++) {
		if (pattern != COPY || cores > 1)
			limits_bandwidth_report(t->arg, cores, (enum pattern)pattern);
	}
	return 0;
}

/* One core, and all of them but an odd one. */
int limits_bandwidth(struct trial *t)
{
	int cores = limits_cores() & ~1, failed;
	size_t most = (size_t)LIMITS_RANKS * SIZES * PATTERNS * TRIES * sizeof(struct span);
	size_t room = (size_t)(cores > 1 ? cores : 1) * BUFFERS * MOST;
	struct memory m = {.base = limits_map(room), .spans = limits_map(most)};

	if (!m.base || !m.spans)
		return 1;
	t->arg = &m;
	t->is_pinned = true;
	failed = limits_bandwidth_measure(t, 1);
	memset(m.spans, 0, most);
	if (cores > 1)
		failed |= limits_bandwidth_measure(t, cores);
	else
		limits_skip("copy", "there is one core only");
	munmap(m.base, room);
	munmap(m.spans, most);
	return failed;
}
