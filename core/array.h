/* Tables that grow by one element at a time. */
#ifndef CORE_ARRAY_H
#define CORE_ARRAY_H

#include "core/words/export.h"

#include <tutti/tutti.h>

#include <stddef.h>

/* Makes room for one more element. array points to the table's pointer, which is NULL before the
 * first one. Tables have room for the next power of two. MEMORY: "... for <what>." */
tutti_status array_grow(void *array, size_t count, size_t size, const char *what)
	TUTTI_PRIVATE(array_grow);

#endif
