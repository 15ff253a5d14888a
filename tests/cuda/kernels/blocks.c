/* All kernels, for CPUs. The driver of tests/cuda/driver has this file, too. */
#include "cuda/kernels/reduce_kernel.h"
#include "cuda/kernels/scale_kernel.h"
