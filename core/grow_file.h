/* The length of a new file in memory. Where the process may not write files that long (ulimit -f) the kernel
 * would end it with a signal, SIGXFSZ; here that is an error like any other: EFBIG. */
#ifndef CORE_GROW_FILE_H
#define CORE_GROW_FILE_H

#include <errno.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

/* As ftruncate: 0, or -1 and errno. */
static inline int grow_file(int fd, size_t bytes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
		errno = EFBIG;
		return -1;
	}
	return ftruncate(fd, (off_t)bytes);
}

#endif
