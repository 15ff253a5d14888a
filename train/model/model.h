/* The door of model/: the tables of a model, its layout in memory, and the bytes that it needs.
 *
 * The tables are plain values: a trainer has a copy, and several ranks of one process may read the
 * same model. The rest is arithmetic on model and config, with the same result on every rank. */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include "core/memory/dtype.h"
#include "train/mesh/axes.h"
#include "train/model/tensor_order.h"

#include <tutti/train.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODEL_NAME_BYTES = 128, MODEL_DIMS = 8, MODEL_PARTIAL_BYTES = 96 };

struct unit {
	char name[MODEL_NAME_BYTES];
	void *stream; /* NULL: the config's */
	int stage;    /* of "pp"; -1: none was given */
};

/* The part of a parameter that is on this rank: without a mesh, all of it. */
struct mesh_part {
	struct tensor_order order; /* of the split tensor: this rank's elements follow each other in
				    * it, from first on */
	size_t first, whole;       /* whole: elements of the tensor */
	int piece;                 /* which one of the split this is; 0: the only one */
	int index;                 /* in the whole model */
	int kind;                  /* parameters of another kind lie in other spans */
	bool is_tied;              /* its units are on several stages */
	int sum_group;             /* of gradients, in struct model_groups; -1: none */
	bool is_counted;           /* in norms, and saved: of several ranks with the same, by one */
};

struct param {
	char name[MODEL_NAME_BYTES];
	int unit, group, ndim;
	int64_t shape[MODEL_DIMS];
	size_t count; /* elements on this rank */
	unsigned flags;
	bool is_extern;    /* data and grad are the caller's */
	tutti_dtype dtype; /* of data, if is_extern */
	void *data, *grad;
	char split_axis[AXIS_NAME_BYTES]; /* "": not split; else along split_dim */
	int split_dim;
	char partial[MODEL_PARTIAL_BYTES]; /* "tp,": axes over which its gradient is summed */
	struct mesh_part part;
};

/* A unit that adds to a parameter's gradient: its own unit, and those of tutti_model_unit_uses. */
struct unit_use {
	int param, unit;
};

struct buffer {
	char name[MODEL_NAME_BYTES];
	tutti_dtype dtype;
	size_t count;
	void *data; /* the caller's */
};

/* The caller's own state, which is saved and loaded. */
struct state {
	char name[MODEL_NAME_BYTES];
	void *data;
	size_t bytes;
	bool per_rank; /* each rank has its own */
};

struct tutti_model {
	struct unit *units;
	struct param *params;
	struct unit_use *uses;
	struct buffer *buffers;
	struct state *states;
	int unit_count, param_count, use_count, buffer_count, state_count;
	size_t elements; /* of all parameters */
	int kind_count;    /* mesh_part.kind is less, at least 1 */
	bool is_pipelined; /* "pp" has several ranks: forwards follow backwards, and gradients are
			    * held until the last micro-batch */
};

/* Makes a deep copy in to. MEMORY leaves nothing to free. */
tutti_status model_copy(struct tutti_model *to, const struct tutti_model *from);
/* Frees the tables, not the struct. */
void model_finish(struct tutti_model *model);

/* The place in the whole tensor of element i of those on this rank. *run: how many of them follow
 * each other there, from this one on; perhaps beyond the piece. */
static inline size_t param_place_in_whole(const struct param *param, size_t i, size_t *run)
{
	return order_map(param->part.order, (struct tensor_order){0, 0}, param->ndim, param->shape,
			 param->part.first + i, run);
}

/* model_mesh.c: what of a model is on one rank of a mesh. */

enum { MODEL_SUM_GROUPS = 16, MODEL_STAGES = 64 };

/* Ranks whose gradients of some parameters are added up: those that differ in these axes only; of a
 * tied parameter those on its stages. */
struct sum_group {
	unsigned axes;   /* bit i: axis i of the mesh */
	uint64_t stages; /* bit s: coordinate s of "pp"; 0: not tied */
};

struct model_groups {
	struct sum_group list[MODEL_SUM_GROUPS];
	int count;
};

/* Leaves of the model what is on this rank: pieces of split parameters, and of "pp" the units of
 * its stages. *locals, the caller's to free: for each parameter of the whole model its index there,
 * or -1. Local, with the same result on all ranks but for what stays. INVALID; MEMORY. */
tutti_status model_localize(struct tutti_model *model, int **locals, struct model_groups *groups,
			    const struct axes *axes, int rank);
/* Whether the unit is on this rank. */
bool unit_is_here(const struct unit *unit, const struct axes *axes, int rank);
/* An axis along which ranks have other data: "dp" and "cp", which strategies reduce over. */
bool axis_is_reduced(const char *name);

/* INVALID: there is no such parameter. */
tutti_status model_check_param(const struct tutti_model *model, const char *function, int param);

static inline bool param_is_trained(const struct param *param)
{
	return !(param->flags & TUTTI_PARAM_FROZEN);
}

/* span_layout.c: which parameters are sent together, and which part belongs to which rank. */

/* Parameters that are gathered and reduced together: the parameters of a bucket, or with FSDP of
 * one unit. They are contiguous, and each begins on a cache line. */
struct param_span {
	int *params, param_count; /* in the order in memory */
	bool is_trained;          /* has gradients and optimizer state */
	bool is_split;            /* each rank of a shard group has the state of one part */
	bool is_sharded;          /* FSDP: each rank keeps the values of that part only */
	bool keeps_grad;          /* the whole gradient stays; otherwise until it is reduced */
	bool is_in_place;         /* one extern parameter, used in place */
	int home;                 /* of its units */
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
	int *unit_homes;      /* one per unit; units of the same stream have the same home */
	int home_count;       /* at least 1 */
	int shard_size, replica_count; /* the ranks of a shard group; the groups */
	bool by_unit; /* FSDP: a span belongs to one unit, and starts when the unit has ended */
	size_t *cut_memory;
	int *param_memory, *unit_memory;
};

/* MEMORY leaves nothing to free. */
tutti_status layout_make(struct model_layout *layout, const struct tutti_model *model,
			 const tutti_train_config *config, int world_size, int node);
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

static inline void *element_at(void *values, tutti_dtype dtype, size_t element)
{
	return (char *)values + element * dtype_bytes(dtype);
}

/* Where units compute. */

void *unit_stream(const struct tutti_model *model, const tutti_train_config *config, int unit);
/* The first unit of the same stream. */
int unit_leader(const struct tutti_model *model, const tutti_train_config *config, int unit);
/* A unit of this home; -1: there are no units. */
int home_unit(const struct model_layout *layout, const struct tutti_model *model, int home);

/* memory_need.c: how many bytes a rank needs, before anything is allocated. */

/* Sets param_bytes, grad_bytes and optimizer_bytes of stats: what stays on this rank of the shard
 * group, with AdamW, without padding. */
void memory_resident(const struct model_layout *layout, const struct tutti_model *model,
		     const tutti_train_config *config, int shard_rank, tutti_train_stats *stats);
/* The bytes of all slots that the plain order of units needs, or a pipeline; the same on all ranks
 * with the same part of the model. MEMORY. */
tutti_status memory_for_slots(const struct model_layout *layout, const struct tutti_model *model,
			      const tutti_train_config *config, size_t *bytes);
/* MEMORY, with the sum, when needed is more than memory_limit. */
tutti_status memory_check(const tutti_train_config *config, const tutti_train_stats *needed);

/* Each rank keeps the part of its left neighbour, too. HSDP needs none: the other shard groups have
 * each part. */
bool layout_has_shadow(const struct model_layout *layout, const tutti_train_config *config);
/* Gradients are sent. Only local SGD sends none. */
bool config_has_wire(const tutti_train_config *config);
/* The type of a span's reduced gradients. */
tutti_dtype span_sum_dtype(const struct param_span *span, const tutti_train_config *config);

/* memory_need.c: the slots that a home needs for whole units while they are gathered and for whole
 * gradients until they are reduced. */

/* The bytes of each slot. */
struct slot_sizes {
	size_t *bytes;
	int count;
};

/* The slots that suffice in plain order: forward of all units as they were registered, then
 * backward in reverse. In a pipeline: for units in any order, and for all gradients at once. MEMORY
 * leaves nothing to free. */
tutti_status slots_for_units(struct slot_sizes *slots, const struct model_layout *layout,
			     const struct tutti_model *model, const tutti_train_config *config,
			     int home);
tutti_status slots_for_grads(struct slot_sizes *slots, const struct model_layout *layout,
			     const struct tutti_model *model, const tutti_train_config *config,
			     int home);
/* The slots for all gradients at once, and for so many copies of the largest if they are sent as
 * another type, smallest first: needed when micro-batches are added before gradients are sent. */
tutti_status slots_for_whole(struct slot_sizes *slots, const struct model_layout *layout,
			     const tutti_train_config *config, int home, int copies);
void slots_finish(struct slot_sizes *slots);

/* config's prefetch_units, at most the number of units. */
int units_ahead(const tutti_train_config *config, const struct tutti_model *model);

#endif
