/* A list of GPUs as people type it, and CUDA_VISIBLE_DEVICES has it: "0,1", "GPU-8932f937-d72c". */
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

#endif
