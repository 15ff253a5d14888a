/* Between the files of device/. */
#ifndef TRAIN_DEVICE_INTERNAL_H
#define TRAIN_DEVICE_INTERNAL_H

#include "cuda/device.h"
#include "cuda/kernels/train_args.h"
#include "train/base/base.h"
#include "train/device/train_device.h"

struct train_device {
	struct cuda_device *cuda;
	CUstream stream;
	void *staging;   /* of the host, pinned: what is read or written passes through it */
	uint64_t *words; /* of the device: sums of squares */
	struct train_failure failed;
};

static inline CUdeviceptr device_address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

#endif
