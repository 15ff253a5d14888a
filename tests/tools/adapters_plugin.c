/* To be preloaded where libibverbs.so.1 is that of tests/verbs/fake: the machine has two adapters,
 * of which the second registers no dma-buf. */
#if __has_include(<infiniband/verbs.h>)
#include "tests/verbs/fake/fake_verbs.h"

__attribute__((constructor)) static void plug_in(void)
{
	struct fake_config config;

	fake_config_roce(&config, 1);
	config.devices = 2;
	config.device[1] = config.device[0];
	config.device[1].has_no_dma_buf = true;
	fake_start(&config);
}
#endif
