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

static void spread(const struct links *l, double *field)
{
	for (int i = 0; i < LINKS; i++) {
		field[3 * i] = l->link[i].alpha;
		field[3 * i + 1] = l->link[i].overhead;
		field[3 * i + 2] = l->link[i].beta;
	}
	field[3 * LINKS] = l->gamma;
	field[CORES] = l->cores;
}

static void collect(struct links *l, const double *field)
{
	for (int i = 0; i < LINKS; i++)
		l->link[i] = (struct link_speed){field[3 * i], field[3 * i + 1], field[3 * i + 2]};
	l->gamma = field[3 * LINKS];
	l->cores = field[CORES];
}

void links_round(struct links *l)
{
	double field[FIELDS];
	spread(l, field);
	for (int i = 0; i < CORES; i++)
		field[i] = field[i] > 0 ? exp2(round(log2(field[i]))) : 0;
	collect(l, field);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

void links_median(struct links *links, const struct links *of, int n, double *values)
{
	double field[FIELDS], one[FIELDS];
	spread(links, field);
	for (int f = 0; f < FIELDS; f++) {
		size_t found = 0;
		for (int r = 0; r < n; r++) {
			spread(&of[r], one);
			if (one[f] > 0)
				values[found++] = one[f];
		}
		qsort(values, found, sizeof *values, compare);
		if (found)
			field[f] = values[found / 2];
	}
	collect(links, field);
}

/* The busiest rank's core has other ranks to serve, too: an eighth of the lesser time is what that
 * comes to with 4 and with 8 ranks on 2 cores. */
static double busy(double all_alike, double mean, double busiest, double share)
{
	if (mean <= 0)
		mean = busiest = all_alike;
	busiest /= share;
	return busiest > mean ? busiest + mean / 8 : mean + busiest / 8;
}

/* alpha and beta were measured while all ranks of the node sent, so their parts of a core are in
 * them. A round costs a few switches of threads besides: about a third of alpha with 4 and with 8
 * ranks on 2 cores. One way they are fewer, since ranks run ahead of each other. */
static double shared_seconds(const struct links *links, const struct cost *c, double share,
			     double bytes, double slice)
{
	const struct link_speed *l = &links->link[LINK_LOCAL];
	double rounds = c->link[LINK_LOCAL].rounds / (c->is_one_way ? 16 : 3);
	double filling = c->link[LINK_LOCAL].depth * slice;
	double messages =
		busy(c->link[LINK_LOCAL].messages, c->mean.messages, c->busiest.messages, share);
	double carried =
		busy(c->link[LINK_LOCAL].bytes, c->mean.bytes, c->busiest.bytes, share) * bytes +
		filling / share;
	double reduced =
		busy(c->reduced, c->mean.reduced, c->busiest.reduced, share) * share * bytes;

	return (messages + rounds) * l->alpha + carried * l->beta + reduced * links->gamma;
}

double links_seconds(const struct links *links, struct topology place, const struct cost *c,
		     double bytes, double slice)
{
	double share = place.nodes == 1 && links->cores > 0 ? place.ranks / links->cores : 1;
	if (share > 1)
		return shared_seconds(links, c, share, bytes, slice);
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
static bool parse(const char *line, const char *key, double *field)
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

/* NULL if it is no file, such as a pipe without a writer, or far too long to be this one. */
static FILE *open_small(const char *path)
{
	struct stat stat;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	FILE *file = NULL;
	if (fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size <= FILE_BYTES_MAX)
		file = fdopen(fd, "r");
	else
		log_info("%s: not a file of measured links", path);
	if (!file)
		close(fd);
	return file;
}

/* There is no other way to find out: root may write everywhere, and still /proc takes no file. The
 * file has another name, so it is not taken for the real one, and it is removed at once. */
static tutti_status check_folder(const char *path)
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

static bool is_of_links(const char *line)
{
	double field[FIELDS];
	char key[512];

	return sscanf(line, "%511s", key) == 1 && parse(line, key, field);
}

/* Whether it is a file of links: empty, or with a valid line. Others may be cut off by a full disk.
 */
static bool is_ours(FILE *file)
{
	char line[512];
	bool is_empty = true;

	while (fgets(line, sizeof line, file)) {
		if (is_of_links(line))
			return true;
		is_empty = false;
	}
	return is_empty;
}

tutti_status links_check(const char *path)
{
	struct stat stat;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	const char *why = "none of its lines is one (one that is not there is made)";
	FILE *file = NULL;

	if (fd < 0 && errno == ENOENT)
		return check_folder(path);
	if (fd < 0)
		return fail_errno("TUTTI_LINKS=%.200s cannot be read", path);
	if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode))
		why = "it is no file";
	else if (stat.st_size > FILE_BYTES_MAX)
		why = "it is far too long";
	else if (!(file = fdopen(fd, "r")))
		why = "there is no memory to read it";
	if (!file)
		close(fd);
	else if (is_ours(file))
		why = NULL;
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
	double field[FIELDS];
	bool found = false;
	FILE *file = open_small(path);
	if (!file)
		return false;
	while (fgets(line, sizeof line, file))
		if (parse(line, key, field)) {
			collect(links, field); /* the last one counts */
			found = true;
		}
	fclose(file);
	return found;
}

void links_append(const struct links *links, const char *path, const char *key)
{
	double field[FIELDS];
	char line[512];
	spread(links, field);
	int n = snprintf(line, sizeof line, "%s", key);
	for (int f = 0; f < FIELDS && n < (int)sizeof line - 32; f++)
		n += snprintf(line + n, sizeof line - (size_t)n, " %.9g", field[f]);
	line[n++] = '\n';
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
	if (fd < 0 || write(fd, line, (size_t)n) != n) /* one write, so that ranks do not mix */
		log_info("%s: the measured links cannot be kept: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
}
