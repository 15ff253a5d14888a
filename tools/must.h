/* Memory of a program that has nothing better to do than end when there is none. */
#ifndef TOOLS_MUST_H
#define TOOLS_MUST_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline void *must_have(void *memory)
{
	if (!memory) {
		fprintf(stderr, "%s: There is not enough memory.\n", program_invocation_short_name);
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
