/* guest: it needs an RDMA device */
/* Would break: messages from and into registered memory, which the devices read and write where it
 * lies: wrong bytes, or buffers that are touched after close. */
#include "tests/transport/conformance.h"
#include "tests/transport/verbs/arena.h"

#include "transport/registry.h"

int main(void)
{
	/* The machine is emulated; the fake has all. */
	static const struct conformance verbs = {.transport = &transport_verbs, .costs = 6};

	return arena_open() ? conformance_main(&verbs) : 1;
}
