/* The kernels of reduce.c for whatever the compiler targets by default. */
#define REDUCE_KERNELS      reduce_kernels_base
#define REDUCE_KERNELS_NAME "base"
#include "memory/reduce_template.h"
