/* How many threads this process has, and had when it was alone. One that has been joined may be
 * listed for a moment more: the kernel wakes the thread that joins before it is done with the one
 * that has ended. */
#ifndef TESTS_THREADS_H
#define TESTS_THREADS_H

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define THREAD_IS_EXITING 0x4u /* the kernel's PF_EXITING, set before any thread is woken */

/* 0: it has ended since it was listed. */
static inline int thread_is_alive(const char *id)
{
	char path[300], line[600] = "";
	unsigned flags = THREAD_IS_EXITING;
	const char *rest;
	FILE *file;

	snprintf(path, sizeof path, "/proc/self/task/%s/stat", id);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (!fgets(line, sizeof line, file))
		line[0] = '\0';
	fclose(file);
	rest = strrchr(line, ')'); /* a name may have any bytes */
	if (rest)
		sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags);
	return !(flags & THREAD_IS_EXITING);
}

static inline int threads_alive(void)
{
	DIR *directory = opendir("/proc/self/task");
	int n = 0;

	for (struct dirent *e; directory && (e = readdir(directory));)
		n += e->d_name[0] != '.' && thread_is_alive(e->d_name);
	if (directory)
		closedir(directory);
	return n;
}

static inline void *thread_of_no_use(void *arg)
{
	return arg;
}

/* Called by the only thread: 1, but 2 with ThreadSanitizer, whose own thread comes with the first
 * that a process starts. */
static inline int threads_alone(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, thread_of_no_use, NULL) == 0)
		pthread_join(thread, NULL);
	return threads_alive();
}

#endif
