/* Sizes, times and rates as people write them. */
#ifndef TUTTI_PLAN_UNITS_H
#define TUTTI_PLAN_UNITS_H

#include <stdbool.h>
#include <stddef.h>

/* "2us", "500 ns", "0.1ms", "1s" */
bool units_seconds(const char *text, void *seconds);
/* "25GB/s", "200Gbit/s", "10 GiB/s", as what one byte takes. */
bool units_rate(const char *text, void *seconds_per_byte);

struct units_text {
	char text[32];
};
struct units_text units_bytes_in_words(double bytes);            /* "64 KiB"  */
struct units_text units_seconds_in_words(double seconds);        /* "12.3 us" */
struct units_text units_rate_in_words(double seconds_per_byte);  /* "25 GB/s" */

#endif
