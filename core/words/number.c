/* Reads numbers, with and without units. */
#include "core/words/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 0x1p46

bool number_read_int(const char *text, int least, int most, int *value)
{
	size_t digits = strspn(text, "0123456789");

	errno = 0;
	long n = strtol(text, NULL, 10);
	if (errno || digits == 0 || text[digits] || n < least || n > most)
		return false;
	*value = (int)n;
	return true;
}

/* Where the decimal number ends that text begins with; NULL: it begins with none. */
static const char *number_end(const char *text, double *value)
{
	char *end;

	errno = 0; /* of a number that is too small, which would be 0 */
	*value = strtod(text, &end);
	if (errno || end == text || isspace((unsigned char)*text) || !isfinite(*value) ||
	    (size_t)(end - text) > strspn(text, "0123456789.eE+-"))
		return NULL;
	return end;
}

bool number_read_real(const char *text, double least, double most, double *value)
{
	double n;
	const char *end = number_end(text, &n);

	if (!end || *end || n < least || n > most)
		return false;
	*value = n;
	return true;
}

bool number_read_unit(const char *text, const struct number_unit *units, double *value)
{
	double n;
	const char *end = number_end(text, &n);

	if (!end || *text == '+' || *text == '-')
		return false;
	end += strspn(end, " ");
	for (; units->name; units++)
		if (strcmp(end, units->name) == 0) {
			*value = n * units->value;
			return true;
		}
	return false;
}

bool number_read_bytes(const char *text, size_t *bytes)
{
	static const struct number_unit units[] = {
		{"", 1},       {"B", 1},        {"K", 0x1p10},   {"M", 0x1p20},
		{"G", 0x1p30}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
		{"k", 0x1p10}, {"m", 0x1p20},   {"g", 0x1p30},   {NULL, 0}};
	double value;

	if (!number_read_unit(text, units, &value) || value > BYTES_MAX)
		return false;
	*bytes = (size_t)value;
	return true;
}
