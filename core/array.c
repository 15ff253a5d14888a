/* Tables that grow by one element at a time. */
#include "core/array.h"

#include "core/status.h"

#include <stdlib.h>
#include <string.h>

tutti_status array_grow(void *array, size_t count, size_t size, const char *what)
{
	void *table;

	if (count & (count - 1))
		return TUTTI_OK;
	memcpy(&table, array, sizeof table);
	table = realloc(table, (count ? 2 * count : 1) * size);
	if (!table)
		return fail_no_memory("%s", what);
	memcpy(array, &table, sizeof table);
	return TUTTI_OK;
}
