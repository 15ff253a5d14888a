/* Reads a file of traces; parse.c understands what is in it. */
#include "merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MOST (INT64_C(1) << 30)

static char *load_read_all(FILE *file, size_t *bytes)
{
	size_t room = 0;
	char *content = NULL, *more;

	*bytes = 0;
	do {
		room = room ? 2 * room : 1 << 16;
		if (room > FILE_MOST || !(more = realloc(content, room + 1))) {
			free(content);
			errno = EFBIG;
			return NULL;
		}
		content = more;
		*bytes += fread(content + *bytes, 1, room - *bytes, file);
	} while (*bytes == room);
	content[*bytes] = '\0';
	return content;
}

bool trace_load_file(struct log *log, const char *path, char *why, size_t why_bytes)
{
	char reason[200];
	size_t bytes;

	errno = 0;
	FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	char *content = file ? load_read_all(file, &bytes) : NULL;
	bool is_read = content && !ferror(file), is_whole = false;
	if (file && file != stdin)
		fclose(file);
	if (!is_read) {
		snprintf(why, why_bytes, "%s could not be read: %s.", path, strerror(errno));
	} else {
		is_whole = load_text(log, content, reason, sizeof reason);
		if (!is_whole)
			snprintf(why, why_bytes, "%s is no trace: %s.", path, reason);
	}
	free(content);
	return is_whole;
}
