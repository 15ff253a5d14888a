/* The compiled kernels, which are inside of the library. */
#ifndef CUDA_KERNELS_IMAGE_H
#define CUDA_KERNELS_IMAGE_H

#include <stdbool.h>

extern const char cuda_kernels_image[];
extern const bool cuda_kernels_are_built;

#endif
