/* Would break: the files that a rank reads: the speeds of links that are kept in TUTTI_LINKS, the
 * file of a file:// rendezvous, and the secret's. The first byte says which. */
#include "fuzz.h"

#include "collectives/select/links.h"
#include "core/env.h"
#include "core/status.h"
#include "core/join/place.h"
#include "core/join/rendezvous.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static void read_links(const char *path)
{
	struct links links = links_default();
	struct topology place = {4, 1};
	struct cost cost = {.reduced = 1};

	if (!links_read(&links, path, "a key"))
		return;
	links_round(&links);
	MUST(isfinite(links_seconds(&links, place, &cost, 1000, 100)));
}

static void read_notice(const char *path)
{
	char url[URL_BYTES];
	struct job job = {0};

	if (notice_read(path, true, url) == TUTTI_OK) {
		MUST(strlen(url) < sizeof url);
		(void)place_parse(&job, url);
	}
	notice_remove(path, "tutti://");
}

static void read_secret(const char *path)
{
	struct env env = {.secret_file = path};
	tutti_config config = {.rank = 0, .world_size = 2, .rendezvous = "tcp://127.0.0.1:1"};
	struct job job;

	if (job_find(&job, &config, &env) == TUTTI_OK)
		MUST(strlen(job.secret) > 0 && strlen(job.secret) < sizeof job.secret);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	uint8_t what = input_byte(&in);
	char path[FUZZ_PATH_BYTES];
	int fd = input_file(&in, path);

	if (what % 3 == 0)
		read_links(path);
	else if (what % 3 == 1)
		read_notice(path);
	else
		read_secret(path);
	close(fd);
}
