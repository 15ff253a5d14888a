/* Copies and a reduction at once. Blocks are so short that the processor, while it waits for lines
 * of one, has already come to the next. */
#include "core/memory/weave.h"

#include "core/memory/dtype.h"
#include "core/memory/float_unit.h"
#include "core/memory/ops.h"
#include "core/memory/reduce.h"

#include <string.h>

#define BLOCK_BYTES  1024u
#define COPY_LONGEST (128u << 10) /* a longer one goes past the caches, by memcpy */
#define STREAMS      4            /* at least: fewer strands are begun in several places */

static size_t weave_least(size_t a, size_t b)
{
	return a < b ? a : b;
}

void weave_copy(struct weave *w, void *dst, const void *src, size_t bytes)
{
	if (!bytes || dst == src)
		return;
	if (bytes > COPY_LONGEST) {
		memcpy(dst, src, bytes);
		return;
	}
	if (w->n_copies == WEAVE_COPIES)
		weave_run(w);
	w->copies[w->n_copies++] = (struct strand){dst, src, bytes};
}

void weave_reduce(struct weave *w, const struct reduction *r)
{
	struct reduction kernels = *r;

	kernels.op = op_kernel(r->op);
	if (w->reduction.count)
		weave_run(w);
	w->sum = reduce_sum_of(reduce_kernels_of(simd_level()), &kernels);
	if (w->sum) {
		w->reduction = kernels;
		w->unit_shift = __builtin_ctzl(dtype_bytes(r->dtype));
	} else {
		reduce(r->dst, r->n_dst, r->src, r->n_src, r->count, r->dtype, r->op, r->divisor);
	}
}

/* The sum fetches the block that comes when all others have had their turn, where streams are so
 * few, or instructions a line so many (16-bit floats), that the processor does not come there by
 * itself. */
static size_t weave_ahead_of(const struct weave *w)
{
	int most = w->unit_shift == 1 ? 4 : w->n_copies == 0 ? 2 : 0;
	return w->reduction.n_src <= most ? BLOCK_BYTES : 0;
}

/* From byte from on, of each; part is the reduction, to be cut. */
static void weave_do_block(const struct weave *w, const struct reduce_kernels *k,
			   struct reduction *part, size_t from)
{
	int unit = w->unit_shift;
	size_t end = w->reduction.count << unit;

	if (from < end) {
		part->count = weave_least(end, from + BLOCK_BYTES) >> unit;
		w->sum(part, from >> unit, weave_ahead_of(w));
	}
	for (int i = 0; i < w->n_copies; i++) {
		const struct strand *s = &w->copies[i];
		if (from < s->bytes)
			k->copy(s->dst + from, s->src + from,
				weave_least(s->bytes - from, BLOCK_BYTES));
	}
}

static size_t weave_longest_of(const struct weave *w)
{
	size_t longest = w->reduction.count << w->unit_shift;

	for (int i = 0; i < w->n_copies; i++)
		longest = longest < w->copies[i].bytes ? w->copies[i].bytes : longest;
	return longest;
}

void weave_run(struct weave *w)
{
	const struct reduce_kernels *k = reduce_kernels_of(simd_level());
	struct reduction part = w->reduction;
	size_t strands = (size_t)w->n_copies + (part.count > 0);
	size_t places = strands ? (STREAMS + strands - 1) / strands : 1, stretch;
	uint64_t settings = float_unit_begin();

	stretch = (weave_longest_of(w) / places / BLOCK_BYTES + 1) * BLOCK_BYTES;
	for (size_t at = 0; at < stretch; at += BLOCK_BYTES) {
		for (size_t place = 0; place < places; place++)
			weave_do_block(w, k, &part, place * stretch + at);
	}
	float_unit_end(settings);
	w->n_copies = 0;
	w->reduction.count = 0;
}
