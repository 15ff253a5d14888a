/* How many blocks of kernels that wait for other ranks' kernels may be on a GPU at once: an account
 * for each device of this process, over all communicators and ranks. What is taken never exceeds
 * what the device holds beside one another, so such a kernel always finds its place, whatever the
 * order in which ranks wait: docs/cuda.md, "Kernels that wait". Any thread. */
#ifndef CUDA_RESIDENCY_H
#define CUDA_RESIDENCY_H

#include "cuda/device.h"

/* Blocks that may be taken in all; 0: none of this device's kernels may wait. */
unsigned cuda_residency_most(const struct cuda_device *device);
/* Blocks that are not taken; 0 while other processes of the job use the device, too. */
unsigned cuda_residency_free(const struct cuda_device *device);
/* How many blocks each of `ranks` ranks of this process would ask for, where `free` of `most` are
 * left; 0: there is no room for all of them. */
unsigned cuda_residency_share(unsigned most, unsigned free, unsigned ranks);
/* Takes up to `wanted` blocks, or fewer, since others take some at the same time; returns how many. */
unsigned cuda_residency_take(const struct cuda_device *device, unsigned wanted);
void cuda_residency_give(const struct cuda_device *device, unsigned blocks);
/* A communicator has another process on the device; until the second function it has. */
void cuda_residency_share_device(const struct cuda_device *device);
void cuda_residency_unshare_device(const struct cuda_device *device);

#endif
