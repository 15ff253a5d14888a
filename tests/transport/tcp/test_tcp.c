/* Would break: any rule of transport.h, over tcp. */
#include "tests/transport/conformance.h"

#include "transport/registry.h"

int main(void)
{
	static const struct conformance subject = {.transport = &transport_tcp};

	return conformance_main(&subject);
}
