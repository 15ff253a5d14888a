/* How a model lies in memory: which parameters are sent together, and which part belongs to which
 * rank. Arithmetic, with the same result on every rank. */
#ifndef TRAIN_SPAN_LAYOUT_H
#define TRAIN_SPAN_LAYOUT_H

#include "train/model/model.h"

/* An extern tensor of at least this size is a span of its own, and is used in place. */
#define IN_PLACE_BYTES ((size_t)1 << 20)

/* Parameters that are gathered and reduced together: the parameters of a bucket, or with FSDP of
 * one unit. They are contiguous, and each begins on a cache line. */
struct param_span {
	int *params, param_count; /* in the order in memory */
	bool is_trained;          /* has gradients and optimizer state */
	bool is_split;            /* each rank of a shard group has the state of one part */
	bool is_sharded;          /* FSDP: each rank keeps the values of that part only */
	bool keeps_grad;          /* the whole gradient stays; otherwise until it is reduced */
	bool is_in_place;         /* one extern parameter, used in place */
	bool has_extern;
	size_t count;          /* elements, with the padding between parameters */
	size_t elements;       /* without padding */
	size_t *cuts, *shares; /* rank r of the shard group has [cuts[r], cuts[r + 1]), of size
			        * shares[r] */
};

/* The place of a parameter. */
struct param_place {
	int span;
	size_t offset; /* of its first element in the span */
};

struct model_layout {
	struct param_span *spans;
	int span_count; /* trained spans first, in the order in which DDP starts them */
	int trained_count;
	struct param_place *places; /* one per parameter */
	int **unit_spans;     /* the spans that each unit uses; each list ends with -1 */
	int shard_size;
	bool by_unit; /* FSDP: a span belongs to one unit, and starts when the unit has ended */
	size_t *cut_memory;
	int *param_memory, *unit_memory;
};

/* The number of ranks that share a model's state. node: the ranks of a node, the default of HSDP.
 */
int layout_shard_size(const tutti_train_config *config, int world_size, int node);
/* MEMORY leaves nothing to free. */
tutti_status layout_make(struct model_layout *layout, const struct tutti_model *model,
			 const tutti_train_config *config, int shard_size);
void layout_finish(struct model_layout *layout);

/* The part of a span that a rank of the shard group has: all of it if the span is not split. */
struct element_range {
	size_t first, last;
};
struct element_range span_part(const struct param_span *span, int rank);
/* The elements of param in this part, counted from the parameter's first element. first == last if
 * there are none. */
struct element_range param_part(const struct model_layout *layout, const struct tutti_model *model,
				int param, struct element_range part);
/* The elements of parameters in a part, without padding. */
size_t part_elements(const struct model_layout *layout, const struct tutti_model *model,
		     const struct param_span *span, struct element_range part);

size_t dtype_bytes(tutti_dtype dtype);
static inline void *element_at(void *values, tutti_dtype dtype, size_t element)
{
	return (char *)values + element * dtype_bytes(dtype);
}

/* The elements that a parameter takes in a span: the next one begins on a cache line. */
static inline size_t param_room(size_t elements)
{
	return (elements + 15) / 16 * 16;
}

/* Sets span->cuts. cut_flat makes equal parts, also in the middle of a parameter. cut_whole assigns
 * whole tensors, and reorders the span so that a rank's tensors are contiguous. loads: the elements
 * of each rank in other spans so far. owners: room for one int per parameter. */
void cut_flat(struct param_span *span, const struct model_layout *layout,
	      const struct tutti_model *model, size_t ranks);
void cut_whole(struct param_span *span, const struct tutti_model *model, size_t *loads, int ranks,
	       int *owners);

#endif
