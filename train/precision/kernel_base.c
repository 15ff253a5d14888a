/* The loops of train/precision/kernels.c for the instruction set that the compiler targets by
 * default. */
#define KERNEL_TABLE kernel_table_base
#include "train/precision/kernel_template.h"
