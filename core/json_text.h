/* JSON that another program wrote, by jansson. Only in builds that have it (TUTTI_JSON). */
#ifndef CORE_JSON_TEXT_H
#define CORE_JSON_TEXT_H

#include "core/words/export.h"

#include <jansson.h>

/* Reads an object, the caller's, from exactly so many bytes. NULL: why says what is wrong with the
 * text. An object with doubled keys is wrong. */
json_t *json_text_read(const char *text, size_t bytes, char why[200])
	TUTTI_PRIVATE(json_text_read);

#endif
