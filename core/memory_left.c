/* Reads /proc/meminfo, and the memory controller's files of both versions of control groups. */
#include "core/memory_left.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define UNKNOWN UINT64_MAX

/* The number that follows key in a file of directory, or begins a line where key is "". */
static uint64_t memory_left_number_in(const char *directory, const char *name, const char *key)
{
	char path[PATH_MAX], line[256];
	uint64_t number = UNKNOWN;
	size_t n = strlen(key);

	snprintf(path, sizeof path, "%s/%s", directory, name);
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file) &&
	       (strncmp(line, key, n) != 0 || sscanf(line + n, "%" SCNu64, &number) != 1))
		;
	if (file)
		fclose(file);
	return number;
}

/* Where a version of control groups is, and its files. */
struct version {
	const char *base, *limit, *used;
	const char *cache; /* in memory.stat: what is given back when the limit is reached */
};
static const struct version first = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
				     "memory.usage_in_bytes", "total_inactive_file "};
static const struct version second = {"/sys/fs/cgroup", "memory.max", "memory.current",
				      "inactive_file "};

static uint64_t memory_left_at(const char *directory, const struct version *v)
{
	uint64_t limit = memory_left_number_in(directory, v->limit, "");
	uint64_t used = memory_left_number_in(directory, v->used, "");
	uint64_t cache = memory_left_number_in(directory, "memory.stat", v->cache);

	if (limit == UNKNOWN || used == UNKNOWN)
		return UNKNOWN;
	used -= cache < used ? cache : 0;
	return limit > used ? limit - used : 0;
}

/* The least of a group and of all around it. A container may see its own group as the base, under
 * whatever name it has outside. */
static uint64_t memory_left_in(const char *root, const struct version *v, const char *group)
{
	char directory[PATH_MAX];
	int base = snprintf(directory, sizeof directory, "%s%s", root, v->base);
	uint64_t least = UNKNOWN;
	char *end;

	snprintf(directory + base, sizeof directory - (size_t)base, "%s", group);
	do {
		uint64_t left = memory_left_at(directory, v);
		least = left < least ? left : least;
		if ((end = strrchr(directory + base, '/')))
			*end = '\0';
	} while (end);
	return least;
}

/* /proc/self/cgroup has lines "number:controllers:group"; the second version names no controllers.
 */
static uint64_t memory_left_in_groups(const char *root)
{
	char path[PATH_MAX], line[PATH_MAX];
	uint64_t least = UNKNOWN;

	snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file)) {
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		bool is_first = strcmp(controllers + 1, "memory") == 0;
		uint64_t left = is_first || !controllers[1]
					? memory_left_in(root, is_first ? &first : &second, group)
					: UNKNOWN;
		least = left < least ? left : least;
	}
	if (file)
		fclose(file);
	return least;
}

uint64_t memory_left(const char *root)
{
	char proc[PATH_MAX];

	snprintf(proc, sizeof proc, "%s/proc", root);
	uint64_t kib = memory_left_number_in(proc, "meminfo", "MemAvailable:");
	uint64_t groups = memory_left_in_groups(root);
	uint64_t all = kib == UNKNOWN ? UNKNOWN : kib << 10;

	return groups < all ? groups : all;
}
