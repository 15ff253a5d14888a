/* no_tsan: test_verbs_fake runs the same tests, and verbs/fake_frames_3 without immediate data */
/* Would break: verbs on a device that has no immediate data and nothing inline: a write and a SEND
 * for each piece, from and into registered memory where the message is long. */
#include "tests/transport/verbs/arena.h"
#include "tests/transport/verbs/fake/on_fake.h"

int main(void)
{
	struct fake_config config;

	fake_config_roce(&config, on_fake_seed());
	config.device[0].has_no_immediate = true;
	config.device[0].is_old = true;
	config.device[0].max_inline = 0;
	return arena_open() ? on_fake_conformance(&config) : 1;
}
