/* no_tsan: libucp is not instrumented, and its own thread shares memory with ours */
/* Would break: ucx is not a transport like the others (tests/transport/conformance.h), over tcp or
 * over shared memory: UCX_TLS says which (tests.cmake). */
#include "tests/transport/conformance.h"

#include "transport/registry.h"
#include "transport/ucx/library.h"

#include "core/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* UCX 1.13 keeps some bytes of each peer whose shared memory had gone before it was there. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libuct.so\n";
}

/* LeakSanitizer of gcc 12 crashes at the end over UCX's tcp; over sm, and in tests/ucx, it looks.
 */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	const char *wire = getenv("UCX_TLS");

	return wire && strncmp(wire, "tcp", 3) == 0;
}

int main(void)
{
	static const struct conformance ucx = {.transport = &transport_ucx};
	const struct ucx_library *library;

	if (ucx_library(&library) != TUTTI_OK) {
		printf("%s\n", last_error());
		return 77;
	}
	return conformance_main(&ucx);
}
