/* Finding libssl. Its version is that of the headers that this was built with. */
#include "core/tls_library.h"

#include "core/status.h"

#include <dlfcn.h>
#include <string.h>

#define TEXT_OF(x)   #x
#define TEXT(x)      TEXT_OF(x)
#define LIBRARY_NAME "libssl.so." TEXT(OPENSSL_SHLIB_VERSION)

struct tls_library openssl;

/* libssl brings libcrypto along, so that it finds the names of both. */
static const char *tls_library_find_all(struct tls_library *library, void *handle)
{
	static const struct {
		const char *name;
		size_t offset;
	} all[] = {
#define ROW(name) {#name, offsetof(struct tls_library, name)},
		TLS_FUNCTIONS(ROW)
#undef ROW
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		void *symbol = dlsym(handle, all[i].name);
		if (!symbol)
			return all[i].name;
		memcpy((char *)library + all[i].offset, &symbol, sizeof symbol);
	}
	return NULL;
}

tutti_status tls_library_load(struct tls_library *library)
{
	void *handle = dlopen(LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL);
	const char *missing;

	if (!handle)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "TUTTI_TLS=1 needs OpenSSL's " LIBRARY_NAME
			    ", which cannot be loaded here (Debian's package is libssl3): %.300s",
			    dlerror());
	missing = tls_library_find_all(library, handle);
	if (!missing)
		return TUTTI_OK;
	fail(TUTTI_ERR_UNSUPPORTED,
	     "TUTTI_TLS=1 needs OpenSSL's " LIBRARY_NAME ", and the one here has no %s", missing);
	dlclose(handle);
	return TUTTI_ERR_UNSUPPORTED;
}
