/* slow: 4 s */
/* no_tsan: both ends are in one thread */
/* Would break: any rule of transport.h, over tcp with TLS. */
#include "tests/transport/conformance.h"
#include "tests/openssl.h"

#include "core/tls.h"
#include "transport/registry.h"

int main(void)
{
	static const struct conformance subject = {.transport = &transport_tcp, .has_tls = true};

	return openssl_is_here() ? conformance_main(&subject) : 77;
}
