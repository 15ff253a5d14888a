/* Steps that touch the same memory, at least one of them writing, must wait for each other in the
 * order of the program: read after write, write after read, write after write. Otherwise what a
 * plan does depends on when messages arrive. The edges needed are found anew here, with in place's
 * overlaps, and compared. */
#include "check.h"

#include "tools/must.h"

#include <stdio.h>
#include <string.h>

#define NONE UINT32_MAX

/* Steps that have read a cell since it was written, as lists. */
struct reader {
	uint32_t step, next;
};

struct history {
	const struct plan *plan;
	bool in_place;
	uint32_t *writer, *readers; /* by cell: a step; the head of a list                     */
	struct reader *reader;
	size_t count, room;
	struct before before;
	bool *seen; /* by step: found already, in one search                        */
	uint32_t *todo;
};

/* Does step wait for from, directly or not? */
static bool leads_to(struct history *h, uint32_t from, uint32_t step)
{
	uint32_t n = 0;
	h->todo[n++] = step;
	while (n) {
		uint32_t at = h->todo[--n];
		for (uint32_t i = h->before.first[at]; i < h->before.first[at + 1]; i++) {
			uint32_t earlier = h->before.at[i];
			if (earlier == from)
				return true;
			if (earlier < from || h->seen[earlier])
				continue;
			h->seen[earlier] = true;
			h->todo[n++] = earlier;
		}
	}
	return false;
}

static bool is_direct(const struct history *h, uint32_t from, uint32_t step)
{
	for (uint32_t i = h->before.first[step]; i < h->before.first[step + 1]; i++)
		if (h->before.at[i] == from)
			return true;
	return false;
}

static bool order_waits(struct history *h, uint32_t from, uint32_t step)
{
	if (from == NONE || from == step || is_direct(h, from, step))
		return true;
	memset(h->seen, 0, h->plan->count * sizeof *h->seen);
	return leads_to(h, from, step);
}

static bool order_races(const struct history *h, uint32_t from, uint32_t step, struct ref r,
			struct finding *f)
{
	char earlier[512], later[512], chunk[64];
	return finding_says(f, "Rank %d: %s does not wait for %s, though both use %s.",
			    h->plan->rank, look_step_in_words(h->plan, step, later, sizeof later),
			    look_step_in_words(h->plan, from, earlier, sizeof earlier),
			    look_refs_in_words((struct refs){&r, 1}, chunk, sizeof chunk));
}

static bool order_reads(struct history *h, uint32_t step, struct ref r, struct finding *f)
{
	uint32_t cell = look_cell(h->plan, r, h->in_place);

	if (!order_waits(h, h->writer[cell], step))
		return order_races(h, h->writer[cell], step, r, f);
	h->reader = must_grow(h->reader, h->count, &h->room, sizeof *h->reader);
	h->reader[h->count] = (struct reader){step, h->readers[cell]};
	h->readers[cell] = (uint32_t)h->count++;
	return true;
}

static bool order_writes(struct history *h, uint32_t step, struct ref r, struct finding *f)
{
	uint32_t cell = look_cell(h->plan, r, h->in_place);

	for (uint32_t i = h->readers[cell]; i != NONE; i = h->reader[i].next)
		if (!order_waits(h, h->reader[i].step, step))
			return order_races(h, h->reader[i].step, step, r, f);
	if (h->readers[cell] == NONE && !order_waits(h, h->writer[cell], step))
		return order_races(h, h->writer[cell], step, r, f);
	h->writer[cell] = step;
	h->readers[cell] = NONE;
	return true;
}

static bool order_check_steps(struct history *h, struct finding *f)
{
	for (uint32_t s = 0; s < h->plan->count; s++) {
		struct refs in = look_reads(h->plan, s), out = look_writes(h->plan, s);
		for (uint32_t i = 0; i < in.n; i++)
			if (!order_reads(h, s, in.at[i], f))
				return false;
		for (uint32_t i = 0; i < out.n; i++)
			if (!order_writes(h, s, out.at[i], f))
				return false;
	}
	return true;
}

static bool check_rank(const struct plan *p, bool in_place, struct finding *f)
{
	uint32_t cells = look_cells(p);
	struct history h = {.plan = p,
			    .in_place = in_place,
			    .writer = must_alloc(cells, sizeof(uint32_t)),
			    .readers = must_alloc(cells, sizeof(uint32_t)),
			    .seen = must_alloc(p->count, sizeof(bool)),
			    .todo = must_alloc(p->count + 1, sizeof(uint32_t)),
			    .before = look_before(p)};
	for (uint32_t c = 0; c < cells; c++)
		h.writer[c] = h.readers[c] = NONE;
	bool ok = order_check_steps(&h, f);
	look_before_free(&h.before);
	free(h.writer);
	free(h.readers);
	free(h.reader);
	free(h.seen);
	free(h.todo);
	return ok;
}

bool check_order(const struct plan_set *set, struct finding *f)
{
	for (int r = 0; r < set->size; r++)
		if (!check_rank(set->of[r], set->in_place, f))
			return false;
	return true;
}
