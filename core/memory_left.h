/* How much memory this process could still take. */
#ifndef CORE_MEMORY_LEFT_H
#define CORE_MEMORY_LEFT_H

#include "core/words/export.h"

#include <stdint.h>

/* Bytes: what the system could give without taking it from another process, or what is left in this
 * process's control groups (a container's limit) where that is less; UINT64_MAX where the system
 * does not say. root: "", or a directory that stands for / in tests. */
uint64_t memory_left(const char *root) TUTTI_PRIVATE(memory_left);

#endif
