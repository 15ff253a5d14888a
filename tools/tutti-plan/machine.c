/* The machine that the options describe: what was not given is completed, and all of it put into
 * words. */
#include "arguments.h"

#include "units.h"

#include "core/memory/dtype.h"
#include "tools/output.h"

#include <stdio.h>

/* The last line of a file that TUTTI_LINKS named. */
static bool read_links(const char *path, struct links *links)
{
	char key[256] = "", line[512], word[256];
	FILE *file = fopen(path, "r");

	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "%255s", word) == 1)
			snprintf(key, sizeof key, "%s", word);
	if (file)
		fclose(file);
	return key[0] && links_read(links, path, key);
}

static void tutti_plan_machine_complete(double *given, double known)
{
	if (*given < 0)
		*given = known;
}

/* Beside other load a message of many may have been measured to take longer than one alone. */
static double overhead_of(const struct link_speed *measured)
{
	return measured->overhead < measured->alpha ? measured->overhead : measured->alpha;
}

int machine_complete(struct arguments *a)
{
	struct machine *m = &a->machine;
	struct links known = links_default();

	if (a->links && !read_links(a->links, &known))
		return usage_error("'%s' has no measured links; TUTTI_LINKS makes such a file.",
				   a->links);
	/* A job on one node has measured the links inside of it. */
	if (a->links && a->nodes <= 1)
		known.link[LINK_NET] = known.link[LINK_LOCAL];
	for (int l = 0; l < LINKS; l++) {
		struct link_speed *s = &m->links.link[l];
		tutti_plan_machine_complete(&s->overhead,
					    s->alpha < 0 ? overhead_of(&known.link[l]) : s->alpha);
		tutti_plan_machine_complete(&s->alpha, known.link[l].alpha);
		tutti_plan_machine_complete(&s->beta, known.link[l].beta);
		if (s->overhead > s->alpha)
			return usage_error("The overhead is a part of alpha; it cannot be more.");
	}
	tutti_plan_machine_complete(&m->links.gamma, known.gamma);
	m->links.cores = known.cores;
	if (a->nodes <= 1)
		m->links.link[LINK_LOCAL] = m->links.link[LINK_NET];
	tutti_plan_machine_complete(&m->node_beta, m->links.link[LINK_NET].beta);
	m->element = dtype_bytes(a->dtype);
	return -1;
}

static void link_in_words(const struct link_speed *l, char *text, size_t bytes)
{
	char alpha[32], beta[32], overhead[32];
	units_seconds_in_words(l->alpha, alpha, sizeof alpha);
	units_rate_in_words(l->beta, beta, sizeof beta);
	units_seconds_in_words(l->overhead, overhead, sizeof overhead);
	snprintf(text, bytes, "alpha %s (overhead %s), beta %s", alpha, overhead, beta);
}

void machine_in_words(const struct arguments *a, char text[2][200])
{
	const struct machine *m = &a->machine;
	char net[120], local[120], gamma[32], node[32];

	link_in_words(&m->links.link[LINK_NET], net, sizeof net);
	link_in_words(&m->links.link[LINK_LOCAL], local, sizeof local);
	units_rate_in_words(m->links.gamma, gamma, sizeof gamma);
	snprintf(text[0], sizeof text[0], "%s%s; gamma %s", a->nodes > 1 ? "between nodes: " : "",
		 net, gamma);
	text[1][0] = '\0';
	if (a->nodes > 1)
		snprintf(text[1], sizeof text[1], "a node, of %d ranks: %s; inside: %s",
			 a->ranges[0].first / a->nodes,
			 units_rate_in_words(m->node_beta, node, sizeof node), local);
}
