/* Values from untrusted JSON. */
#include "train/base/jansson_values.h"

bool value_number(uint64_t *number, const json_t *value)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*number = (uint64_t)json_integer_value(value);
	return true;
}

bool value_shape(int *ndim, int64_t *shape, int limit, const json_t *value)
{
	size_t n = json_array_size(value);

	if (!json_is_array(value) || n > (size_t)limit)
		return false;
	for (size_t i = 0; i < n; i++) {
		uint64_t number;
		if (!value_number(&number, json_array_get(value, i)))
			return false;
		shape[i] = (int64_t)number;
	}
	*ndim = (int)n;
	return true;
}

json_t *value_of_shape(int ndim, const int64_t *shape)
{
	json_t *array = json_array();

	for (int i = 0; array && i < ndim; i++)
		if (json_array_append_new(array, json_integer(shape[i])) != 0) {
			json_decref(array);
			return NULL;
		}
	return array;
}
