/* no_tsan: the common tests of endpoints run with shm and with tcp */
/* Would break: a transport loaded from a shared object; the one that docs/transports.md shows,
 * which must pass what every transport passes. */
#include "tests/transport/conformance.h"

#include "core/status.h"
#include "transport/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	struct env env = {0};
	const struct tutti_transport *list[TRANSPORTS_MAX];
	struct conformance mailbox = {.is_one_process = true};
	char path[1024];
	int count;

	if (!getenv("BUILD_DIR")) {
		fprintf(stderr, "BUILD_DIR is not set: run this by ctest\n");
		return 1;
	}
	snprintf(path, sizeof path, "%s/tests/mailbox_plugin.so", getenv("BUILD_DIR"));
	env.transport_plugin = path;
	if (transport_list(list, &count, NULL, &env) != TUTTI_OK || count < 2 ||
	    strcmp(list[0]->name, "mailbox") != 0 ||
	    transport_list(list, &count, "mailbox", &env) != TUTTI_OK || count != 1) {
		fprintf(stderr, "the plugin is not listed: %s\n", last_error());
		return 1;
	}
	mailbox.transport = list[0];
	return conformance_main(&mailbox);
}
