/* What each rank should have after a call, by the host's reductions and copies. */
#include "channel_world.h"

#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "core/memory/reduce.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static const char *const names[] = {"all_reduce", "reduce",     "reduce_scatter",
				    "all_gather", "broadcast",  "gather",
				    "scatter",    "all_to_all", "all_to_allv"};

static void expect_reduced(const struct world *w, const struct world_call *c, int rank, char *out)
{
	size_t count = c->counts[0][0], at = 0;
	const void *src[WORLD_RANKS];
	void *scaled[WORLD_RANKS] = {NULL}, *dst = out;

	if (c->kind == CALL_REDUCE_SCATTER)
		at = (size_t)rank * count * dtype_bytes(c->dtype);
	for (int r = 0; r < w->size; r++) {
		src[r] = c->sent[r] + at;
		if (!c->is_scaled)
			continue;
		scaled[r] = malloc(count * dtype_bytes(c->dtype) + 1);
		scale(scaled[r], src[r], &c->scalars[r], count, c->dtype);
		src[r] = scaled[r];
	}
	reduce(&dst, 1, src, w->size, count, c->dtype, c->op, w->size);
	for (int r = 0; r < w->size; r++)
		free(scaled[r]);
}

/* The block of rank `from` in what it has sent, for `to`. */
static const char *block_of(const struct world_call *c, int from, int to)
{
	size_t at = 0;

	if (c->kind == CALL_SCATTER || c->kind >= CALL_ALL_TO_ALL)
		for (int r = 0; r < to; r++)
			at += c->counts[from][r];
	return c->sent[from] + at * dtype_bytes(c->dtype);
}

static void expect_copied(const struct world *w, const struct world_call *c, int rank, char *out)
{
	bool from_root = c->kind == CALL_BROADCAST || c->kind == CALL_SCATTER;

	for (int from = 0; from < w->size; from++) {
		size_t bytes = c->counts[from][rank] * dtype_bytes(c->dtype);
		if (from_root && from != c->root)
			continue;
		memcpy(out, block_of(c, from, rank), bytes);
		out += bytes;
	}
}

void world_check(const struct world *w, const struct world_call *c)
{
	for (int r = 0; r < w->size; r++) {
		bool to_root = c->kind == CALL_REDUCE || c->kind == CALL_GATHER;
		char *want = calloc(1, c->recv_bytes[r] + 1);
		assert_non_null(want);
		if (to_root && r != c->root) {
			free(want);
			continue;
		}
		if (c->kind <= CALL_REDUCE_SCATTER)
			expect_reduced(w, c, r, want);
		else
			expect_copied(w, c, r, want);
		for (size_t i = 0; i < c->recv_bytes[r]; i++)
			if (c->got[r][i] != want[i])
				fail_msg("%s by %s of %zu %s, %s, %d ranks, %u blocks, root %d%s: "
					 "rank %d differs at byte %zu",
					 names[c->kind], c->by_packets ? "packets" : "lines",
					 c->counts[0][0], dtype_name(c->dtype), op_name(c->op),
					 w->size, c->blocks, c->root,
					 c->in_place ? ", in place" : "", r, i);
		free(want);
	}
}
