/* The distance of Damerau and Levenshtein, with swaps of neighbours only (optimal string
 * alignment). */
#include "core/words/nearest.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_BYTES = 64, SHORT_FOR_BYTES = 3 };

static int nearest_upper(char letter)
{
	return toupper((unsigned char)letter);
}

int nearest_distance(const char *a, size_t bytes, const char *b)
{
	int rows[3][NAME_MAX_BYTES + 1]; /* the current row and the two before it, in turn */
	int m = (int)bytes, n = (int)strlen(b);

	if (bytes > NAME_MAX_BYTES || n > NAME_MAX_BYTES)
		return INT_MAX;
	if (bytes >= SHORT_FOR_BYTES && m < n && strncasecmp(a, b, bytes) == 0)
		return 1;
	for (int j = 0; j <= n; j++)
		rows[0][j] = j;
	for (int i = 1; i <= m; i++) {
		int *row = rows[i % 3], *up = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
		row[0] = i;
		for (int j = 1; j <= n; j++) {
			int best = up[j - 1] + (nearest_upper(a[i - 1]) != nearest_upper(b[j - 1]));
			best = up[j] + 1 < best ? up[j] + 1 : best;
			best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    second[j - 2] + 1 < best)
				best = second[j - 2] + 1;
			row[j] = best;
		}
	}
	return rows[m % 3][n];
}

struct nearest nearest_to(const char *typed, size_t bytes)
{
	int limit = bytes > NAME_MAX_BYTES ? 0 : (int)bytes / 3 + 1;

	return (struct nearest){.typed = typed, .bytes = bytes, .limit = limit};
}

void nearest_try(struct nearest *nearest, const char *name)
{
	int distance = nearest_distance(nearest->typed, nearest->bytes, name);

	if (distance >= nearest->limit)
		return;
	nearest->limit = distance;
	nearest->name = name;
}
