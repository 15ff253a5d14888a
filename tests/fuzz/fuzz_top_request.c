/* Would break: tutti-top --web, by what another program of this machine sends to its port. */
#include "fuzz.h"

#include "tools/tutti-top/web.h"

#include <string.h>

#define KEY "0123456789abcdef0123456789abcdef"

void fuzz_one(const uint8_t *bytes, size_t n)
{
	size_t most = n < WEB_REQUEST_BYTES ? n : WEB_REQUEST_BYTES;
	enum web_answer found = web_request((const char *)bytes, most, KEY);

	if (found == WEB_PAGE || found == WEB_ROWS)
		MUST(memmem(bytes, most, "GET /" KEY "/", strlen("GET /" KEY "/")) == bytes);
	MUST(found != WEB_MORE || most < WEB_REQUEST_BYTES);
}
