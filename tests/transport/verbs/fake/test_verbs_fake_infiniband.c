/* Would break: verbs on InfiniBand, whose ports are named by a LID; and where little is sent
 * inline.
 */
#include "tests/transport/verbs/fake/on_fake.h"

int main(void)
{
	struct fake_config config;

	fake_config_infiniband(&config, on_fake_seed());
	config.device[0].max_inline = 64;
	return on_fake_conformance(&config);
}
