/* JSON that another program wrote, by jansson. Only in builds that have it (TUTTI_JSON). The
 * training layer has a function of its own for that: it sees nothing of the library but its public
 * headers. */
#ifndef CORE_JSON_TEXT_H
#define CORE_JSON_TEXT_H

#include <jansson.h>

/* The caller's object. NULL: why says what is wrong with the text. An object with doubled keys is
 * wrong. */
json_t *json_text_read(const char *text, char why[200]);

#endif
