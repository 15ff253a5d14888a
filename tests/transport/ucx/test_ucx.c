/* no_tsan: libucp is not instrumented, and its own thread shares memory with ours */
/* Would break: ucx is not a transport like the others (tests/transport/conformance.h), over tcp or
 * over shared memory: UCX_TLS says which (tests.cmake). */
#include "tests/transport/conformance.h"

#include "transport/registry.h"
#include "transport/ucx/library.h"

#include "core/status.h"

#include <stdio.h>

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
