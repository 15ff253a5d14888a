/* The kernels as a driver loads them: a fatbin, or, where nvcc was missing, a text that no driver
 * takes. */
#ifndef CUDA_KERNELS_KERNELS_IMAGE_H
#define CUDA_KERNELS_KERNELS_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

extern const char cuda_kernels_image[];
extern const size_t cuda_kernels_image_bytes;
extern const bool cuda_kernels_are_built;

#endif
