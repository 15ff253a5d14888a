/* All kernels of examples/gpt_cuda, for CPUs. The driver of tests/cuda/driver has this file, too.
 */
#include "tests/cuda/kernels/gpt_blocks.h"

#include "examples/gpt_cuda/kernels/map_kernel.h"
#include "examples/gpt_cuda/kernels/matmul_kernel.h"
#include "examples/gpt_cuda/kernels/norm_kernel.h"
#include "examples/gpt_cuda/kernels/softmax_kernel.h"
#include "examples/gpt_cuda/kernels/sums_kernel.h"
