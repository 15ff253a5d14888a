/* Numbers as people write them, in options, variables and files. Where these functions return
 * false, the value is as it was. */
#ifndef CORE_WORDS_NUMBER_H
#define CORE_WORDS_NUMBER_H

#include "core/words/export.h"

#include <stdbool.h>
#include <stddef.h>

/* Digits and nothing else: no sign, no blank. */
bool number_read_int(const char *text, int least, int most, int *value)
	TUTTI_PRIVATE(number_read_int);
/* "0.5", "1e-3". Neither "inf" nor "nan", nor hexadecimal. */
bool number_read_real(const char *text, double least, double most, double *value)
	TUTTI_PRIVATE(number_read_real);

struct number_unit {
	const char *name;
	double value;
};

/* A number from 0 and the name of a unit, perhaps with blanks between them. The list of units ends
 * with a name of NULL. */
bool number_read_unit(const char *text, const struct number_unit *units, double *value)
	TUTTI_PRIVATE(number_read_unit);
/* "8", "64K", "64KiB", "0.5M", "1G", up to 64 TiB: K, M and G are powers of 1,024. */
bool number_read_bytes(const char *text, size_t *bytes) TUTTI_PRIVATE(number_read_bytes);

#endif
