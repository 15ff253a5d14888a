/* What would break: who may see the page of tutti-top: requests without the key, and bytes that are
 * no request. */
#include "tools/tutti-top/web.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define KEY "0123456789abcdef0123456789abcdef"

/* In memory of just that length, so that a sanitizer sees a look behind it. */
static enum web_answer answer_to(const char *text, size_t bytes)
{
	char *copy = malloc(bytes ? bytes : 1);
	enum web_answer found;

	assert_non_null(copy);
	memcpy(copy, text, bytes);
	found = web_request(copy, bytes, KEY);
	free(copy);
	return found;
}

static void check(enum web_answer expected, const char *text)
{
	enum web_answer found = answer_to(text, strlen(text));

	if (found != expected)
		fail_msg("%d instead of %d for: %s", found, expected, text);
}

static void paths(void **state)
{
	(void)state;
	check(WEB_PAGE, "GET /" KEY "/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
	check(WEB_PAGE, "GET /" KEY "/ HTTP/1.0\r\n\r\n");
	check(WEB_ROWS, "GET /" KEY "/rows.json HTTP/1.1\r\n\r\n");
	check(WEB_MISSING, "GET /" KEY "/rows.jso HTTP/1.1\r\n\r\n");
	check(WEB_MISSING, "GET /" KEY "/rows.jsonx HTTP/1.1\r\n\r\n");
	check(WEB_MISSING, "GET /" KEY " HTTP/1.1\r\n\r\n");
	check(WEB_MISSING, "GET / HTTP/1.1\r\n\r\n");
	check(WEB_MISSING, "GET /favicon.ico HTTP/1.1\r\n\r\n");
	check(WEB_MISSING, "GET http://127.0.0.1/" KEY "/ HTTP/1.1\r\n\r\n");
}

/* A key with one letter that differs, at each place. */
static void wrong_keys(void **state)
{
	char text[] = "GET /" KEY "/rows.json HTTP/1.1\r\n\r\n";

	(void)state;
	for (size_t i = strlen("GET /"); i < strlen("GET /" KEY); i++) {
		char right = text[i];
		text[i] = 'x';
		check(WEB_MISSING, text);
		text[i] = right;
	}
	check(WEB_ROWS, text);
}

static void no_requests(void **state)
{
	char *most = malloc(WEB_REQUEST_BYTES);

	(void)state;
	check(WEB_BAD, "POST /" KEY "/ HTTP/1.1\r\n\r\n");
	check(WEB_BAD, "GET\r\n\r\n");
	check(WEB_BAD, "GET /" KEY "/\r\n\r\n");
	check(WEB_BAD, "GET /" KEY "/ HTTP/2\r\n\r\n");
	check(WEB_BAD, "\r\n\r\n");
	check(WEB_MORE, "");
	check(WEB_MORE, "GET /" KEY "/ HTTP/1.1\r\nHost: x\r\n");
	assert_non_null(most);
	memset(most, 'x', WEB_REQUEST_BYTES);
	assert_int_equal(answer_to(most, WEB_REQUEST_BYTES - 1), WEB_MORE);
	assert_int_equal(answer_to(most, WEB_REQUEST_BYTES), WEB_BAD);
	free(most);
}

/* Each beginning of a request, and each with a byte that is another: nothing but the key lets in.
 */
static void changed_requests(void **state)
{
	static const char right[] = "GET /" KEY "/rows.json HTTP/1.1\r\nHost: x\r\n\r\n";
	char text[sizeof right];
	size_t n = strlen(right);

	(void)state;
	for (size_t i = 0; i < n; i++)
		assert_int_equal(answer_to(right, i), WEB_MORE);
	for (size_t i = 0; i < n; i++)
		for (int byte = 0; byte < 256; byte++) {
			memcpy(text, right, sizeof right);
			text[i] = (char)byte;
			enum web_answer found = answer_to(text, n);
			bool in_key = i >= strlen("GET /") && i < strlen("GET /" KEY);
			if (in_key && text[i] != right[i])
				assert_true(found == WEB_MISSING || found == WEB_BAD);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(paths), cmocka_unit_test(wrong_keys),
					   cmocka_unit_test(no_requests),
					   cmocka_unit_test(changed_requests)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
