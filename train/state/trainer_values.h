/* Arrays of the trainer's values, in the host memory or the GPU's memory of a home, and what is
 * done with them there: on the calling thread, or in the order of the home's stream. A failure of
 * the GPU stays (train_device_failure), and the end of the step returns it. */
#ifndef TRAIN_TRAINER_VALUES_H
#define TRAIN_TRAINER_VALUES_H

#include "train/device/train_device.h"

struct home;

/* Memory of this rank alone, on a cache line. MEMORY: "... for <what>." */
tutti_status values_alloc(const struct home *home, void **values, size_t bytes,
			  const char *what);
/* NULL is allowed. The GPU's are free when the stream has come to here. */
void values_free(const struct home *home, void *values);

/* Memory for collectives on comm, zero, of the same size on all ranks. Where all ranks have named a
 * device to the caller's communicator, the GPUs of comm's ranks map it. Collective among all ranks;
 * trainer_memory.c. */
struct shared_values {
	void *memory;
	bool is_of_mem_alloc;
};
tutti_status values_share(tutti_trainer *trainer, const struct home *home,
			  struct shared_values *values, tutti_comm *comm, size_t bytes);
void values_unshare(const struct home *home, const struct shared_values *values);

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

/* Between the trainer's values and host memory, where numbers are f32. They wait for the GPU. */
/* Up to VALUES_VIEW_BYTES: values, or a copy that is valid until the next of these functions. */
enum { VALUES_VIEW_BYTES = DEVICE_VIEW_BYTES };
const void *values_view(const struct home *home, const void *values, size_t bytes);
void values_read(const struct home *home, float *host, const void *values, tutti_dtype dtype,
		 size_t count);
void values_write(const struct home *home, void *values, tutti_dtype dtype, const float *host,
		  size_t count);
/* Of the bits. On a GPU another one than in host memory. */
uint64_t values_hash(const struct home *home, const void *values, size_t bytes);

#endif
