/* The line is drawn each second, and wiped out before a rank's line takes its place. */
#include "progress.h"

#include "now.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EACH_MS 1000
#define WIPE    "\r\033[K"

struct progress progress_begin(const struct options *o)
{
	uint64_t now = now_ms();

	return (struct progress){o->progress && isatty(STDERR_FILENO), false, now, now + EACH_MS};
}

uint64_t progress_due_ms(const struct progress *p)
{
	return p->is_wanted ? p->due_ms : UINT64_MAX;
}

static void progress_print(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return; /* a terminal that has gone needs no line */
}

static const char *progress_time_text(uint64_t s, char text[32])
{
	unsigned long long h = s / 3600, m = s / 60 % 60;

	if (h > 0)
		snprintf(text, 32, "%llu:%02llu:%02llu", h, m, (unsigned long long)s % 60);
	else
		snprintf(text, 32, "%llu:%02llu", m, (unsigned long long)s % 60);
	return text;
}

/* Ranks of hosts tell their own tuttirun that they have joined. */
static const char *progress_joined_text(const struct ranks *r, bool are_hosts, char text[32])
{
	int joined = 0;

	if (are_hosts)
		return "";
	for (int i = 0; i < r->n; i++)
		joined += r->rank[i].has_joined;
	snprintf(text, 32, ", %d have joined", joined);
	return text;
}

void progress_draw(struct progress *p, const struct ranks *r, bool are_hosts)
{
	uint64_t now = now_ms();
	char line[160], joined[32], time[32];

	if (now < progress_due_ms(p))
		return;
	p->due_ms = now + EACH_MS;
	if (r->out.is_mid_line || r->err.is_mid_line || r->out.bytes || r->err.bytes)
		return;
	snprintf(line, sizeof line, WIPE "tuttirun: %d of %d %s run%s, %s", r->alive, r->n,
		 are_hosts ? "hosts" : "ranks", progress_joined_text(r, are_hosts, joined),
		 progress_time_text((now - p->began_ms) / 1000, time));
	progress_print(line);
	p->is_shown = true;
}

void progress_erase(struct progress *p)
{
	if (p->is_shown)
		progress_print(WIPE);
	p->is_shown = false;
}
