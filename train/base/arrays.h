/* Tables that grow by one element at a time. */
#ifndef TRAIN_ARRAYS_H
#define TRAIN_ARRAYS_H

#include <tutti/tutti.h>

/* Makes room for one more element. array points to the table's pointer, which is NULL before the
 * first one. Tables have room for the next power of two. MEMORY: "... for <what>." */
tutti_status array_grow(void *array, size_t count, size_t size, const char *what);

#endif
