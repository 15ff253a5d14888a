/* Values of tuttirun's options. Each function returns false for a text that is none. */
#ifndef LAUNCH_OPTION_VALUES_H
#define LAUNCH_OPTION_VALUES_H

#include "options.h"

#include <stddef.h>

int value_int(const char *text, int min, int max, int *value);
int value_seconds(const char *text, double *value);
int value_restart(const char *text, enum restart *value);
int value_bind_to(const char *text, enum bind_to *value);
/* As core/words/netaddr.h reads them. */
int value_master(const char *text, char *host, size_t bytes, int *port);
int value_host(const char *text, char *host, size_t bytes);
int value_port(const char *text, int *port);
/* A number of ranks; 0 for auto, gpu and cpu, with *automatic the word. */
int value_ranks(const char *text, int *ranks, const char **automatic);
/* Adds a device, or several with commas between them, to the list. */
int value_devices(const char *text, char *list, size_t bytes);
/* Whether a word has digits only: it belongs to the option before it. */
int value_is_number(const char *word);

#endif
