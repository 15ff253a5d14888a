/* Speeds of links: defaults, medians, a file of them, and seconds for a cost. */
#include "collectives/select/links.h"

#include "core/log.h"
#include "core/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIELDS         (3 * LINKS + 2)
#define CORES          (FIELDS - 1)
#define FILE_BYTES_MAX (1 << 20)

struct links links_default(void)
{
	return (struct links){.link = {[LINK_LOCAL] = {1e-6, 0.3e-6, 1 / 4e9},
				       [LINK_NET] = {20e-6, 4e-6, 1 / 1.2e9}},
			      .gamma = 1 / 8e9};
}

_Static_assert(sizeof(struct links) == FIELDS * sizeof(double), "its fields are an array too");

void links_round(struct links *l)
{
	double *field = (double *)l;
	for (int i = 0; i < CORES; i++)
		field[i] = field[i] > 0 ? exp2(round(log2(field[i]))) : 0;
}

static int links_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

void links_median(struct links *links, const struct links *of, int n, double *values)
{
	for (int f = 0; f < FIELDS; f++) {
		size_t found = 0;
		for (int r = 0; r < n; r++) {
			double one = ((const double *)&of[r])[f];
			if (one > 0)
				values[found++] = one;
		}
		qsort(values, found, sizeof *values, links_compare);
		if (found)
			((double *)links)[f] = values[found / 2];
	}
}

/* The busiest rank's core has other ranks to serve, too: an eighth of the lesser time is what that
 * comes to with 4 and with 8 ranks on 2 cores. */
static double links_busy(double all_alike, double mean, double busiest, double share)
{
	if (mean <= 0)
		mean = busiest = all_alike;
	busiest /= share;
	return busiest > mean ? busiest + mean / 8 : mean + busiest / 8;
}

/* alpha and beta were measured while all ranks of the node sent, so they include that ranks share
 * cores. A round also costs a few thread switches: about a third of alpha with 4 and with 8 ranks
 * on 2 cores. An algorithm that sends one way has fewer of them: its ranks run ahead of each
 * other. */
static double links_shared_seconds(const struct links *links, const struct cost *c, double share,
				   double bytes, double slice)
{
	const struct link_speed *l = &links->link[LINK_LOCAL];
	double rounds = c->link[LINK_LOCAL].rounds / (c->is_one_way ? 16 : 3);
	double filling = c->link[LINK_LOCAL].depth * slice;
	double messages = links_busy(c->link[LINK_LOCAL].messages, c->mean.messages,
				     c->busiest.messages, share);
	double carried =
		links_busy(c->link[LINK_LOCAL].bytes, c->mean.bytes, c->busiest.bytes, share) *
			bytes +
		filling / share;
	double reduced =
		links_busy(c->reduced, c->mean.reduced, c->busiest.reduced, share) * share * bytes;

	return (messages + rounds) * l->alpha + carried * l->beta + reduced * links->gamma;
}

double links_seconds(const struct links *links, struct topology place, const struct cost *c,
		     double bytes, double slice)
{
	double share = place.nodes == 1 && links->cores > 0 ? place.ranks / links->cores : 1;
	if (share > 1)
		return links_shared_seconds(links, c, share, bytes, slice);
	double seconds = c->reduced * bytes * links->gamma;
	for (int i = 0; i < LINKS; i++) {
		const struct link_speed *l = &links->link[i];
		double more = c->link[i].messages - c->link[i].rounds;
		seconds += c->link[i].rounds * l->alpha + (more > 0 ? more * l->overhead : 0) +
			   (c->link[i].bytes * bytes + c->link[i].depth * slice) * l->beta;
	}
	return seconds;
}

/* "key alpha overhead beta alpha overhead beta gamma cores" */
static bool links_parse(const char *line, const char *key, double *field)
{
	size_t n = strlen(key);
	if (strncmp(line, key, n) != 0 || line[n] != ' ')
		return false;
	char *at = (char *)(uintptr_t)line + n;
	for (int f = 0; f < FIELDS; f++) {
		char *end;
		field[f] = strtod(at, &end);
		bool is_sound = f == CORES ? field[f] == 0 || (field[f] >= 1 && field[f] < 1e6)
					   : field[f] > 0 && field[f] < 1e3;
		if (end == at || !is_sound)
			return false;
		at = end;
	}
	return true;
}

/* NULL, and why: it is a pipe, which may have no writer, or far too long to be this file. why NULL:
 * errno says it. */
static FILE *links_open_small(const char *path, const char **why)
{
	struct stat stat;
	FILE *file = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	*why = NULL;
	if (fd < 0)
		return NULL;
	if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode))
		*why = "it is no file";
	else if (stat.st_size > FILE_BYTES_MAX)
		*why = "it is far too long";
	else if (!(file = fdopen(fd, "r")))
		*why = "there is no memory to read it";
	if (!file)
		close(fd);
	return file;
}

/* There is no other way to find out: root may write everywhere, and still /proc takes no file. The
 * file has another name, so it is not taken for the real one, and it is removed at once. */
static tutti_status links_check_folder(const char *path)
{
	static const char name[] = "tutti-links.XXXXXX";
	char folder[PATH_MAX + sizeof name];
	char *slash;
	int fd;

	snprintf(folder, PATH_MAX, "%s", path);
	slash = strrchr(folder, '/');
	strcpy(slash ? slash + 1 : folder, name);
	fd = mkostemp(folder, O_CLOEXEC);
	if (fd < 0)
		return fail_errno("TUTTI_LINKS=%.200s is not there and cannot be made", path);
	close(fd);
	unlink(folder);
	return TUTTI_OK;
}

static bool links_is_of_links(const char *line)
{
	double field[FIELDS];
	char key[512];

	return sscanf(line, "%511s", key) == 1 && links_parse(line, key, field);
}

/* A file of links is empty, or has a valid line. A full disk may have cut off other lines. */
static bool links_is_ours(FILE *file)
{
	char line[512];
	bool is_empty = true;

	while (fgets(line, sizeof line, file)) {
		if (links_is_of_links(line))
			return true;
		is_empty = false;
	}
	return is_empty;
}

tutti_status links_check(const char *path)
{
	const char *why;
	FILE *file = links_open_small(path, &why);

	if (!file && !why)
		return errno == ENOENT ? links_check_folder(path)
				       : fail_errno("TUTTI_LINKS=%.200s cannot be read", path);
	if (file && !links_is_ours(file))
		why = "none of its lines is one (one that is not there is made)";
	if (file)
		fclose(file);
	if (!why)
		return TUTTI_OK;
	return fail(TUTTI_ERR_INVALID, "TUTTI_LINKS=%.200s is no file of measured links: %s", path,
		    why);
}

bool links_read(struct links *links, const char *path, const char *key)
{
	char line[512];
	const char *why;
	double field[FIELDS];
	bool found = false;
	FILE *file = links_open_small(path, &why);

	if (!file && why)
		log_info("%s: no file of measured links: %s", path, why);
	if (!file)
		return false;
	while (fgets(line, sizeof line, file))
		if (links_parse(line, key, field)) {
			memcpy(links, field, sizeof field); /* the last one counts */
			found = true;
		}
	fclose(file);
	return found;
}

void links_append(const struct links *links, const char *path, const char *key)
{
	const double *field = (const double *)links;
	char line[512];
	int n = snprintf(line, sizeof line, "%s", key);
	for (int f = 0; f < FIELDS && n < (int)sizeof line - 32; f++)
		n += snprintf(line + n, sizeof line - (size_t)n, " %.9g", field[f]);
	line[n++] = '\n';
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
	/* A short write sets no errno. */
	if (fd >= 0)
		errno = ENOSPC;
	if (fd < 0 || write(fd, line, (size_t)n) != n) /* one write, so that ranks do not mix */
		log_info("%s: the measured links cannot be kept: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
}
