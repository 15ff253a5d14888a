/* Between the files of device/. */
#ifndef TRAIN_DEVICE_TRAIN_DEVICE_INTERNAL_H
#define TRAIN_DEVICE_TRAIN_DEVICE_INTERNAL_H

#include "cuda/device.h"
#include "cuda/kernels/train_args.h"
#include "train/base/base.h"
#include "train/device/train_device.h"

/* Pinned memory of tiles that go down and up; and when each was last copied. */
enum { TILE_ELEMENTS = 1 << 17, TILES = 2 };

struct tiles {
	char *grad[TILES], *result[TILES]; /* NULL: not made */
	CUevent is_down[TILES], is_up[TILES];
};

struct train_device {
	struct cuda_device *cuda;
	CUstream stream;
	void *staging;   /* of the host, pinned: what is read or written passes through it */
	uint64_t *words; /* of the device: sums of squares */
	CUevent here;    /* for other streams to wait for */
	struct tiles tiles;
	struct kept_error failed;
};

/* Between the two calls are made on the device. False: it has failed. */
bool train_device_enter(struct train_device *device, struct cuda_visit *visit);
void train_device_leave(struct train_device *device, struct cuda_visit *visit, tutti_status status);
/* For train_device_close, on the device. */
void tiles_free(struct tiles *tiles);

static inline CUdeviceptr train_device_address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

#endif
