/* Reads and writes of whole files. A short read or write continues, also after EINTR. */
#include "train/checkpoint/disk.h"

#include "train/base/train_error.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PORTION_BYTES = 1 << 30 };

tutti_status disk_fail(const char *what, const char *path)
{
	int error = errno;
	char words[100];
	tutti_status status =
		train_fail(TUTTI_ERR_SYSTEM, "%s '%s' failed: %s (errno %d).", what,
			   path_shown(path), strerror_r(error, words, sizeof words), error);

	errno = error;
	return status;
}

char *disk_join(const char *folder, const char *name)
{
	size_t n = strlen(folder) + strlen(name) + 2;
	char *path = malloc(n);

	if (!path) {
		train_no_memory("the name of a file");
		return NULL;
	}
	snprintf(path, n, "%s/%s", folder, name);
	return path;
}

tutti_status disk_open(int *fd, uint64_t *bytes, const char *path)
{
	struct stat about;
	int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	tutti_status status = TUTTI_OK;

	if (opened < 0)
		return disk_fail("Opening", path);
	if (fstat(opened, &about) != 0)
		status = disk_fail("Looking at", path);
	else if (!S_ISREG(about.st_mode))
		status = train_fail(TUTTI_ERR_INVALID, "'%s' is not a file.", path_shown(path));
	if (status != TUTTI_OK) {
		close(opened);
		return status;
	}
	*fd = opened;
	*bytes = (uint64_t)about.st_size;
	return TUTTI_OK;
}

tutti_status disk_create(int *fd, const char *path)
{
	int opened = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (opened < 0)
		return disk_fail("Creating", path);
	*fd = opened;
	return TUTTI_OK;
}

tutti_status disk_read(int fd, const char *path, void *data, size_t bytes, uint64_t at)
{
	for (size_t done = 0; done < bytes;) {
		size_t want = bytes - done < PORTION_BYTES ? bytes - done : PORTION_BYTES;
		ssize_t n = pread(fd, (char *)data + done, want, (off_t)(at + done));
		if (n < 0 && errno != EINTR)
			return disk_fail("Reading", path);
		if (n == 0)
			return train_fail(
				TUTTI_ERR_INVALID,
				"'%s' ends after %llu bytes, before byte %llu: it was truncated.",
				path_shown(path), (unsigned long long)(at + done),
				(unsigned long long)(at + bytes - 1));
		done += n > 0 ? (size_t)n : 0;
	}
	return TUTTI_OK;
}

/* A write beyond RLIMIT_FSIZE ends the process by SIGXFSZ, unless the signal is blocked; then it is
 * an error. */
struct held_signal {
	sigset_t before;
	bool was_pending;
};

static void only_xfsz(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGXFSZ);
}

static struct held_signal hold_signal(void)
{
	struct held_signal held;
	sigset_t xfsz, pending;

	only_xfsz(&xfsz);
	sigpending(&pending);
	held.was_pending = sigismember(&pending, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &xfsz, &held.before);
	return held;
}

static void let_signal_go(const struct held_signal *held)
{
	const struct timespec at_once = {0};
	int error = errno;
	sigset_t xfsz;

	only_xfsz(&xfsz);
	if (!held->was_pending)
		sigtimedwait(&xfsz, NULL, &at_once);
	pthread_sigmask(SIG_SETMASK, &held->before, NULL);
	errno = error;
}

tutti_status disk_resize(int fd, const char *path, uint64_t bytes)
{
	struct held_signal held = hold_signal();
	bool is_done = ftruncate(fd, (off_t)bytes) == 0;

	let_signal_go(&held);
	return is_done ? TUTTI_OK : disk_fail("Making room in", path);
}

tutti_status disk_write(int fd, const char *path, const void *data, size_t bytes, uint64_t at)
{
	for (size_t done = 0; done < bytes;) {
		size_t want = bytes - done < PORTION_BYTES ? bytes - done : PORTION_BYTES;
		struct held_signal held = hold_signal();
		ssize_t n = pwrite(fd, (const char *)data + done, want, (off_t)(at + done));
		let_signal_go(&held);
		if (n < 0 && errno != EINTR)
			return disk_fail("Writing", path);
		done += n > 0 ? (size_t)n : 0;
	}
	return TUTTI_OK;
}

tutti_status disk_sync(int fd, const char *path)
{
	return fsync(fd) == 0 ? TUTTI_OK : disk_fail("Syncing", path);
}

tutti_status disk_sync_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return disk_fail("Opening", path);
	/* Some file systems cannot sync folders, and need not. */
	tutti_status status =
		fsync(fd) == 0 || errno == EINVAL ? TUTTI_OK : disk_fail("Syncing", path);
	close(fd);
	return status;
}

tutti_status disk_read_all(const char *path, size_t limit, char **text, size_t *bytes)
{
	uint64_t size = 0;
	int fd = -1;

	TRY(disk_open(&fd, &size, path));
	char *read = size <= limit ? malloc((size_t)size + 1) : NULL;
	tutti_status status = TUTTI_OK;
	if (size > limit)
		status = train_fail(TUTTI_ERR_INVALID,
				    "'%s' has %llu bytes; no more than %zu are allowed.",
				    path_shown(path), (unsigned long long)size, limit);
	else if (!read)
		status = train_fail(TUTTI_ERR_MEMORY,
				    "There is no memory for the %llu bytes of '%s'.",
				    (unsigned long long)size, path_shown(path));
	else
		status = disk_read(fd, path, read, (size_t)size, 0);
	close(fd);
	if (status != TUTTI_OK) {
		free(read);
		return status;
	}
	read[size] = '\0';
	*text = read;
	*bytes = (size_t)size;
	return TUTTI_OK;
}

tutti_status disk_write_all(const char *path, const char *text, size_t bytes)
{
	int fd = -1;

	TRY(disk_create(&fd, path));
	tutti_status status = disk_write(fd, path, text, bytes, 0);
	if (status == TUTTI_OK)
		status = disk_sync(fd, path);
	/* Some file systems report a failed write only here. */
	if (close(fd) != 0 && status == TUTTI_OK)
		status = disk_fail("Closing", path);
	return status;
}
