/* How a model lies in memory: which parameters travel as one, and which part of them is whose. Pure
 * arithmetic, the same on every rank. */
#ifndef TRAIN_LAYOUT_H
#define TRAIN_LAYOUT_H

#include "train/model/model.h"

/* An extern tensor of at least so many bytes is a bucket of its own, used where it lies. */
#define IN_PLACE_BYTES ((size_t)1 << 20)

/* Parameters that are gathered and reduced as one: a bucket of units, or with FSDP one unit's. They
 * lie one behind the other, each on cache lines of its own. */
struct param_span {
	int *params, param_count; /* in the order in which they lie */
	bool is_trained;          /* they have gradients and optimizer state */
	bool is_split;            /* each rank of a shard group has the state of one part */
	bool is_sharded;          /* and keeps the values of that part only: FSDP */
	bool keeps_grad;          /* the whole gradient stays; else until it is reduced */
	bool is_in_place;         /* one extern parameter, used where it lies */
	bool has_extern;
	size_t count;          /* elements, with the padding between parameters */
	size_t elements;       /* without it */
	size_t *cuts, *shares; /* rank r of the shard group has [cuts[r], cuts[r + 1]), which are
				  shares[r] */
};

/* Where a parameter lies. */
struct param_place {
	int span;
	size_t offset; /* of its first element in the span */
};

struct model_layout {
	struct param_span *spans;
	int span_count; /* those with gradients first, in the order in which DDP's start */
	int trained_count;
	struct param_place *places; /* one a parameter */
	int **unit_spans;     /* those that a unit uses, each list ended by -1 */
	int shard_size;
	bool by_unit; /* a span is one unit's, and starts when that has ended: FSDP */
	size_t *cut_memory;
	int *param_memory, *unit_memory;
};

/* Ranks among which a model's state is split. node: ranks of a node, what HSDP takes where nothing
 * is said. */
int layout_shard_size(const tutti_train_config *config, int world_size, int node);
/* MEMORY leaves nothing to free. */
tutti_status layout_make(struct model_layout *layout, const struct tutti_model *model,
			 const tutti_train_config *config, int shard_size);
void layout_finish(struct model_layout *layout);

/* The part of a span that rank of the shard group has: all of it where nothing is split. */
struct element_range {
	size_t first, last;
};
struct element_range span_part(const struct param_span *span, int rank);
/* Of these elements those that belong to param: flat elements of it. Empty: first == last. */
struct element_range param_part(const struct model_layout *layout, const struct tutti_model *model, int param,
			struct element_range part);
/* Elements of parameters in a part, without padding. */
size_t part_elements(const struct model_layout *layout, const struct tutti_model *model,
		     const struct param_span *span, struct element_range part);

size_t dtype_bytes(tutti_dtype dtype);
static inline void *element_at(void *values, tutti_dtype dtype, size_t element)
{
	return (char *)values + element * dtype_bytes(dtype);
}

/* Elements that a parameter takes in a span: the next one begins on a cache line. */
static inline size_t param_room(size_t elements)
{
	return (elements + 15) / 16 * 16;
}

/* Sets span->cuts. Flat: equal parts of what is not padding, wherever that cuts a parameter. Whole: tensors,
 * whose order in the span changes so that a rank's lie together; loads has what each rank has so far of
 * other spans, owners is room for an int a parameter of the model. */
void cut_flat(struct param_span *span, const struct model_layout *layout, const struct tutti_model *model, size_t ranks);
void cut_whole(struct param_span *span, const struct tutti_model *model, size_t *loads, int ranks, int *owners);

#endif
