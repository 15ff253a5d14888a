/* Would break: messages from and into registered memory, which the device reads and writes where it
 * lies: wrong bytes, or buffers that are touched after close. */
#include "tests/transport/verbs/arena.h"
#include "tests/transport/verbs/fake/on_fake.h"

int main(void)
{
	struct fake_config config;

	fake_config_roce(&config, on_fake_seed());
	return arena_open() ? on_fake_conformance(&config) : 1;
}
