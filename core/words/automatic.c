/* GPUs are counted by their files in /dev: to ask the driver takes a second, and memory of each
 * GPU. */
#include "core/words/automatic.h"

#include "core/words/device_list.h"

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* /dev/nvidia0, but not /dev/nvidiactl. */
static int is_gpu(const char *name)
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
		count += is_gpu(entry->d_name);
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
