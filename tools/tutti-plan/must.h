/* Memory of a program that has nothing better to do than end when there is none. */
#ifndef TUTTI_PLAN_MUST_H
#define TUTTI_PLAN_MUST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline void *must_have(void *memory)
{
	if (!memory) {
		fputs("tutti-plan: There is not enough memory.\n", stderr);
		exit(1);
	}
	return memory;
}

/* n zeroed things of size bytes, at least one. */
static inline void *must_alloc(size_t n, size_t size)
{
	return must_have(calloc(n ? n : 1, size));
}

/* Room for one more than used in an array of *room. */
static inline void *must_grow(void *array, size_t used, size_t *room, size_t size)
{
	if (used < *room)
		return array;
	*room = *room ? *room * 2 : 64;
	return must_have(realloc(array, *room * size));
}

#endif
