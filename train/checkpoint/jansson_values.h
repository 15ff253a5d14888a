/* Values out of foreign JSON, for the two readers. They are false for another type, a negative
 * number, or nothing. */
#ifndef TRAIN_JANSSON_VALUES_H
#define TRAIN_JANSSON_VALUES_H

#include "train/checkpoint/jansson_needed.h"

#include <jansson.h>

bool value_number(uint64_t *number, const json_t *value);
/* Of an array of at most limit numbers. */
bool value_shape(int *ndim, int64_t *shape, int limit, const json_t *value);
json_t *value_of_shape(int ndim, const int64_t *shape);

/* An object as text of exactly so many bytes; NULL: why says what is wrong with it. Doubled keys
 * are wrong. */
json_t *value_read(const char *text, size_t bytes, char why[200]);

#endif
