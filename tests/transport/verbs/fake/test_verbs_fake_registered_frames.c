/* Would break: registered memory on a device that has no immediate data. */
#include "tests/transport/verbs/arena.h"
#include "tests/transport/verbs/fake/on_fake.h"

int main(void)
{
	struct fake_config config;

	fake_config_roce(&config, on_fake_seed());
	config.device[0].has_no_immediate = true;
	return arena_open() ? on_fake_conformance(&config) : 1;
}
