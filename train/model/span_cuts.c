/* How a span is divided among the ranks of a shard group. */
#include "train/model/span_cuts.h"

#include <string.h>

enum { SHARD_ELEMENTS = 4 }; /* shards begin at multiples of 16 bytes */

void cut_flat(struct param_span *span, const struct model_layout *layout,
	      const struct tutti_model *model, size_t ranks)
{
	size_t each = span->elements / ranks, more = span->elements % ranks, before = 0;
	int i = 0;

	for (size_t r = 0; r < ranks; r++) {
		size_t target = each * r + more * r / ranks;
		while (i < span->param_count - 1 &&
		       before + model->params[span->params[i]].count <= target)
			before += model->params[span->params[i++]].count;
		size_t cut = (target - before) / SHARD_ELEMENTS * SHARD_ELEMENTS;
		span->cuts[r] = layout->places[span->params[i]].offset + cut;
	}
	span->cuts[0] = 0;
}

/* The rank with the fewest elements so far. Tensors are assigned longest first. */
static int span_cuts_lightest(const size_t *loads, int ranks)
{
	int best = 0;

	for (int r = 1; r < ranks; r++)
		if (loads[r] < loads[best])
			best = r;
	return best;
}

void cut_whole(struct param_span *span, const struct tutti_model *model, size_t *loads, int ranks,
	       int *owners)
{
	for (int i = 0; i < span->param_count; i++)
		owners[span->params[i]] = -1;
	for (int i = 0; i < span->param_count; i++) {
		int next = -1;
		for (int j = 0; j < span->param_count; j++) {
			int p = span->params[j];
			if (owners[p] < 0 &&
			    (next < 0 || model->params[p].count > model->params[next].count))
				next = p;
		}
		owners[next] = span_cuts_lightest(loads, ranks);
		loads[owners[next]] += model->params[next].count;
	}
	int moved = 0;
	for (int r = 0; r < ranks; r++)
		for (int i = moved; i < span->param_count; i++)
			if (owners[span->params[i]] == r) {
				int p = span->params[i];
				memmove(span->params + moved + 1, span->params + moved,
					(size_t)(i - moved) * sizeof p);
				span->params[moved++] = p;
			}
	size_t count = 0;
	for (int r = 0, i = 0; r <= ranks; r++) {
		span->cuts[r] = count;
		for (; r < ranks && i < span->param_count && owners[span->params[i]] == r; i++)
			count += span->is_in_place
					 ? model->params[span->params[i]].count
					 : param_room(model->params[span->params[i]].count);
	}
}
