/* Lists of GPUs; how many there are, and CPUs. */
#include "core/words/device_list.h"

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number, or a name such as GPU-8932f937-d72c or MIG-41b3/1/0. With another word, also "all",
 * CUDA sees no GPU. */
static bool device_list_is_device(const char *name, size_t bytes)
{
	if (strncmp(name, "GPU-", 4) != 0 && strncmp(name, "MIG-", 4) != 0)
		return bytes > 0 && strspn(name, "0123456789") == bytes;
	for (size_t i = 0; i < bytes; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("-/", name[i]))
			return false;
	return bytes > 4;
}

static bool device_list_is_listed(const char *list, const char *name, size_t bytes)
{
	for (; *list; list += strcspn(list, ","), list += *list == ',')
		if (strcspn(list, ",") == bytes && memcmp(list, name, bytes) == 0)
			return true;
	return false;
}

bool device_list_add(char *list, size_t bytes, const char *text)
{
	for (;;) {
		size_t n = strcspn(text, ","), used = strlen(list);

		if (!device_list_is_device(text, n) || device_list_is_listed(list, text, n) ||
		    used + n + 2 > bytes)
			return false;
		snprintf(list + used, bytes - used, "%s%.*s", used ? "," : "", (int)n, text);
		text += n;
		if (!*text)
			return true;
		text++;
	}
}

int device_list_count(const char *list)
{
	int count = 0;

	while (*list && *list != '-') {
		count++;
		list += strcspn(list, ",");
		list += *list == ',';
	}
	return count;
}

/* GPUs are counted by their files in /dev: to ask the driver takes a second, and memory of each
 * GPU. */

/* /dev/nvidia0, but not /dev/nvidiactl. */
static int device_list_is_gpu(const char *name)
{
	return strncmp(name, "nvidia", 6) == 0 && isdigit((unsigned char)name[6]);
}

int automatic_gpus(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	struct dirent *entry;
	int count = 0;
	DIR *dev;

	if (visible)
		return device_list_count(visible);
	dev = opendir("/dev");
	while (dev && (entry = readdir(dev)))
		count += device_list_is_gpu(entry->d_name);
	if (dev)
		closedir(dev);
	return count;
}

int automatic_cpus(void)
{
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof cpus, &cpus) != 0)
		return 1;
	return CPU_COUNT(&cpus);
}
