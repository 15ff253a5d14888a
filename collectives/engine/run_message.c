/* The message of a step on one slice: where its bytes lie, and its tag. */
#include "collectives/engine/direct.h"
#include "collectives/engine/run.h"

#include <assert.h>

/* Neighbouring chunks become one piece. Returns the number of pieces. */
static uint32_t gather_pieces(const struct run *r, const struct step *s, struct step_io *io)
{
	struct tutti_piece *piece = io->pieces;
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->refs; i++) {
		struct ref ref = r->plan->refs[s->ref + i];
		size_t bytes = run_length(r, plan_shape_of(r->plan, ref), io->slice) * r->element;
		uint8_t *at = run_address(r, ref, io->slice);
		if (bytes == 0)
			continue;
		if (n && (uint8_t *)piece[n - 1].buf + piece[n - 1].bytes == at)
			piece[n - 1].bytes += bytes;
		else
			piece[n++] = (struct tutti_piece){at, bytes};
		io->base.op.io.bytes += bytes;
	}
	return n;
}

/* The count of a pair is in the tag, so the receiver finds different counts at the first message.
 */
static uint32_t message_tag(const struct run *r, const struct step *s)
{
	uint32_t tag = r->work->spec.args.fingerprint;
	if (!r->work->spec.checks_counts)
		return tag;
	uint32_t shape = plan_shape_of(r->plan, r->plan->refs[s->ref]);
	uint64_t count = layout_length(&r->work->spec.layout, shape) * 0x9e3779b97f4a7c15u;
	return tag ^ (uint32_t)(count >> 32);
}

/* NULL for host memory. */
static void *map_of(const struct run *r, struct ref ref)
{
	struct direct_map *const *maps = work_task(r->work)->direct.maps;

	if (ref.buf != BUF_TMP)
		return direct_map_of(maps[ref.buf == BUF_IN ? DIRECT_IN : DIRECT_OUT]);
	return r->plan->tmp[ref.chunk].pool != POOL_HOST ? direct_map_of(maps[DIRECT_SCRATCH])
							 : NULL;
}

void run_lay_message(const struct lane_run *l, const struct step *s, struct step_io *io)
{
	const struct run *r = l->run;
	struct tutti_io *t = &io->base.op.io;
	struct ref first = s->kind == STEP_RECV_REDUCE ? s->dst : r->plan->refs[s->ref];

	t->tag = message_tag(r, s);
	t->map = s->kind == STEP_RECV_REDUCE ? NULL : map_of(r, first);
	t->asks = r->work->spec.direct_kind &&
		  direct_reaches(r->work->engine, s->peer, r->work->spec.direct_kind);
	t->pieces = NULL;
	if (s->kind != STEP_RECV_REDUCE && s->refs > 1) {
		t->bytes = 0;
		t->piece_count = gather_pieces(r, s, io);
		t->buf = io->pieces[0].buf;
		if (t->piece_count > 1)
			t->pieces = io->pieces;
		if (t->bytes == 0)
			t->map = NULL;
		assert(!t->map || !t->pieces || s->kind == STEP_SEND);
		return;
	}
	t->bytes = run_length(r, plan_shape_of(r->plan, first), io->slice) * r->element;
	t->buf = s->kind == STEP_RECV_REDUCE ? l->landing + (size_t)(io - l->ios) * r->slice_stride
					     : run_address(r, first, io->slice);
	if (t->bytes == 0)
		t->map = NULL;
}
