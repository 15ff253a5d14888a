/* The first host of a list as Slurm writes it. Only that one is needed. */
#include "core/join/launcher.h"

#include "core/status.h"

#include <ctype.h>
#include <string.h>

static tutti_status bad_list(const char *list)
{
	return fail(TUTTI_ERR_INVALID,
		    "\"%.100s\" is not a list of hosts such as node[01-03,7],gpu5", list);
}

static bool is_host_byte(char c)
{
	return isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_';
}

/* At "[01-03,7]": copies 01 and returns what follows the bracket; NULL: malformed. */
static const char *first_number(const char *at, char *to, size_t *n, size_t room)
{
	const char *close = strchr(at, ']');
	size_t digits = strspn(at + 1, "0123456789");
	char after = at[1 + digits];

	if (!close || digits == 0 || digits > room || !strchr(",-]", after) || after == '\0')
		return NULL;
	for (const char *c = at + 1; c < close; c++)
		if (!isdigit((unsigned char)*c) && *c != ',' && *c != '-')
			return NULL;
	memcpy(to, at + 1, digits);
	*n += digits;
	return close + 1;
}

tutti_status hostlist_first(const char *list, char *host, size_t host_bytes)
{
	const char *at = list;
	size_t n = 0;

	while (*at && *at != ',') {
		if (n + 1 >= host_bytes)
			return bad_list(list);
		if (*at == '[') {
			at = first_number(at, host + n, &n, host_bytes - n - 1);
			if (!at)
				return bad_list(list);
			continue;
		}
		if (!is_host_byte(*at))
			return bad_list(list);
		host[n++] = *at++;
	}
	host[n] = '\0';
	return n ? TUTTI_OK : bad_list(list);
}
