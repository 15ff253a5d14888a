/* guest: it needs an RDMA device */
/* Would break: verbs is not a transport like the others (tests/transport/conformance.h). */
#include "tests/transport/conformance.h"

#include "transport/registry.h"

int main(void)
{
	static const struct conformance verbs = {.transport = &transport_verbs};

	return conformance_main(&verbs);
}
