/* Would break: shm is not a transport like the others (tests/transport/conformance.h). */
#include "tests/transport/conformance.h"

#include "transport/shm/shm.h"

int main(void)
{
	static const struct conformance shm = {.transport = &transport_shm};

	return conformance_main(&shm);
}
