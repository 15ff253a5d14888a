/* Would break: texts that say where ranks meet: lists of hosts as Slurm writes them, host:port,
 * URLs. The first byte says which. */
#include "fuzz.h"

#include "core/status.h"
#include "core/words/netaddr.h"
#include "core/join/launcher.h"
#include "core/join/place.h"

#include <string.h>

static void read_url(const char *text)
{
	struct job job = {.port = 1};
	const char *list;
	char host[HOST_BYTES];

	if (place_parse(&job, text) != TUTTI_OK)
		return;
	MUST(job.meeting == JOB_FILE || (job.port > 0 && job.port < 65536));
	MUST(memchr(job.host, 0, sizeof job.host) && memchr(job.path, 0, sizeof job.path));
	list = job.host;
	for (int i = 0; place_next_host(&list, host); i++)
		MUST(i < HOST_BYTES && memchr(host, 0, sizeof host));
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	uint8_t what = input_byte(&in);
	char *text = input_text(&in), host[16];
	int port;

	if (what % 3 == 0) {
		if (hostlist_first(text, host, sizeof host) == TUTTI_OK)
			MUST(strlen(host) > 0 && strlen(host) < sizeof host);
	} else if (what % 3 == 1) {
		if (!netaddr_read(text, host, sizeof host, &port)) {
			MUST(strlen(host) > 0 && port > 0 && port < 65536);
			MUST(!strchr(host, '[') && !strchr(host, ',') && !strchr(host, '/'));
		}
		if (!netaddr_read_host(text, host, sizeof host))
			MUST(strlen(host) > 0 && strlen(host) < sizeof host);
	} else {
		read_url(text);
	}
	free(text);
}
