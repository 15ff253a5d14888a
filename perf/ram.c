/* Reads how much memory is left, and writes sizes in words. */
#include "ram.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number behind a name in a file of lines "name number"; what is no number ("max") is HUGE_VAL,
 * and so is a name that is not there. An empty name: the number that the file begins with. */
static double ram_number_in(const char *path, const char *name)
{
	char line[200];
	double value = HUGE_VAL;
	size_t n = strlen(name);
	FILE *file = fopen(path, "re");

	while (file && fgets(line, sizeof line, file)) {
		char *end;

		if (strncmp(line, name, n) != 0)
			continue;
		value = strtod(line + n, &end);
		if (end == line + n)
			value = HUGE_VAL;
		break;
	}
	if (file)
		fclose(file);
	return value;
}

/* The memory that a group may still take. Pages of files that are not in use give way, as in
 * "available". */
static double group_left(const char *folder, const char *limit, const char *usage,
			 const char *given_back)
{
	char path[PATH_MAX];
	double most, used, files;

	snprintf(path, sizeof path, "%s/%s", folder, limit);
	most = ram_number_in(path, "");
	snprintf(path, sizeof path, "%s/%s", folder, usage);
	used = ram_number_in(path, "");
	snprintf(path, sizeof path, "%s/memory.stat", folder);
	files = ram_number_in(path, given_back);
	if (most == HUGE_VAL || used == HUGE_VAL)
		return HUGE_VAL;
	return fmax(0, most - used + (files < used ? files : 0));
}

/* The tightest of a group and all above it, up to where groups are mounted. Both versions' files
 * are asked for. */
static double groups_left(const char *mounted, const char *group)
{
	char folder[PATH_MAX];
	double left = HUGE_VAL;
	size_t base = strlen(mounted);

	snprintf(folder, sizeof folder, "%s%s", mounted, group);
	while (strlen(folder) >= base) {
		char *slash;

		left = fmin(left,
			    group_left(folder, "memory.max", "memory.current", "inactive_file "));
		left = fmin(left, group_left(folder, "memory.limit_in_bytes",
					     "memory.usage_in_bytes", "total_inactive_file "));
		slash = strrchr(folder, '/');
		if (!slash)
			break;
		*slash = '\0';
	}
	return left;
}

double ram_left(const char *root)
{
	char path[PATH_MAX], line[PATH_MAX];
	double left;
	FILE *file;

	snprintf(path, sizeof path, "%s/proc/meminfo", root);
	left = ram_number_in(path, "MemAvailable:") * 1024;
	snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file)) { /* 0::/a/b, or 7:memory:/a/b */
		char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;

		if (!group)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (names[1] != '\0' && !strstr(names + 1, "memory"))
			continue;
		snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, names[1] ? "/memory" : "");
		left = fmin(left, groups_left(path, group));
	}
	if (file)
		fclose(file);
	return left;
}

const char *ram_text(double bytes, char text[RAM_TEXT])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	int i = 0;

	for (; i < 6 && bytes >= 1024; i++)
		bytes /= 1024;
	snprintf(text, RAM_TEXT, i ? "%.1f %s" : "%.0f %s", bytes, units[i]);
	return text;
}
