/* See words.h. */
#include "tests/faults/words.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *text;
	enum claim_kind kind;
} verbs[] = {
	{"has died", CLAIM_DEAD},    {"has ended", CLAIM_DEAD},    {"has left", CLAIM_GONE},
	{"was lost", CLAIM_GONE},    {"left", CLAIM_GONE},         {"closed", CLAIM_GONE},
	{"is lost", CLAIM_GONE},     {"is gone", CLAIM_GONE},      {"is stopped", CLAIM_SILENT},
	{"is silent", CLAIM_SILENT}, {"has failed", CLAIM_FAILED}, {"refuses", CLAIM_GONE},
};

/* Past " (process 12 on box)"; *pid is what it says. */
static const char *skip_bracket(const char *at, long *pid)
{
	const char *process;

	*pid = 0;
	if (strncmp(at, " (", 2) != 0)
		return at;
	const char *end = strchr(at, ')');
	if (!end)
		return at + strlen(at);
	process = strstr(at, "process ");
	if (process && process < end)
		*pid = strtol(process + 8, NULL, 10);
	else if (isdigit((unsigned char)at[2]) && strstr(at, " on ") && strstr(at, " on ") < end)
		*pid = strtol(at + 2, NULL, 10);
	return end + 1;
}

static enum claim_kind verb_at(const char *at)
{
	while (*at == ' ' || *at == ',')
		at++;
	for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
		if (strncmp(at, verbs[i].text, strlen(verbs[i].text)) == 0)
			return verbs[i].kind;
	return CLAIM_NAMED;
}

/* "2", "2, 3 and 5", "2 to 4" */
static const char *read_numbers(const char *at, struct claim *claims, int *count)
{
	for (;;) {
		char *end;
		long number = strtol(at, &end, 10);
		if (end == at || *count == CLAIMS_MOST)
			return at;
		claims[(*count)++] = (struct claim){.rank = (int)number};
		at = end;
		bool is_range = strncmp(at, " to ", 4) == 0 && isdigit((unsigned char)at[4]);
		if (is_range) {
			long last = strtol(at + 4, &end, 10);
			while (++number <= last && *count < CLAIMS_MOST)
				claims[(*count)++] = (struct claim){.rank = (int)number};
			at = end;
		}
		if (strncmp(at, ", ", 2) == 0 && isdigit((unsigned char)at[2]))
			at += 2;
		else if (strncmp(at, " and ", 5) == 0 && isdigit((unsigned char)at[5]))
			at += 5;
		else
			return at;
	}
}

int words_read(const char *message, struct claim *claims)
{
	int count = 0;

	for (const char *at = message; (at = strstr(at, "ank"));) {
		int first = count;
		long pid;
		at += 3;
		if (*at == 's')
			at++;
		if (*at != ' ' || !isdigit((unsigned char)at[1]))
			continue;
		at = skip_bracket(read_numbers(at + 1, claims, &count), &pid);
		enum claim_kind kind = verb_at(at);
		for (int i = first; i < count; i++) {
			claims[i].kind = kind;
			claims[i].pid = count - first == 1 ? pid : 0;
		}
	}
	return count;
}

bool words_misplace(const char *message, int rank, const char *call)
{
	char start[40];

	snprintf(start, sizeof start, "Rank %d was in ", rank);
	const char *at = strstr(message, start);
	return at && call[0] && strncmp(at + strlen(start), call, strlen(call)) != 0;
}
