/* The functions of a library that is loaded at run time. */
#include "core/dynamic_library.h"

#include <dlfcn.h>
#include <string.h>

const char *dynamic_library_fill(void *library, const struct dynamic_symbol *symbols, size_t count,
				 void *table)
{
	for (size_t i = 0; i < count; i++) {
		void *symbol = dlsym(library, symbols[i].name);
		if (!symbol && !symbols[i].is_optional)
			return symbols[i].name;
		memcpy((char *)table + symbols[i].offset, &symbol, sizeof symbol);
	}
	return NULL;
}
