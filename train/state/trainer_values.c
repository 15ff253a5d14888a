/* Arrays of the trainer's values, in host memory or a GPU's. */
#include "train/state/trainer_state.h"

#include "train/base/base.h"

#include <stdlib.h>
#include <string.h>

enum { VALUES_ALIGNMENT = 64, CHUNK = 1 << 12 };

tutti_status values_alloc(const struct home *home, void **values, size_t bytes, const char *what)
{
	if (home->device)
		return train_device_alloc(home->device, values, bytes);
	if (posix_memalign(values, VALUES_ALIGNMENT, bytes) != 0)
		return fail_no_memory("%s", what);
	return TUTTI_OK;
}

void values_free(const struct home *home, void *values)
{
	if (home->device)
		train_device_free(home->device, values);
	else
		free(values);
}

void values_zero(const struct home *home, void *values, size_t bytes)
{
	if (home->device)
		train_device_fill(home->device, values, 0, bytes);
	else
		memset(values, 0, bytes);
}

void values_poison(const struct home *home, void *values, size_t bytes)
{
	enum { NAN_BYTE = 0xff }; /* NaN in every floating type */

	if (home->device)
		train_device_fill(home->device, values, NAN_BYTE, bytes);
	else
		memset(values, NAN_BYTE, bytes);
}

void values_copy(const struct home *home, void *to, const void *from, size_t bytes)
{
	if (home->device)
		train_device_copy(home->device, to, from, bytes);
	else
		memcpy(to, from, bytes);
}

void values_convert(const struct home *home, void *out, tutti_dtype dtype, const void *x,
		    tutti_dtype x_dtype, size_t count)
{
	if (home->device)
		train_device_convert(home->device, out, dtype, x, x_dtype, count);
	else
		kernel_convert(out, dtype, x, x_dtype, count);
}

void values_add(const struct home *home, void *sum, tutti_dtype sum_dtype, const void *x,
		tutti_dtype x_dtype, size_t count)
{
	if (home->device)
		train_device_add(home->device, sum, sum_dtype, x, x_dtype, count);
	else
		kernel_add(sum, sum_dtype, x, x_dtype, count);
}

void values_scale(const struct home *home, void *out, tutti_dtype dtype, const void *x,
		  tutti_dtype x_dtype, size_t count, float by)
{
	if (home->device)
		train_device_scale(home->device, out, dtype, x, x_dtype, count, by);
	else
		kernel_scale(out, dtype, x, x_dtype, count, by);
}

const void *values_view(const struct home *home, const void *values, size_t bytes)
{
	return home->device ? train_device_view(home->device, values, bytes) : values;
}

static void read_16(const struct home *home, float *host, const uint16_t *values, tutti_dtype dtype,
		    size_t count)
{
	for (size_t first = 0, n; first < count; first += n) {
		n = smaller(VALUES_VIEW_BYTES / sizeof *values, count - first);
		const void *raw =
			train_device_view(home->device, values + first, n * sizeof *values);
		kernel_convert(host + first, TUTTI_F32, raw, dtype, n);
	}
}

void values_read(const struct home *home, float *host, const void *values, tutti_dtype dtype,
		 size_t count)
{
	if (!home->device)
		kernel_convert(host, TUTTI_F32, values, dtype, count);
	else if (dtype == TUTTI_F32)
		train_device_read(home->device, host, values, count * sizeof *host);
	else
		read_16(home, host, values, dtype, count);
}

static void write_16(const struct home *home, uint16_t *values, tutti_dtype dtype,
		     const float *host, size_t count)
{
	uint16_t raw[CHUNK];

	for (size_t first = 0, n; first < count; first += n) {
		n = smaller(CHUNK, count - first);
		kernel_convert(raw, dtype, host + first, TUTTI_F32, n);
		train_device_write(home->device, values + first, raw, n * sizeof *raw);
	}
}

void values_write(const struct home *home, void *values, tutti_dtype dtype, const float *host,
		  size_t count)
{
	if (!home->device)
		kernel_convert(values, dtype, host, TUTTI_F32, count);
	else if (dtype == TUTTI_F32)
		train_device_write(home->device, values, host, count * sizeof *host);
	else
		write_16(home, values, dtype, host, count);
}

uint64_t values_hash(const struct home *home, const void *values, size_t bytes)
{
	uint64_t hash = 0;

	if (!home->device)
		return random_hash(values, bytes);
	for (size_t at = 0, n; at < bytes; at += n) {
		n = smaller(VALUES_VIEW_BYTES, bytes - at);
		const char *part = (const char *)values + at;
		hash = random_mix(hash ^ random_hash(train_device_view(home->device, part, n), n));
	}
	return hash;
}
