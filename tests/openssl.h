/* Whether a test can use TLS here; if not, prints why, in the words of tests/skips.txt. */
#ifndef TESTS_OPENSSL_H
#define TESTS_OPENSSL_H

#include "core/status.h"
#include "core/tls.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static inline bool openssl_is_here(void)
{
	if (tls_load() == TUTTI_OK)
		return true;
	bool has_none = strstr(last_error(), "libssl3") || strstr(last_error(), "libssl-dev");
	printf("%s\n", has_none ? "OpenSSL 3 is not installed" : last_error());
	return false;
}

#endif
