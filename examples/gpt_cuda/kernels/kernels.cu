// All kernels of gpt_cuda, for GPUs. Compiled as cuda/kernels/kernels.cu is.
#include "examples/gpt_cuda/kernels/map_kernel.h"
#include "examples/gpt_cuda/kernels/matmul_kernel.h"
#include "examples/gpt_cuda/kernels/norm_kernel.h"
#include "examples/gpt_cuda/kernels/softmax_kernel.h"
#include "examples/gpt_cuda/kernels/sums_kernel.h"
