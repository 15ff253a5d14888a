/* Puts the fake's devices under the program of tests/api, whose ranks are threads.
 * FAKE_FORM=frames: without immediate data. */
#include "tests/verbs/fake/fake_verbs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void start(void)
{
	const char *seed = getenv("SEED"), *form = getenv("FAKE_FORM");
	struct fake_config config;

	fake_config_roce(&config, seed ? strtoull(seed, NULL, 0) : 1);
	config.device[0].has_no_immediate = form && strcmp(form, "frames") == 0;
	fake_start(&config);
}

__attribute__((destructor)) static void end(void)
{
	if (!fake_is_clean() || fake_count().sends == 0)
		_exit(1);
}
