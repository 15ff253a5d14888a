/* Calls of small numbers, whose sums and products are exact in any order. */
#include "across_calls.h"
#include "gpu.h"

#include "tests/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_LEAST ((size_t)24 << 10) /* so that some go by the engine */
#define BYTES_MOST  ((size_t)640 << 10)
#define LATE_MOST   16
#define ROOM        (2 * BYTES_MOST + (2 * LATE_MOST + ACROSS_RANKS) * 8)
#define UNTOUCHED   0xa5

static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_F64, TUTTI_BF16, TUTTI_F16,
				     TUTTI_I32, TUTTI_U8,  TUTTI_I64};
static const tutti_op ops[] = {TUTTI_SUM, TUTTI_PROD, TUTTI_MIN, TUTTI_MAX, TUTTI_AVG};
#define LENGTH(array) (sizeof(array) / sizeof *(array))

size_t across_element(tutti_dtype dtype)
{
	return dtype == TUTTI_U8                           ? 1
	       : dtype == TUTTI_BF16 || dtype == TUTTI_F16 ? 2
	       : dtype == TUTTI_F32 || dtype == TUTTI_I32  ? 4
							   : 8;
}

static bool has_counts(const struct across_call *c)
{
	return c->what >= ACROSS_REDUCE_SCATTERV;
}

static bool sends_all(const struct across_call *c)
{
	return c->what != ACROSS_ALL_GATHER && c->what != ACROSS_ALL_GATHERV;
}

static bool receives_all(const struct across_call *c)
{
	return c->what != ACROSS_REDUCE_SCATTER && c->what != ACROSS_REDUCE_SCATTERV;
}

/* Where this rank's block begins, in bytes. */
static size_t own_place(const struct across_call *c)
{
	return c->offsets[c->rank] * across_element(c->dtype);
}

/* In place both lie in the larger one, at this rank's place of it. */
static unsigned char *send_of(const struct across_call *c, unsigned char *const buffer[2])
{
	size_t late = c->late[0] * across_element(c->dtype);

	if (c->in_place && !sends_all(c))
		return buffer[1] + c->late[1] * across_element(c->dtype) + own_place(c);
	return buffer[0] + late;
}

static unsigned char *recv_of(const struct across_call *c, unsigned char *const buffer[2])
{
	size_t late = c->late[1] * across_element(c->dtype);

	if (c->in_place && !receives_all(c))
		return send_of(c, buffer) + own_place(c);
	if (c->in_place && sends_all(c))
		return send_of(c, buffer);
	return buffer[1] + late;
}

tutti_status across_open(struct across_call *c, tutti_comm *comm, bool is_mapped)
{
	tutti_status status = TUTTI_OK;

	*c = (struct across_call){
		.rank = tutti_rank(comm), .ranks = tutti_size(comm), .is_mapped = is_mapped};
	for (int i = 0; i < 2; i++) {
		void *p = NULL;
		if (is_mapped && status == TUTTI_OK)
			status = tutti_mem_alloc(&p, ROOM, comm);
		c->device[i] = is_mapped ? p : gpu_alloc(ROOM);
		c->host[i] = malloc(ROOM);
		if (!c->host[i])
			abort();
	}
	return status;
}

void across_close(struct across_call *c)
{
	for (int i = 0; i < 2; i++) {
		if (!c->is_mapped)
			gpu_free(c->device[i]);
		free(c->host[i]);
	}
}

void across_set(struct across_call *c, enum across_what what, size_t bytes)
{
	size_t all = bytes / across_element(c->dtype);

	c->what = what;
	c->count = what == ACROSS_ALL_REDUCE ? all : all / (size_t)c->ranks;
	for (int r = 0; r < c->ranks; r++) {
		c->counts[r] = c->count;
		c->offsets[r] = (size_t)r * c->count;
	}
}

/* Some have nothing, some twice as much; and between them there are gaps. */
static void draw_counts(struct across_call *c, uint64_t *shared)
{
	for (int r = 0; r < c->ranks; r++) {
		c->counts[r] = random_below(shared, 5) ? random_below(shared, 2 * c->count) : 0;
		c->offsets[r] = (size_t)r * (2 * c->count + 1);
	}
}

void across_draw(struct across_call *c, uint64_t *shared)
{
	enum across_what what = (enum across_what)random_below(shared, ACROSS_WHATS);

	c->dtype = dtypes[random_below(shared, LENGTH(dtypes))];
	c->op = ops[random_below(shared, LENGTH(ops))];
	across_set(c, what, BYTES_LEAST + random_below(shared, BYTES_MOST - BYTES_LEAST));
	if (has_counts(c))
		draw_counts(c, shared);
	c->late[0] = random_below(shared, LATE_MOST);
	c->late[1] = random_below(shared, LATE_MOST);
	c->in_place = random_below(shared, 2);
	c->salt = (uint32_t)random_next(shared);
}

/* 1 or 2: a product of 8 ranks is a power of two. */
static unsigned value(const struct across_call *c, size_t i)
{
	uint64_t state = c->salt + ((uint64_t)c->rank << 40) + i / 32;

	return 1 + (random_next(&state) >> i % 32 & 1);
}

static void put(tutti_dtype dtype, unsigned char *to, unsigned v)
{
	float f32 = (float)v;
	double f64 = v;
	uint64_t whole = dtype == TUTTI_BF16  ? (v == 1 ? 0x3f80 : 0x4000)
			 : dtype == TUTTI_F16 ? (v == 1 ? 0x3c00 : 0x4000)
					      : v;
	const void *from = dtype == TUTTI_F32   ? (const void *)&f32
			   : dtype == TUTTI_F64 ? (const void *)&f64
						: (const void *)&whole;

	memcpy(to, from, across_element(dtype)); /* the low bytes come first */
}

tutti_status across_issue(const struct across_call *c, tutti_comm *comm, const tutti_call *how)
{
	unsigned char *const *buffer = how ? c->device : c->host;
	const void *send = send_of(c, buffer);
	void *recv = recv_of(c, buffer);

	if (c->what == ACROSS_ALL_REDUCE)
		return tutti_all_reduce(send, recv, c->count, c->dtype, c->op, comm, how);
	if (c->what == ACROSS_REDUCE_SCATTER)
		return tutti_reduce_scatter(send, recv, c->count, c->dtype, c->op, comm, how);
	if (c->what == ACROSS_REDUCE_SCATTERV)
		return tutti_reduce_scatterv(send, recv, c->counts, c->offsets, c->dtype, c->op,
					     comm, how);
	if (c->what == ACROSS_ALL_GATHERV)
		return tutti_all_gatherv(send, recv, c->counts, c->offsets, c->dtype, comm, how);
	return tutti_all_gather(send, recv, c->count, c->dtype, comm, how);
}

/* So many elements repeat: a prime, so that no two blocks are alike. */
#define PERIOD ((size_t)4093)

static void fill(const struct across_call *c, unsigned char *send, size_t n)
{
	size_t element = across_element(c->dtype), period = n < PERIOD ? n : PERIOD;

	for (size_t i = 0; i < period; i++)
		put(c->dtype, send + i * element, value(c, i));
	for (size_t i = period; i < n; i += PERIOD)
		memcpy(send + i * element, send, (n - i < PERIOD ? n - i : PERIOD) * element);
}

tutti_status across_prepare(struct across_call *c, tutti_comm *comm)
{
	size_t n = c->what == ACROSS_ALL_REDUCE ? c->count
		   : sends_all(c)               ? c->offsets[c->ranks - 1] + c->counts[c->ranks - 1]
						: c->counts[c->rank];

	for (int i = 0; i < 2; i++)
		memset(c->host[i], UNTOUCHED, ROOM);
	fill(c, send_of(c, c->host), n);
	for (int i = 0; i < 2; i++)
		gpu_write(c->device[i], c->host[i], ROOM);
	return across_issue(c, comm, NULL);
}

static void explain(struct across_call *c, int side, const unsigned char *found)
{
	static const char *const names[] = {"all_reduce", "reduce_scatter", "all_gather",
					    "reduce_scatterv", "all_gatherv"};
	size_t at = 0;

	while (found[at] == c->host[side][at])
		at++;
	snprintf(c->why, sizeof c->why,
		 "%s, dtype %d, op %d, count %zu, late %zu and %zu%s: byte %zu of %s is %u and not "
		 "%u",
		 names[c->what], (int)c->dtype, (int)c->op, c->count, c->late[0], c->late[1],
		 c->in_place ? ", in place" : "", at, side ? "recv" : "send", found[at],
		 c->host[side][at]);
}

bool across_check(struct across_call *c)
{
	unsigned char *found = malloc(ROOM);
	bool is_right = true;

	for (int i = 0; i < 2 && is_right; i++) {
		gpu_read(found, c->device[i], ROOM);
		is_right = memcmp(found, c->host[i], ROOM) == 0;
		if (!is_right)
			explain(c, i, found);
	}
	free(found);
	return is_right;
}
