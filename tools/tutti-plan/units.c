/* Numbers with units, read and written. */
#include "units.h"

#include "core/words/number.h"

#include <stdio.h>

bool units_seconds(const char *text, void *seconds)
{
	static const struct number_unit units[] = {{"s", 1},     {"ms", 1e-3},  {"us", 1e-6},
						   {"ns", 1e-9}, {"ps", 1e-12}, {NULL, 0}};
	double value;

	if (!number_read_unit(text, units, &value) || value > 1e6)
		return false;
	*(double *)seconds = value;
	return true;
}

bool units_rate(const char *text, void *seconds_per_byte)
{
	static const struct number_unit units[] = {
		{"B/s", 1},           {"kB/s", 1e3},     {"KB/s", 1e3},       {"MB/s", 1e6},
		{"GB/s", 1e9},        {"TB/s", 1e12},    {"KiB/s", 0x1p10},   {"MiB/s", 0x1p20},
		{"GiB/s", 0x1p30},    {"TiB/s", 0x1p40}, {"Mbit/s", 0.125e6}, {"Gbit/s", 0.125e9},
		{"Tbit/s", 0.125e12}, {NULL, 0}};
	double value;

	if (!number_read_unit(text, units, &value) || value < 1)
		return false;
	*(double *)seconds_per_byte = 1 / value;
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
