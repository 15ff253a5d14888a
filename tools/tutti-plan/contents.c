/* The effect of steps on the contents of chunks: reading, writing, adding; and whether that is
 * allowed, and in the end what the collective promises. */
#include "execute.h"

#include "tools/must.h"

#include <stdio.h>

static void contents_wrong(struct execution *x, int rank, uint32_t step, const char *what)
{
	char words[512];
	if (!x->failed)
		finding_says(x->finding, "Rank %d: %s %s.", rank,
			     look_step_in_words(x->ranks[rank].plan, step, words, sizeof words),
			     what);
	x->failed = true;
}

static uint32_t *cell_of(struct execution *x, int rank, struct ref r)
{
	struct rank_state *s = &x->ranks[rank];
	return &s->holds[look_cell(s->plan, r, x->set->in_place)];
}

/* A barrier has no data: what it reads before anything has come is this rank's own signal. */
uint32_t contents_read(struct execution *x, int rank, uint32_t step, struct ref r)
{
	uint32_t value = *cell_of(x, rank, r);
	char what[160], chunk[64];

	if (value == 0 && x->set->algorithm->collective == COLL_BARRIER)
		return value_of_rank(&x->values, 0, rank);
	if (value == 0) {
		look_refs_in_words((struct refs){&r, 1}, chunk, sizeof chunk);
		snprintf(what, sizeof what, "reads %s, which nothing has been written to", chunk);
		contents_wrong(x, rank, step, what);
	}
	return value;
}

void contents_write(struct execution *x, int rank, uint32_t step, struct ref r, uint32_t value)
{
	struct rank_state *s = &x->ranks[rank];
	bool is_signal = x->set->algorithm->collective == COLL_BARRIER;

	if (r.buf == BUF_IN && look_cell(s->plan, r, x->set->in_place) < s->plan->chunks[BUF_IN])
		contents_wrong(x, rank, step, "writes IN, which belongs to the caller");
	if (r.buf == BUF_OUT && !is_signal && promise_of(x->set, rank, r).holder == HOLDS_NOTHING)
		contents_wrong(x, rank, step, "writes OUT, which only the root has");
	*cell_of(x, rank, r) = value;
	s->writer[look_cell(s->plan, r, x->set->in_place)] = step;
}

/* Only equal blocks are added, none twice, and none after the sum was called complete. */
static void contents_check_operands(struct execution *x, int rank, uint32_t step, uint32_t n)
{
	const struct value *first = &x->values.value[x->operands[0]];
	for (uint32_t i = 0; i < n; i++) {
		const struct value *v = &x->values.value[x->operands[i]];
		if (v->block != first->block) {
			char a[200], b[200], what[500];
			value_in_words(&x->values, x->operands[0], a, sizeof a);
			value_in_words(&x->values, x->operands[i], b, sizeof b);
			snprintf(what, sizeof what, "adds %s to %s", b, a);
			contents_wrong(x, rank, step, what);
		}
		if (v->is_finished && x->set->size > 1)
			contents_wrong(x, rank, step, "adds to a sum that was complete");
		if (v->is_scaled != first->is_scaled)
			contents_wrong(x, rank, step, "adds what is scaled to what is not");
	}
}

static uint32_t contents_summed(struct execution *x, int rank, uint32_t step, uint32_t n)
{
	int twice;
	char what[500], words[300];

	for (uint32_t i = 0; i < n; i++)
		if (x->operands[i] == 0)
			return 0; /* has been reported */
	if (x->set->algorithm->collective != COLL_BARRIER)
		contents_check_operands(x, rank, step, n);
	uint32_t sum = value_union(&x->values, x->operands, n, &twice);
	if (twice >= 0 && x->set->algorithm->collective != COLL_BARRIER) {
		value_in_words(&x->values, x->operands[0], words, sizeof words);
		snprintf(what, sizeof what, "adds rank %d's contribution twice, to %s", twice,
			 words);
		contents_wrong(x, rank, step, what);
	}
	return sum;
}

static uint32_t contents_finished(struct execution *x, int rank, uint32_t step, uint32_t value)
{
	bool is_signal = x->set->algorithm->collective == COLL_BARRIER;
	int lacks = value && !is_signal ? value_lacks(&x->values, value, x->set->size) : -1;
	char what[160];

	if (!value)
		return 0;
	if (lacks >= 0) {
		snprintf(what, sizeof what, "calls a sum complete that lacks rank %d's part",
			 lacks);
		contents_wrong(x, rank, step, what);
	}
	if (x->values.value[value].is_finished && x->set->size > 1)
		contents_wrong(x, rank, step, "calls a sum complete that was so before");
	return value_marked(&x->values, value, true, x->values.value[value].is_scaled);
}

static uint32_t contents_scaled(struct execution *x, int rank, uint32_t step, uint32_t value)
{
	if (value && x->values.value[value].is_scaled)
		contents_wrong(x, rank, step, "scales what is scaled");
	return value ? value_marked(&x->values, value, false, true) : 0;
}

/* Computes a step whose operands have been read. */
void contents_compute(struct execution *x, int rank, uint32_t step, uint32_t n)
{
	const struct step *s = &x->ranks[rank].plan->steps[step];
	uint32_t value = x->operands[0];

	if (s->kind == STEP_REDUCE || s->kind == STEP_RECV_REDUCE)
		value = contents_summed(x, rank, step, n);
	if (s->kind == STEP_FINISH || s->ends_average)
		value = contents_finished(x, rank, step, value);
	if (s->kind == STEP_SCALE)
		value = contents_scaled(x, rank, step, value);
	contents_write(x, rank, step, s->dst, value);
}

/* In place, where IN and OUT have as many chunks, plans name OUT alone. */
void contents_fill(struct execution *x, int rank)
{
	const struct plan *p = x->set->of[rank];
	for (uint32_t c = 0; c < p->chunks[BUF_IN]; c++) {
		struct ref r = {BUF_IN, c};
		struct content has = promise_of(x->set, rank, r);
		if (has.holder == HOLDS_ONE_RANK && x->set->algorithm->collective != COLL_BARRIER)
			*cell_of(x, rank, r) = value_of_rank(&x->values, has.block, has.rank);
	}
}

/* Says what is wrong with a chunk's value, or NULL. */
static const char *contents_mistake(const struct execution *x, uint32_t has, struct content want)
{
	const struct value *v = &x->values.value[has];
	bool all = want.holder == HOLDS_ALL_RANKS;

	if (!has)
		return "is not there";
	if (all ? v->block != want.block || value_lacks(&x->values, has, x->set->size) >= 0
		: !value_is_of(&x->values, has, want.block, want.rank))
		return "is something else";
	if (v->is_finished != all)
		return all ? "was never called complete" : "was called complete";
	return v->is_scaled != x->set->options.scaled ? "is not scaled as it should be" : NULL;
}

static void check_chunk(struct execution *x, int rank, struct ref r)
{
	struct rank_state *s = &x->ranks[rank];
	struct content want = promise_of(x->set, rank, r);
	uint32_t cell = look_cell(s->plan, r, x->set->in_place), has = s->holds[cell];
	char held[300], chunk[64], wanted[64] = "all ranks", last[512] = "no step";
	const char *wrong = want.holder == HOLDS_NOTHING ? NULL : contents_mistake(x, has, want);

	if (!wrong)
		return;
	if (want.holder == HOLDS_ONE_RANK)
		snprintf(wanted, sizeof wanted, "rank %d", want.rank);
	if (s->writer[cell] != NONE)
		look_step_in_words(s->plan, s->writer[cell], last, sizeof last);
	finding_says(x->finding,
		     "Rank %d: %s should end with block %u of %s; what it has, %s, %s. It was last "
		     "written by %s.",
		     rank, look_refs_in_words((struct refs){&r, 1}, chunk, sizeof chunk),
		     want.block, wanted, value_in_words(&x->values, has, held, sizeof held), wrong,
		     last);
	x->failed = true;
}

/* A rank may leave a barrier only when it has heard of all ranks: some chunk says so. */
static void check_barrier(struct execution *x, int rank)
{
	struct rank_state *s = &x->ranks[rank];
	uint32_t cells = look_cells(s->plan), heard = value_of_rank(&x->values, 0, rank);
	int twice, lacks;

	for (uint32_t c = 0; c < cells; c++)
		if (s->holds[c])
			heard = value_union(&x->values, (uint32_t[]){heard, s->holds[c]}, 2,
					    &twice);
	if ((lacks = value_lacks(&x->values, heard, x->set->size)) < 0)
		return;
	finding_says(x->finding, "Rank %d leaves the barrier without having heard of rank %d.",
		     rank, lacks);
	x->failed = true;
}

void contents_check(struct execution *x, int rank)
{
	if (x->set->algorithm->collective == COLL_BARRIER) {
		check_barrier(x, rank);
		return;
	}
	for (uint32_t c = 0; c < x->ranks[rank].plan->chunks[BUF_OUT] && !x->failed; c++)
		check_chunk(x, rank, (struct ref){BUF_OUT, c});
}
