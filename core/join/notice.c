/* Writing, reading and removing the notice. */
#include "core/join/place.h"

#include "core/status.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static tutti_status notice_write_line(int fd, const char *url)
{
	char line[URL_BYTES + 1];
	int n = snprintf(line, sizeof line, "%s\n", url);

	errno = ENOSPC; /* a short write sets none */
	bool is_written = write(fd, line, (size_t)n) == n && fsync(fd) == 0;
	sodium_memzero(line, sizeof line);
	return is_written ? TUTTI_OK : TUTTI_ERR_SYSTEM;
}

tutti_status notice_publish(const char *path, const char *url)
{
	char fresh[560], there[URL_BYTES];
	/* A mistyped path must not overwrite another file. */
	tutti_status status = notice_read(path, false, there);
	int fd;

	sodium_memzero(there, sizeof there);
	if (status != TUTTI_OK && status != TUTTI_IN_PROGRESS)
		return status;
	snprintf(fresh, sizeof fresh, "%s.XXXXXX", path);
	fd = mkostemp(fresh, O_CLOEXEC); /* mode 0600: there is a secret in it */
	if (fd < 0)
		return fail_errno("rank 0 cannot make the rendezvous file %.300s", fresh);
	status = notice_write_line(fd, url);
	if (status != TUTTI_OK || rename(fresh, path) < 0) {
		status = fail_errno("rank 0 cannot write the rendezvous file %.300s", path);
		unlink(fresh);
	}
	close(fd);
	return status;
}

static tutti_status check_owner(int fd, const char *path)
{
	struct stat about;

	if (fstat(fd, &about) < 0)
		return fail_errno("cannot look at the rendezvous file %.300s", path);
	if (!S_ISREG(about.st_mode))
		return fail(TUTTI_ERR_INVALID,
			    "the rendezvous %.300s is not a regular file: choose another path",
			    path);
	if (about.st_uid != geteuid())
		return fail(TUTTI_ERR_AUTH,
			    "the rendezvous file %.300s belongs to user %u, not to "
			    "user %u: remove it, or set TUTTI_SECRET",
			    path, (unsigned)about.st_uid, (unsigned)geteuid());
	return TUTTI_OK;
}

tutti_status notice_read(const char *path, bool need_owner, char url[URL_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	tutti_status status;
	ssize_t n;

	if (fd < 0 && errno == ENOENT) {
		fail(TUTTI_ERR_TIMEOUT, "there is no rendezvous file %.300s", path);
		return TUTTI_IN_PROGRESS;
	}
	if (fd < 0 && errno == ESTALE) {
		fail(TUTTI_ERR_TIMEOUT, "the rendezvous file %.300s is being replaced (%s)", path,
		     strerror(errno));
		return TUTTI_IN_PROGRESS;
	}
	if (fd < 0)
		return fail_errno("cannot open the rendezvous file %.300s", path);
	status = need_owner ? check_owner(fd, path) : TUTTI_OK;
	n = status == TUTTI_OK ? read(fd, url, URL_BYTES - 1) : 0;
	if (n < 0) {
		status = fail_errno("cannot read the rendezvous file %.300s", path);
		n = 0;
	}
	close(fd);
	TRY(status);
	url[n] = '\0';
	url[strcspn(url, "\n")] = '\0';
	if (n == 0) {
		fail(TUTTI_ERR_TIMEOUT, "the rendezvous file %.300s is empty", path);
		return TUTTI_IN_PROGRESS;
	}
	if (strncmp(url, "tutti://", 8) != 0)
		return fail(TUTTI_ERR_INVALID,
			    "%.300s is no rendezvous file: something else is in it, so choose "
			    "another path",
			    path);
	return TUTTI_OK;
}

void notice_remove(const char *path, const char *url)
{
	char there[URL_BYTES] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n;

	if (fd < 0)
		return;
	n = read(fd, there, sizeof there - 1);
	close(fd);
	if (n > 0 && strncmp(there, url, strlen(url)) == 0)
		unlink(path);
	sodium_memzero(there, sizeof there);
}
