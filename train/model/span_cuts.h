/* Between span_layout.c and span_cuts.c: how a span is divided. */
#ifndef TRAIN_SPAN_CUTS_H
#define TRAIN_SPAN_CUTS_H

#include "train/model/model.h"

/* The elements that a parameter takes in a span: the next one begins on a cache line. */
static inline size_t param_room(size_t elements)
{
	return (elements + 15) / 16 * 16;
}

/* Sets span->cuts, but for the last one. cut_flat makes equal parts, also in the middle of a
 * parameter. cut_whole assigns whole tensors, and reorders the span so that a rank's tensors are
 * contiguous. loads: the elements of each rank in other spans so far. owners: room for one int per
 * parameter. */
void cut_flat(struct param_span *span, const struct model_layout *layout,
	      const struct tutti_model *model, size_t ranks);
void cut_whole(struct param_span *span, const struct tutti_model *model, size_t *loads, int ranks,
	       int *owners);

#endif
