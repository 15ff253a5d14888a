/* The model: tables of units, parameters and buffers. They are plain values: a trainer has a copy,
 * and several ranks of one process may read the same model. */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include <tutti/train.h>

#include <stdbool.h>

enum { MODEL_NAME_BYTES = 128, MODEL_DIMS = 8 };

struct unit {
	char name[MODEL_NAME_BYTES];
};

struct param {
	char name[MODEL_NAME_BYTES];
	int unit, group, ndim;
	int64_t shape[MODEL_DIMS];
	size_t count; /* elements */
	unsigned flags;
	bool is_extern;    /* data and grad are the caller's */
	tutti_dtype dtype; /* of data, if is_extern */
	void *data, *grad;
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
};

/* Makes a deep copy in to. MEMORY leaves nothing to free. */
tutti_status model_copy(struct tutti_model *to, const struct tutti_model *from);
/* Frees the tables, not the struct. */
void model_finish(struct tutti_model *model);

/* INVALID: the name is not allowed. what: "unit", "state". */
tutti_status model_check_name(const char *what, const char *name);
/* The same for a "parameter" or "buffer"; no parameter or buffer may have that name yet. */
tutti_status model_check_tensor_name(const struct tutti_model *model, const char *what,
				     const char *name);

static inline bool param_is_trained(const struct param *param)
{
	return !(param->flags & TUTTI_PARAM_FROZEN);
}

#endif
