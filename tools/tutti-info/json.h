/* The same as JSON, by jansson. */
#ifndef TOOLS_TUTTI_INFO_JSON_H
#define TOOLS_TUTTI_INFO_JSON_H

#include "pairs.h"

/* False: this build has no jansson, and the functions below are never called. */
extern const bool json_is_here;

/* One object. The caller's text. */
char *json_machine(const struct machine *machine, const char *ranks);
/* hosts: texts of json_machine. pairs: or NULL. */
void json_print(FILE *file, char *const *hosts, int count, const struct pairs *pairs);

#endif
