/* Finding libssl. Its version is that of the headers that this was built with. */
#include "core/tls_library.h"

#include "core/dynamic_library.h"
#include "core/status.h"

#include <dlfcn.h>
#include <stddef.h>

#define TEXT_OF(x)   #x
#define TEXT(x)      TEXT_OF(x)
#define LIBRARY_NAME "libssl.so." TEXT(OPENSSL_SHLIB_VERSION)

struct tls_library openssl;

tutti_status tls_library_load(struct tls_library *library)
{
	/* libssl brings libcrypto along, so that it finds the names of both. */
	static const struct dynamic_symbol functions[] = {
#define ROW(name) {#name, offsetof(struct tls_library, name), false},
		TLS_FUNCTIONS(ROW)
#undef ROW
	};
	void *handle = dlopen(LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL);
	const char *missing;

	if (!handle)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "TUTTI_TLS=1 needs OpenSSL's " LIBRARY_NAME
			    ", which cannot be loaded here (Debian's package is libssl3): %.300s",
			    dlerror());
	missing = dynamic_library_fill(handle, functions, sizeof functions / sizeof *functions,
				       library);
	if (!missing)
		return TUTTI_OK;
	fail(TUTTI_ERR_UNSUPPORTED,
	     "TUTTI_TLS=1 needs OpenSSL's " LIBRARY_NAME ", and the one here has no %s", missing);
	dlclose(handle);
	return TUTTI_ERR_UNSUPPORTED;
}
