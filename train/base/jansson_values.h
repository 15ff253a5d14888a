/* Values from untrusted JSON. The functions return false for another type, a negative number, or a
 * missing value. */
#ifndef TRAIN_JANSSON_VALUES_H
#define TRAIN_JANSSON_VALUES_H

#include <jansson.h>

#include <stdbool.h>
#include <stdint.h>

bool value_number(uint64_t *number, const json_t *value);
/* Reads an array of at most limit numbers. */
bool value_shape(int *ndim, int64_t *shape, int limit, const json_t *value);
json_t *value_of_shape(int ndim, const int64_t *shape);

/* Reads an object from exactly so many bytes. NULL: why has the mistake. A key that is there twice
 * is a mistake. */
json_t *value_read(const char *text, size_t bytes, char why[200]);

#endif
