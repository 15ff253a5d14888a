/* A list of GPUs as people type it, and CUDA_VISIBLE_DEVICES has it: "0,1", "GPU-8932f937-d72c";
 * and how many ranks a machine takes when the number is "auto". */
#ifndef CORE_WORDS_DEVICE_LIST_H
#define CORE_WORDS_DEVICE_LIST_H

#include "core/words/export.h"

#include <stdbool.h>
#include <stddef.h>

/* Adds the GPUs of text, at least one, to list, which has room for so many bytes. False: one is no
 * GPU, or in the list already, or there is no room; list then has those before it. */
bool device_list_add(char *list, size_t bytes, const char *text) TUTTI_PRIVATE(device_list_add);
/* How many CUDA would see: those before a negative number. */
int device_list_count(const char *list) TUTTI_PRIVATE(device_list_count);

/* GPUs of this machine that ranks may use, or 0. It loads no driver. */
int automatic_gpus(void) TUTTI_PRIVATE(automatic_gpus);
/* CPUs that this process may use, 1 at least. */
int automatic_cpus(void) TUTTI_PRIVATE(automatic_cpus);

#endif
