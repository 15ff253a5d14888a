/* Libraries that are loaded at run time, so that one binary runs with and without them: their
 * functions by name. */
#ifndef CORE_DYNAMIC_LIBRARY_H
#define CORE_DYNAMIC_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* A function, and where its address belongs in the caller's table. */
struct dynamic_symbol {
	const char *name;
	size_t offset;
	bool is_optional; /* its address is NULL if the library lacks it */
};

/* Fills in table. Returns the first function that the library lacks, or NULL. */
const char *dynamic_library_fill(void *library, const struct dynamic_symbol *symbols, size_t count,
				 void *table);

#endif
