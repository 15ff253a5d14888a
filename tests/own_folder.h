/* Mounts of this process's own, for tests that fill a folder or count what is left in one. Needs root. */
#ifndef TESTS_OWN_FOLDER_H
#define TESTS_OWN_FOLDER_H

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_MOUNTS_WHY "mounts of one's own need root" /* as in tests/skips.txt */

/* This program's path. In a chroot the kernel knows it only as long as the mounts are those it was started in. */
static char own_program[PATH_MAX];

/* From here on this process's mounts, and those of its children, are nobody else's. */
static inline bool own_mounts(void)
{
	if (readlink("/proc/self/exe", own_program, sizeof own_program - 1) < 0)
		return false;
	return unshare(CLONE_NEWNS) == 0 &&
	       mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* After own_mounts: mounts an empty tmpfs over path. A build that lies below path stays where it is: the entry of path that has this program is
 * mounted there again. */
static inline bool own_folder(const char *path, const char *options)
{
	char entry[PATH_MAX], again[32];
	size_t bytes = strlen(path);
	int fd = -1;

	memcpy(entry, own_program, sizeof entry);
	if (strncmp(entry, path, bytes) == 0 && entry[bytes] == '/') {
		entry[bytes + 1 + strcspn(entry + bytes + 1, "/")] = '\0';
		fd = open(entry, O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	bool is_done = mount("own", path, "tmpfs", 0, options) == 0;
	if (fd >= 0) {
		snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
		is_done = is_done && mkdir(entry, 0755) == 0 &&
			  mount(again, entry, NULL, MS_BIND | MS_REC, NULL) == 0;
		close(fd);
	}
	return is_done;
}

#endif
