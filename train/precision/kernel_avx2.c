/* The loops of train/precision/kernels.c for AVX2 and F16C; cmake/kernels.cmake gives this file
 * those flags.
 */
#ifdef __x86_64__
#define KERNEL_TABLE kernel_table_avx2
#include "train/precision/kernel_template.h"
#endif
