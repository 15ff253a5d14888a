/* Where parameters, gradients and optimizer state lie, and the bytes of it. */
#ifndef TRAIN_MEMORY_H
#define TRAIN_MEMORY_H

#include "train/state/trainer_state.h"

/* What stays with a rank of the shard group, with AdamW, into param_bytes, grad_bytes and optimizer_bytes of stats. Padding
 * is not counted. */
void memory_resident(const struct model_layout *layout, const struct tutti_model *model, const tutti_train_config *config,
		     int shard_rank, tutti_train_stats *stats);
/* And all slots that plain order needs, the same on all ranks. Fails only for want of memory. */
tutti_status memory_for_slots(const struct model_layout *layout, const struct tutti_model *model,
			      const tutti_train_config *config, size_t *bytes);
/* MEMORY, with the sum, when that is more than the limit. */
tutti_status memory_check(const tutti_train_config *config, const tutti_train_stats *needed);

/* The tables of buckets, flights and slots. Local. */
tutti_status memory_tables(tutti_trainer *trainer);
/* Collective. Places everything but optimizer state; buckets know where they are. */
tutti_status memory_place(tutti_trainer *trainer);
void memory_free(tutti_trainer *trainer);

/* Makes the pieces of buckets that have been placed. Local. */
tutti_status pieces_make(tutti_trainer *trainer);
void pieces_free(tutti_trainer *trainer);

/* A piece's master copy, m or v (STATE_...), zero, unless it is there; in a file where the config
 * says so. SYSTEM: the file cannot be made. */
tutti_status state_make(tutti_trainer *trainer, struct piece *piece, int which);
/* Elements [first, first + count) of a piece's state are done with for now: pages of files need not
 * stay in memory. */
void state_let_go(const tutti_trainer *trainer, const struct piece *piece, size_t first,
		  size_t count);
void state_free(tutti_trainer *trainer);

/* Gradients travel; with local SGD they do not. */
bool config_has_wire(const tutti_train_config *config);
/* What a span's reduced gradients are. */
tutti_dtype span_sum_dtype(const struct param_span *span, const tutti_train_config *config);

/* A pool of these slots, which it takes over. They are memory after pool_fill, which is collective, as the slots are the
 * same on all ranks. */
struct slot_sizes;
tutti_status pool_plan(struct pool *pool, struct slot_sizes *slots);
tutti_status pool_fill(tutti_trainer *trainer, struct pool *pool);
/* Plans what these, largest first, need at once beside the slots that are planned already; pool_fill_local makes it ordinary
 * memory, and pool_forget goes back to so many slots. */
tutti_status pool_plan_more(struct pool *pool, const struct slot_sizes *all);
size_t pool_missing(const struct pool *pool); /* bytes that are planned and not made */
tutti_status pool_fill_local(tutti_trainer *trainer, struct pool *pool);
void pool_forget(tutti_trainer *trainer, struct pool *pool, int count);
/* MEMORY, with the sum, unless memory_limit lets this rank hold so much more; for that it frees what it does not need. */
tutti_status pool_grows(tutti_trainer *trainer, size_t bytes);
/* A slot of the kind for so many bytes is free: of the smallest size that they fit into. */
bool pool_has(const struct pool *pool, size_t bytes);
/* The smallest free slot that fits. Where ranks take more than was planned (another order of units, or units that only
 * some of them run) it is ordinary memory, made here. Local. MEMORY: there is none, or memory_limit does not let it. */
tutti_status pool_take(tutti_trainer *trainer, struct pool *pool, size_t bytes, int *slot);
void pool_give(tutti_trainer *trainer, struct pool *pool, size_t bytes, int slot);
void pool_free(struct pool *pool);

#endif
