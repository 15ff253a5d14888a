/* The loops of train/precision/kernels.c for AVX-512 (F, BW, VL, DQ); cmake/kernels.cmake gives
 * this file those flags. */
#ifdef __x86_64__
#define KERNEL_TABLE kernel_table_avx512
#include "train/precision/kernel_template.h"
#endif
