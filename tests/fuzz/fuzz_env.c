/* Would break: the environment: Tutti's own variables, and those of launchers. The input is lines
 * NAME=value, of which only known prefixes are set. */
#include "fuzz.h"

#include "core/env.h"
#include "core/status.h"
#include "core/join/rendezvous.h"

#include <string.h>

#define NAMES_MAX 40

static const char *const prefixes[] = {"TUTTI_",        "RANK",     "WORLD_SIZE", "LOCAL_",
				       "MASTER_",       "OMPI_",    "SLURM_",     "PMIX_",
				       "TORCHELASTIC_", "TF_CONFIG"};

static bool may_be_set(const char *name)
{
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

/* Opening what the input names would make of this another test. */
static bool names_a_file(const char *name)
{
	return strcmp(name, "TUTTI_SECRET_FILE") == 0 || strcmp(name, "TUTTI_LOG") == 0;
}

static int set_lines(char *text, char *names[NAMES_MAX])
{
	int count = 0;

	for (char *line; count < NAMES_MAX && (line = strsep(&text, "\n"));) {
		char *value = strchr(line, '=');
		if (!value || value == line)
			continue;
		*value++ = '\0';
		if (!may_be_set(line) || names_a_file(line))
			continue;
		setenv(line, value, 1);
		names[count++] = line;
	}
	return count;
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	char *text = input_text(&in), *names[NAMES_MAX];
	int count = set_lines(text, names);
	struct env env;
	struct job job;

	if (env_load(&env) == TUTTI_OK) {
		MUST(env.timeout_ms > 0 && env.port >= 0 && env.port < 65536);
		MUST(env.slice_bytes > 0 && env.window_bytes > 0);
		if (job_find(&job, NULL, &env) == TUTTI_OK)
			MUST(job.size > 0 && job.rank >= 0 && job.rank < job.size);
	}
	while (count-- > 0)
		unsetenv(names[count]);
	free(text);
}
