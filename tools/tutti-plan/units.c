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

struct units_text units_bytes_in_words(double bytes)
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	struct units_text words;
	int i = 0;

	for (; bytes >= 1024 && i < 4; i++)
		bytes /= 1024;
	snprintf(words.text, sizeof words.text, "%.4g %s", bytes, names[i]);
	return words;
}

/* Three digits, without an exponent. */
struct units_text units_seconds_in_words(double seconds)
{
	static const char *const names[] = {"s", "ms", "us", "ns"};
	struct units_text words;
	int i = 0;

	for (; seconds < 0.9995 && i < 3; i++)
		seconds *= 1e3;
	int after = seconds >= 99.95 ? 0 : seconds >= 9.995 ? 1 : 2;
	snprintf(words.text, sizeof words.text, "%.*f %s", after, seconds, names[i]);
	return words;
}

struct units_text units_rate_in_words(double seconds_per_byte)
{
	double rate = 1 / seconds_per_byte;
	bool is_high = rate >= 1e9;
	struct units_text words;

	snprintf(words.text, sizeof words.text, "%.4g %s", rate / (is_high ? 1e9 : 1e6),
		 is_high ? "GB/s" : "MB/s");
	return words;
}
