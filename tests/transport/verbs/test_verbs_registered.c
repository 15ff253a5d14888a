/* guest: it needs an RDMA device */
/* Would break: messages from and into registered memory, which the devices read and write where it
 * lies: wrong bytes, or buffers that are touched after close. */
#include "tests/transport/conformance.h"
#include "tests/transport/verbs/arena.h"

#include "transport/registry.h"

int main(void)
{
	static const struct conformance verbs = {.transport = &transport_verbs};

	return arena_open() ? conformance_main(&verbs) : 1;
}
