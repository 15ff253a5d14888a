/* Understands what a browser, or any other program of this machine, asks tutti-top --web for. */
#include "web.h"

#include <string.h>

static bool request_begins(const char *text, size_t bytes, const char *with)
{
	return bytes >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

/* In a time that does not depend on where they differ. */
static bool request_is_key(const char *text, const char *key)
{
	unsigned differs = 0;

	for (size_t i = 0; key[i]; i++)
		differs |= (unsigned)(text[i] ^ key[i]);
	return differs == 0;
}

/* A path is /KEY/ or /KEY/rows.json. */
static enum web_answer request_answer_to(const char *path, size_t bytes, const char *key)
{
	size_t key_bytes = strlen(key);

	if (bytes < key_bytes + 2 || path[0] != '/' || path[key_bytes + 1] != '/' ||
	    !request_is_key(path + 1, key))
		return WEB_MISSING;
	path += key_bytes + 2;
	bytes -= key_bytes + 2;
	if (bytes == 0)
		return WEB_PAGE;
	return bytes == strlen("rows.json") && request_begins(path, bytes, "rows.json")
		       ? WEB_ROWS
		       : WEB_MISSING;
}

enum web_answer web_request(const char *text, size_t bytes, const char *key)
{
	static const char get[] = "GET ";
	const char *path, *end;

	if (!memmem(text, bytes, "\r\n\r\n", 4))
		return bytes < WEB_REQUEST_BYTES ? WEB_MORE : WEB_BAD;
	if (!request_begins(text, bytes, get))
		return WEB_BAD;
	path = text + strlen(get);
	end = memchr(path, ' ', bytes - strlen(get));
	if (!end || !request_begins(end, bytes - (size_t)(end - text), " HTTP/1."))
		return WEB_BAD;
	return request_answer_to(path, (size_t)(end - path), key);
}
