/* Sizes, times and rates as people write them. */
#ifndef TUTTI_PLAN_UNITS_H
#define TUTTI_PLAN_UNITS_H

#include <stdbool.h>
#include <stddef.h>

/* "2us", "500 ns", "0.1ms", "1s" */
bool units_seconds(const char *text, void *seconds);
/* "25GB/s", "200Gbit/s", "10 GiB/s", as what one byte takes. */
bool units_rate(const char *text, void *seconds_per_byte);

/* These return text. */
const char *units_bytes_in_words(double bytes, char *text, size_t size);     /* "64 KiB"      */
const char *units_seconds_in_words(double seconds, char *text, size_t size); /* "12.3 us"     */
const char *units_rate_in_words(double seconds_per_byte, char *text, size_t size); /* "25 GB/s" */

#endif
