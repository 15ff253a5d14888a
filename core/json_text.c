/* Reading JSON with jansson, and what is wrong with a text that is none. */
#include "core/json_text.h"

#include <stdio.h>

json_t *json_text_read(const char *text, size_t bytes, char why[200])
{
	json_error_t error;
	json_t *read = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);

	if (!read) {
		snprintf(why, 200, "%s, at byte %d", error.text, error.position);
		return NULL;
	}
	if (!json_is_object(read)) {
		snprintf(why, 200, "it is no object");
		json_decref(read);
		return NULL;
	}
	return read;
}
