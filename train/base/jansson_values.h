/* Values from untrusted JSON. The functions return false for another type, a negative number, or a
 * missing value. */
#ifndef TRAIN_JANSSON_VALUES_H
#define TRAIN_JANSSON_VALUES_H

#include "core/json_text.h"

#include <stdbool.h>
#include <stdint.h>

bool value_number(uint64_t *number, const json_t *value);
/* Reads an array of at most limit numbers. */
bool value_shape(int *ndim, int64_t *shape, int limit, const json_t *value);
json_t *value_of_shape(int ndim, const int64_t *shape);

#endif
