/* slow: 3 s */
/* no_tsan: both ends are in one thread */
/* Would break: any rule of transport.h, over tcp whose broken connections are made again; deaths
 * above all, which must not be taken for broken sockets. */
#include "tests/transport/conformance.h"

#include "transport/registry.h"

int main(void)
{
	static const struct conformance subject = {.transport = &transport_tcp, .reconnect = 2};

	return conformance_main(&subject);
}
