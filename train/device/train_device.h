/* The door of device/: memory of a GPU, and there the arithmetic of precision/, with the same
 * bits, in the order of one stream. Nothing else in train/ knows CUDA.
 *
 *   order     all but train_device_wait, _read, _write, _view, _update_tiles, _squares_end,
 *             _free and _close return at once.
 *   failures  the first one stays: train_device_failure() has it. From then on nothing is done, and
 *             what is read is zero.
 *   threads   one at a time. */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H

#include "train/precision/precision.h"

#include <stdbool.h>

struct train_device;

/* stream: a cudaStream_t, whose device it is; NULL is the legacy default stream of this thread's
 * device. It must exist until train_device_close. UNSUPPORTED: there is no driver, or this build
 * has no kernels for the GPU. INVALID: no device is current. DEVICE, MEMORY. */
tutti_status train_device_open(struct train_device **device, void *stream);
/* Waits for the stream, and frees what was not given to the caller. NULL is allowed. */
void train_device_close(struct train_device *device);
tutti_status train_device_failure(const struct train_device *device);
/* The CUDA device. */
int train_device_ordinal(const struct train_device *device);
/* The CUDA device whose memory this is; -1: it is memory of the host. Any thread. */
int train_device_of(const void *ptr);
/* The later work of this stream waits for what the other one has now. */
void train_device_follow(struct train_device *device, struct train_device *other);

/* MEMORY, DEVICE. */
tutti_status train_device_alloc(struct train_device *device, void **ptr, size_t bytes);
void train_device_free(struct train_device *device, void *ptr);
/* Returns when the stream has come to here. */
void train_device_wait(struct train_device *device);
/* All bytes become value. */
void train_device_fill(struct train_device *device, void *to, unsigned char value, size_t bytes);
/* Either may also be host memory: then it must not change until the stream has come to here. */
void train_device_copy(struct train_device *device, void *to, const void *from, size_t bytes);
/* Up to DEVICE_VIEW_BYTES, in host memory until the next read, write or view. */
enum { DEVICE_VIEW_BYTES = 1 << 20 };
const void *train_device_view(struct train_device *device, const void *from, size_t bytes);
/* Between host memory and the device. */
void train_device_read(struct train_device *device, void *host, const void *from, size_t bytes);
void train_device_write(struct train_device *device, void *to, const void *host, size_t bytes);

/* Where updated values go, rounded. */
struct device_low {
	void *values; /* NULL: nothing */
	tutti_dtype dtype;
	const struct kernel_rounding *at_random; /* NULL: to the nearest */
};
/* kernel_adamw or kernel_sgd, and rounding. */
void train_device_update(struct train_device *device, const struct kernel_update *update,
			 const tutti_optimizer *o, double number, const struct device_low *low);
void train_device_convert(struct train_device *device, void *out, tutti_dtype dtype, const void *x,
			  tutti_dtype x_dtype, size_t count);
void train_device_add(struct train_device *device, void *sum, tutti_dtype sum_dtype, const void *x,
		      tutti_dtype x_dtype, size_t count);
void train_device_scale(struct train_device *device, void *out, tutti_dtype dtype, const void *x,
			tutti_dtype x_dtype, size_t count, float by);

/* An update on the host of arrays whose gradient and result are the device's. Tile by tile the
 * gradient comes down, update sets the result, and that goes up, while the next tile is on its way
 * down. The last tiles are still going up on return. */
struct device_tiles {
	const void *grad;
	void *result;
	size_t grad_width, result_width; /* bytes of an element */
	size_t count;
	/* Of elements first to first + count. grad and result are the tile's. */
	void (*update)(void *arg, size_t first, size_t count, const void *grad, void *result);
	void *arg;
};
void train_device_update_tiles(struct train_device *device, const struct device_tiles *tiles);

/* Sums of squares, of DEVICE_SUMS sets of arrays: begin, any number of adds, end, which adds each
 * set to sums[set], and sets bad[set] to the least param of an array with an infinity or NaN, or
 * -1. */
enum { DEVICE_SUMS = 2 };
void train_device_squares_begin(struct train_device *device);
void train_device_squares_add(struct train_device *device, int set, const void *x,
			      tutti_dtype dtype, size_t count, int param);
void train_device_squares_end(struct train_device *device, struct exact_sum sums[DEVICE_SUMS],
			      int64_t bad[DEVICE_SUMS]);

#endif
