/* no_tsan: test_verbs_fake runs the same tests, and test_verbs_failover from and into registered
 * memory */
/* Would break: messages from and into registered memory, which the device reads and writes where it
 * lies: wrong bytes, or buffers that are touched after close. On InfiniBand, whose ports are named
 * by a LID, and with little inline. */
#include "tests/transport/verbs/arena.h"
#include "tests/transport/verbs/fake/on_fake.h"

int main(void)
{
	struct fake_config config;

	fake_config_infiniband(&config, on_fake_seed());
	config.device[0].max_inline = 64;
	return arena_open() ? on_fake_conformance(&config) : 1;
}
