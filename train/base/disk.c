/* Reads and writes of whole files. A short read or write continues, also after EINTR. */
#include "train/base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A message has 512 bytes, a path up to 4096. */
enum { SHOWN_BYTES = 200 };

const char *path_shown(const char *path)
{
	size_t n = strlen(path);
	return n > SHOWN_BYTES ? path + n - SHOWN_BYTES : path;
}

/* Says what to do; and for a full disk which one, since ranks may have disks of their own. */
static void disk_explain(char text[128], int error)
{
	char host[41] = "";

	gethostname(host, sizeof host - 1); /* cut if it is longer */
	if (error == ENOSPC || error == EDQUOT)
		snprintf(text, 128,
			 ": on host '%s' %s is full: make room there, or choose another folder.",
			 host, error == EDQUOT ? "the quota" : "this disk");
	else
		snprintf(text, 128, "%s",
			 error == EFBIG ? ": `ulimit -f` sets how long a file may be." : ".");
}

tutti_status disk_fail(const char *what, const char *path)
{
	int error = errno;
	char words[100], more[128];

	disk_explain(more, error);
	tutti_status status =
		fail(TUTTI_ERR_SYSTEM, "%s '%s' failed: %s (errno %d)%s", what, path_shown(path),
		     strerror_r(error, words, sizeof words), error, more);
	errno = error;
	return status;
}

tutti_status disk_path(char path[DISK_PATH_BYTES], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int bytes = vsnprintf(path, DISK_PATH_BYTES, format, args);
	va_end(args);
	if (bytes >= 0 && bytes < DISK_PATH_BYTES)
		return TUTTI_OK;
	errno = ENAMETOOLONG;
	return disk_fail("Naming", path);
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
		status = fail_invalid("'%s' is not a regular file.", path_shown(path));
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
		ssize_t n = pread(fd, (char *)data + done, bytes - done, (off_t)(at + done));
		if (n < 0 && errno != EINTR)
			return disk_fail("Reading", path);
		if (n == 0)
			return fail_invalid(
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

static void disk_only_xfsz(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGXFSZ);
}

static struct held_signal disk_hold_signal(void)
{
	struct held_signal held;
	sigset_t xfsz, pending;

	disk_only_xfsz(&xfsz);
	sigpending(&pending);
	held.was_pending = sigismember(&pending, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &xfsz, &held.before);
	return held;
}

static void disk_let_signal_go(const struct held_signal *held)
{
	const struct timespec at_once = {0};
	int error = errno;
	sigset_t xfsz;

	disk_only_xfsz(&xfsz);
	if (!held->was_pending)
		sigtimedwait(&xfsz, NULL, &at_once);
	pthread_sigmask(SIG_SETMASK, &held->before, NULL);
	errno = error;
}

tutti_status disk_resize(int fd, const char *path, uint64_t bytes)
{
	struct held_signal held = disk_hold_signal();
	bool is_done = ftruncate(fd, (off_t)bytes) == 0;

	disk_let_signal_go(&held);
	return is_done ? TUTTI_OK : disk_fail("Making room in", path);
}

tutti_status disk_take_room(int fd, const char *path, uint64_t bytes)
{
	int result;

	if (bytes == 0)
		return TUTTI_OK;
	do { /* posix_fallocate would write every block where the file system cannot do this */
		struct held_signal held = disk_hold_signal();
		result = fallocate(fd, 0, 0, (off_t)bytes);
		disk_let_signal_go(&held);
	} while (result != 0 && errno == EINTR);
	if (result == 0)
		return TUTTI_OK;
	return errno == EOPNOTSUPP || errno == ENOSYS ? disk_resize(fd, path, bytes)
						      : disk_fail("Taking room in", path);
}

tutti_status disk_take_blocks(int fd, const char *path, uint64_t bytes)
{
	struct held_signal held = disk_hold_signal();

	errno = posix_fallocate(fd, 0, (off_t)bytes);
	disk_let_signal_go(&held);
	return errno == 0 ? TUTTI_OK : disk_fail("Taking room in", path);
}

tutti_status disk_write(int fd, const char *path, const void *data, size_t bytes, uint64_t at)
{
	for (size_t done = 0; done < bytes;) {
		struct held_signal held = disk_hold_signal();
		ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(at + done));
		disk_let_signal_go(&held);
		if (n == 0)
			errno = ENOSPC; /* files never do this; do not wait for ever */
		if (n <= 0 && errno != EINTR)
			return disk_fail("Writing", path);
		done += n > 0 ? (size_t)n : 0;
	}
	return TUTTI_OK;
}

tutti_status disk_sync(int fd, const char *path)
{
	/* EINVAL, EROFS: it is on no disk, or on a file system that cannot sync folders. */
	return fsync(fd) == 0 || errno == EINVAL || errno == EROFS ? TUTTI_OK
								   : disk_fail("Syncing", path);
}

tutti_status disk_sync_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return disk_fail("Opening", path);
	tutti_status status = disk_sync(fd, path);
	close(fd);
	return status;
}

tutti_status disk_sync_parent(const char *path)
{
	char copy[DISK_PATH_BYTES];

	TRY(disk_path(copy, "%s", path));
	return disk_sync_folder(dirname(copy));
}

tutti_status disk_make_folder(const char *path)
{
	if (mkdir(path, 0777) == 0)
		return disk_sync_parent(path);
	return errno == EEXIST ? TUTTI_OK : disk_fail("Making the folder", path);
}

tutti_status disk_read_all(const char *path, size_t limit, char **text, size_t *bytes)
{
	uint64_t size = 0;
	int fd = -1;

	TRY(disk_open(&fd, &size, path));
	char *read = size <= limit ? malloc((size_t)size + 1) : NULL;
	tutti_status status;
	if (size > limit)
		status = fail_invalid("'%s' has %llu bytes; no more than %zu are allowed.",
				      path_shown(path), (unsigned long long)size, limit);
	else if (!read)
		status = fail_no_memory("the %llu bytes of '%s'", (unsigned long long)size,
					path_shown(path));
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
