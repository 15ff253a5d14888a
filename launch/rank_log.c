/* The lines go to the kernel at once: they are there when this process is killed. */
#include "rank_log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int rank_log_prepare(const char *folder)
{
	if (mkdir(folder, 0777) == 0 || errno == EEXIST)
		return 0;
	fprintf(stderr, "tuttirun: --log-dir: the folder %s cannot be made: %s.\n", folder,
		strerror(errno));
	return 1;
}

int rank_log_open(struct log_file *log, const char *folder, int rank, bool is_again)
{
	/* O_NONBLOCK: a named pipe without a reader is an error, and no wait for one. */
	int flags =
		O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | (is_again ? 0 : O_TRUNC);
	char path[PATH_MAX];

	*log = (struct log_file){.fd = -1};
	if (snprintf(path, sizeof path, "%s/rank_%d.log", folder, rank) >= (int)sizeof path)
		errno = ENAMETOOLONG;
	else
		log->fd = open(path, flags, 0666);
	if (log->fd >= 0)
		return 0;
	fprintf(stderr, "tuttirun: --log-dir: %s cannot be written: %s.\n", path, strerror(errno));
	return 1;
}

void rank_log_write(struct log_file *log, const char *data, size_t bytes)
{
	while (log->fd >= 0 && bytes > 0) {
		ssize_t n = write(log->fd, data, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			log->error = errno;
			rank_log_close(log);
			return;
		}
		data += n;
		bytes -= (size_t)n;
	}
}

void rank_log_close(struct log_file *log)
{
	if (log->fd >= 0)
		close(log->fd);
	log->fd = -1;
}
