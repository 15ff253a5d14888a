// All kernels, for GPUs. Compiled by cmake/cuda.cmake into the image that the library carries.
#include "cuda/kernels/lines_kernel.h"
#include "cuda/kernels/messages_kernel.h"
#include "cuda/kernels/packets_kernel.h"
#include "cuda/kernels/reduce_kernel.h"
#include "cuda/kernels/scale_kernel.h"
#include "cuda/kernels/train_map_kernel.h"
#include "cuda/kernels/train_squares_kernel.h"
#include "cuda/kernels/train_update_kernel.h"
