/* Limits the blocks of kernels that wait for other ranks' kernels, so that all of them are resident
 * on their GPU at once and none waits for a kernel that cannot start, in whatever order ranks wait:
 * docs/cuda.md, "Kernels that wait". One account per device of this process, for all communicators
 * and ranks. Any thread. */
#ifndef CUDA_RESIDENCY_H
#define CUDA_RESIDENCY_H

#include "cuda/device.h"

/* Blocks that may be taken in all; 0: kernels on this device must not wait. */
unsigned cuda_residency_most(const struct cuda_device *device);
/* Blocks that are not taken; 0 while other processes of the job use the device, too. */
unsigned cuda_residency_free(const struct cuda_device *device);
/* How many blocks each of a communicator's `ranks` ranks on the device asks for if `free` of `most`
 * are left; 0: there is no room for all of them. */
unsigned cuda_residency_share(unsigned most, unsigned free, unsigned ranks);
/* Takes `wanted` blocks, or fewer if other communicators have just taken some; returns how many, to
 * be passed to cuda_residency_give. */
unsigned cuda_residency_take(const struct cuda_device *device, unsigned wanted);
void cuda_residency_give(const struct cuda_device *device, unsigned blocks);
/* Begin and end of a communicator that has ranks of other processes on the device. */
void cuda_residency_share_device(const struct cuda_device *device);
void cuda_residency_unshare_device(const struct cuda_device *device);

#endif
