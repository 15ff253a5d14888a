/* Would break: TF_CONFIG, and with it the reader of JSON. */
#include "fuzz.h"

#include "core/join/launcher.h"

#include <string.h>

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	char *text = input_text(&in);
	struct job job = {0};

	if (tf_config_read(&job, text) == TUTTI_OK) {
		MUST(job.size > 0 && job.size <= WORLD_MAX);
		MUST(job.rank >= 0 && job.rank < job.size && job.hosts != 0);
		MUST(strlen(job.host) > 0 && job.port > 0 && job.port < 65536);
	}
	free(text);
}
