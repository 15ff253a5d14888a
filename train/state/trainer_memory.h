/* A pool of slots: memory for whole units while they are gathered, and for whole gradients while
 * they are reduced. The slots of the plan are the same on all ranks. A rank that needs more makes
 * ordinary memory. */
#ifndef TRAIN_TRAINER_MEMORY_H
#define TRAIN_TRAINER_MEMORY_H

#include "train/model/model.h"
#include "train/state/pieces.h"

struct shared_values {
	void *memory;
	bool is_of_mem_alloc;
};

struct pool_slot {
	char *memory; /* NULL: not made */
	size_t bytes;
	size_t used;     /* bytes of the value in it; 0: it is free */
	bool is_planned; /* all ranks have it */
	bool is_local;   /* ordinary memory, not part of the region */
};

struct slot_pool {
	const struct home *home;
	struct pool_slot *slots;
	int count, marked;
	struct shared_values region; /* for all slots that were planned at create */
};

/* Plans the slots that these sizes, smallest first, need at once and the pool lacks. Frees the
 * sizes. */
tutti_status pool_plan(struct slot_pool *pool, struct slot_sizes *all);
/* Makes planned slots in ordinary memory. Local. */
tutti_status pool_fill_local(tutti_trainer *trainer, struct slot_pool *pool);
/* pool_forget removes all slots that are new since pool_mark. */
void pool_mark(struct slot_pool *pool);
void pool_forget(tutti_trainer *trainer, struct slot_pool *pool);
/* MEMORY, with the sum, unless memory_limit allows this rank so many more bytes. Frees unused slots
 * that are not planned, if that helps. */
tutti_status pool_grows(tutti_trainer *trainer, size_t bytes);

/* A slot of the smallest size that fits is free. */
bool pool_has(const struct slot_pool *pool, size_t bytes);
/* Takes the smallest free slot that fits, or makes one that is not planned: units may run in
 * another order than the planned one, or on some ranks only. Local. MEMORY. */
tutti_status pool_take(tutti_trainer *trainer, struct slot_pool *pool, size_t bytes, char **memory);
/* Gives the slot back, and sets *memory to NULL. Does nothing if it is NULL. */
void pool_give(tutti_trainer *trainer, struct slot_pool *pool, char **memory);

/* Where parameters, gradients and optimizer state lie. */

/* Makes the tables of buckets, flights and slots. Local. */
tutti_status memory_tables(tutti_trainer *trainer);
/* The bytes of slots that are planned and not made. */
size_t memory_of_slots(const tutti_trainer *trainer);
/* Allocates all memory but optimizer state, and sets the buckets' pointers. Collective. */
tutti_status memory_place(tutti_trainer *trainer);
void memory_free(tutti_trainer *trainer);

/* The gradient that the author adds to. NULL: the parameter is frozen, or the gradient is not there
 * now. */
void *param_grad(const tutti_trainer *trainer, int param);

#endif
