/* A piece: the flat range of a parameter that this rank holds once gradients are reduced. With DDP
 * a piece is the whole parameter; with sharded state it is the part of this rank's shard in the
 * parameter. The norm, the update, rounding, reading, writing and checkpoints work on pieces and do
 * not depend on the strategy. */
#ifndef TRAIN_PIECES_H
#define TRAIN_PIECES_H

#include "train/device/train_device.h"

#include <tutti/train.h>

#include <stdbool.h>
#include <stdint.h>

/* The optimizer state of a piece, by kind. */
enum { STATE_MASTER, STATE_M, STATE_V, STATES };

struct home;
struct piece {
	int param;           /* index in the model */
	struct home *home;
	size_t first, count; /* elements of the parameter; count > 0 */
	float *value;        /* the f32 parameter, or its master copy; NULL: frozen, of 16 bits */
	void *low;           /* the parameter that value is rounded to, of 16 bits or offloaded;
			      * or NULL */
	float *m, *v;        /* optimizer state, or NULL */
	size_t state_first;  /* index in the files of state */
	void *sum;           /* the reduced gradient; NULL: frozen */
	tutti_dtype sum_dtype;
	size_t save_first, save_count; /* what this rank saves: replicas divide the work */
	bool is_shadow;                /* of the left neighbour's part: always in memory */
	bool is_offloaded;             /* value, m, v are in host memory, all else on a GPU */
};

/* Makes the pieces of buckets that have been placed. Local. */
tutti_status pieces_make(tutti_trainer *trainer);
void pieces_free(tutti_trainer *trainer);
/* This rank's piece of a parameter; NULL if there is none. */
struct piece *piece_of(const tutti_trainer *trainer, int param);

/* The functions below call state_let_go for the elements they have used. */

/* Copies elements [first, first + count) of the piece, as f32. */
void piece_read(const tutti_trainer *trainer, const struct piece *piece, size_t first, size_t count,
		float *values);
/* Sets elements of value, m or v, on this rank. */
void piece_set(const struct piece *piece, float *values, size_t count, const float *to);
/* Sets elements and rounds them, on this rank. Other ranks see them after params_publish. */
void piece_write(tutti_trainer *trainer, const struct piece *piece, size_t first, size_t count,
		 const float *values);
/* Sets all master copies from the parameters. */
void pieces_widen(const tutti_trainer *trainer);
/* Sets the piece's parameter from its master copy, if it has one. */
void piece_narrow(const tutti_trainer *trainer, const struct piece *piece);
/* Sets the parameters from all master copies. */
void pieces_narrow(const tutti_trainer *trainer);
/* A hash of the value's bits. */
uint64_t piece_hash(const tutti_trainer *trainer, const struct piece *piece);

/* Makes a piece's master copy, m or v, zero, unless it is there: in memory, or in a file below
 * offload_dir. MEMORY, SYSTEM (the file). */
tutti_status state_make(tutti_trainer *trainer, struct piece *piece, int which);
/* Sets the piece's m or v, which is there, to zero. */
void state_clear(const struct piece *piece, int which);
/* Tells the kernel that these elements' pages of files need not stay in memory. */
void state_let_go(const tutti_trainer *trainer, const struct piece *piece, size_t first,
		  size_t count);

/* Arrays of the trainer's values, in the host memory or the GPU's memory of a home, and what is
 * done with them there: on the calling thread, or in the order of the home's stream. A failure of
 * the GPU stays (train_device_failure), and the end of the step returns it. */

/* Memory of this rank alone, on a cache line. MEMORY: "... for <what>." */
tutti_status values_alloc(const struct home *home, void **values, size_t bytes,
			  const char *what);
/* NULL is allowed. The GPU's are free when the stream has come to here. */
void values_free(const struct home *home, void *values);

void values_zero(const struct home *home, void *values, size_t bytes);
/* Fills what is given back, so that a late reader notices. */
void values_poison(const struct home *home, void *values, size_t bytes);
void values_copy(const struct home *home, void *to, const void *from, size_t bytes);
/* As the kernels of precision.h. */
void values_convert(const struct home *home, void *out, tutti_dtype dtype, const void *x,
		    tutti_dtype x_dtype, size_t count);
void values_add(const struct home *home, void *sum, tutti_dtype sum_dtype, const void *x,
		tutti_dtype x_dtype, size_t count);
void values_scale(const struct home *home, void *out, tutti_dtype dtype, const void *x,
		  tutti_dtype x_dtype, size_t count, float by);

/* Between the trainer's values and host memory, where numbers are f32. They wait for the GPU.
 * values_view: up to VALUES_VIEW_BYTES: values, or a copy that is valid until the next of these functions. */
enum { VALUES_VIEW_BYTES = DEVICE_VIEW_BYTES };
const void *values_view(const struct home *home, const void *values, size_t bytes);
void values_write(const struct home *home, void *values, tutti_dtype dtype, const float *host,
		  size_t count);
/* Of the bits. On a GPU another one than in host memory. */
uint64_t values_hash(const struct home *home, const void *values, size_t bytes);

#endif
