/* Texts into the values of tuttirun's options. */
#include "option_values.h"

#include "core/words/netaddr.h"
#include "core/words/device_list.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int value_int(const char *text, int min, int max, int *value)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < min || n > max)
		return 0;
	*value = (int)n;
	return 1;
}

int value_seconds(const char *text, double *value)
{
	char *end;
	double s = strtod(text, &end);

	if (end == text || *end || !isfinite(s) || s <= 0 || s > 1e8)
		return 0;
	*value = s;
	return 1;
}

/* The number of a name in a list that ends with NULL, or -1. */
static int option_values_choice(const char *text, const char *const *names)
{
	for (int i = 0; names[i]; i++)
		if (strcmp(text, names[i]) == 0)
			return i;
	return -1;
}

int value_restart(const char *text, enum restart *value)
{
	static const char *const names[] = {"rank", "job", NULL};
	int i = option_values_choice(text, names);

	*value = (enum restart)(RESTART_RANK + i);
	return i >= 0;
}

int value_bind_to(const char *text, enum bind_to *value)
{
	static const char *const names[] = {"core", "numa", "none", NULL};
	int i = option_values_choice(text, names);

	*value = (enum bind_to)(BIND_CORE + i);
	return i >= 0;
}

int value_master(const char *text, char *host, size_t bytes, int *port)
{
	return !netaddr_read(text, host, bytes, port);
}

int value_host(const char *text, char *host, size_t bytes)
{
	return !netaddr_read_host(text, host, bytes);
}

int value_port(const char *text, int *port)
{
	return netaddr_read_port(text, port);
}

int value_ranks(const char *text, int *ranks, const char **automatic)
{
	static const char *const names[] = {"auto", "gpu", "cpu", NULL};
	int i = option_values_choice(text, names);

	*automatic = i >= 0 ? names[i] : NULL;
	*ranks = 0;
	return i >= 0 || value_int(text, 1, RANKS_MAX, ranks);
}

int value_is_number(const char *word)
{
	return *word && word[strspn(word, "0123456789")] == '\0';
}

int value_devices(const char *text, char *list, size_t bytes)
{
	return device_list_add(list, bytes, text);
}
