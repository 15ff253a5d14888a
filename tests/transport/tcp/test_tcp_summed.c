/* slow: 2 s */
/* no_tsan: the common tests of endpoints run with shm and with tcp */
/* Would break: any rule of transport.h, over tcp with checksums. */
#include "tests/transport/conformance.h"

#include "transport/registry.h"

int main(void)
{
	static const struct conformance subject = {.transport = &transport_tcp,
						   .has_checksums = true};

	return conformance_main(&subject);
}
