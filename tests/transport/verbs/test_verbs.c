/* guest: it needs an RDMA device */
/* Would break: verbs is not a transport like the others (tests/transport/conformance.h). */
#include "tests/transport/conformance.h"

#include "transport/registry.h"

int main(void)
{
	/* The machine is emulated; the fake has all. */
	static const struct conformance verbs = {.transport = &transport_verbs, .costs = 6};

	return conformance_main(&verbs);
}
