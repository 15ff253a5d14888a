/* Numbers with units, read and written. */
#include "units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 0x1p46

struct unit {
	const char *name;
	double value;
};

/* A number above or equal to 0 and one of units, up to the end. */
static bool units_parse(const char *text, const struct unit *units, double *value)
{
	char *end;
	double number = strtod(text, &end);

	if (end == text || !isfinite(number) || number < 0)
		return false;
	while (*end == ' ')
		end++;
	for (; units->name; units++)
		if (strcmp(end, units->name) == 0) {
			*value = number * units->value;
			return true;
		}
	return false;
}

bool units_bytes(const char *text, size_t *bytes)
{
	static const struct unit units[] = {{"", 1},         {"B", 1},        {"K", 0x1p10},
					    {"M", 0x1p20},   {"G", 0x1p30},   {"KiB", 0x1p10},
					    {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"k", 0x1p10},
					    {"m", 0x1p20},   {"g", 0x1p30},   {NULL, 0}};
	double value;

	if (!units_parse(text, units, &value) || value > BYTES_MAX)
		return false;
	*bytes = (size_t)value;
	return true;
}

bool units_seconds(const char *text, double *seconds)
{
	static const struct unit units[] = {{"s", 1},     {"ms", 1e-3},  {"us", 1e-6},
					    {"ns", 1e-9}, {"ps", 1e-12}, {NULL, 0}};
	double value;

	if (!units_parse(text, units, &value) || value > 1e6)
		return false;
	*seconds = value;
	return true;
}

bool units_rate(const char *text, double *seconds_per_byte)
{
	static const struct unit units[] = {
		{"B/s", 1},           {"kB/s", 1e3},     {"KB/s", 1e3},       {"MB/s", 1e6},
		{"GB/s", 1e9},        {"TB/s", 1e12},    {"KiB/s", 0x1p10},   {"MiB/s", 0x1p20},
		{"GiB/s", 0x1p30},    {"TiB/s", 0x1p40}, {"Mbit/s", 0.125e6}, {"Gbit/s", 0.125e9},
		{"Tbit/s", 0.125e12}, {NULL, 0}};
	double value;

	if (!units_parse(text, units, &value) || value < 1)
		return false;
	*seconds_per_byte = 1 / value;
	return true;
}

const char *units_bytes_in_words(double bytes, char *text, size_t size)
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	int i = 0;
	for (; bytes >= 1024 && i < 4; i++)
		bytes /= 1024;
	snprintf(text, size, "%.4g %s", bytes, names[i]);
	return text;
}

/* Three digits, without an exponent. */
static void three_digits(double value, const char *unit, char *text, size_t size)
{
	int after = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
	snprintf(text, size, "%.*f %s", after, value, unit);
}

const char *units_seconds_in_words(double seconds, char *text, size_t size)
{
	if (seconds >= 0.9995)
		three_digits(seconds, "s", text, size);
	else if (seconds >= 0.9995e-3)
		three_digits(seconds * 1e3, "ms", text, size);
	else if (seconds >= 0.9995e-6)
		three_digits(seconds * 1e6, "us", text, size);
	else
		three_digits(seconds * 1e9, "ns", text, size);
	return text;
}

const char *units_rate_in_words(double seconds_per_byte, char *text, size_t size)
{
	double rate = 1 / seconds_per_byte;
	if (rate >= 1e9)
		snprintf(text, size, "%.4g GB/s", rate / 1e9);
	else
		snprintf(text, size, "%.4g MB/s", rate / 1e6);
	return text;
}
