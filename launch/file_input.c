/* Input that a rank on another machine gets whole. */
#include "file_input.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A pipe may hold the rest of a shell's script, which is none of ours: it is no error. */
static void file_input_say_unread(void)
{
	struct pollfd poll_fd = {.fd = STDIN_FILENO, .events = POLLIN};
	int bytes = 0;

	if (isatty(STDIN_FILENO) || poll(&poll_fd, 1, 0) <= 0 ||
	    ioctl(STDIN_FILENO, FIONREAD, &bytes) != 0 || bytes == 0)
		return;
	fputs("tuttirun: stdin is a pipe with input, of which rank 0 gets nothing: with --hosts it "
	      "reads what a file has (tuttirun ... <FILE)\n",
	      stderr);
}

static int file_input_refuse(const char *what)
{
	fprintf(stderr, "tuttirun: the file that is stdin %s; rank 0 can open it itself.\n", what);
	return 1;
}

static int file_input_read_rest(struct file_input *input, off_t at, size_t bytes)
{
	char what[120];

	input->data = malloc(bytes);
	if (!input->data)
		return file_input_refuse("has no room in memory");
	while (input->bytes < bytes) {
		ssize_t n = pread(STDIN_FILENO, input->data + input->bytes, bytes - input->bytes,
				  at + (off_t)input->bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			snprintf(what, sizeof what, "cannot be read: %s", strerror(errno));
			return file_input_refuse(what);
		}
		if (n == 0)
			break; /* it has become shorter */
		input->bytes += (size_t)n;
	}
	return 0;
}

int file_input_read(struct file_input *input)
{
	struct stat about;
	char what[120];
	off_t at;

	*input = (struct file_input){0};
	if (fstat(STDIN_FILENO, &about) != 0)
		return 0;
	if (!S_ISREG(about.st_mode)) {
		file_input_say_unread();
		return 0;
	}
	at = lseek(STDIN_FILENO, 0, SEEK_CUR);
	if (at < 0 || at >= about.st_size)
		return 0;
	if (about.st_size - at <= FILE_INPUT_MAX)
		return file_input_read_rest(input, at, (size_t)(about.st_size - at));
	snprintf(what, sizeof what, "has %lld bytes, and --hosts passes at most %d on",
		 (long long)(about.st_size - at), FILE_INPUT_MAX);
	return file_input_refuse(what);
}

int file_input_open(const char *data, size_t bytes)
{
	int fd = memfd_create("input of rank 0", MFD_CLOEXEC), error;

	while (fd >= 0 && bytes > 0) {
		ssize_t n = write(fd, data, bytes);

		if (n < 0 && errno != EINTR)
			break;
		data += n > 0 ? n : 0;
		bytes -= n > 0 ? (size_t)n : 0;
	}
	if (fd < 0 || (bytes == 0 && lseek(fd, 0, SEEK_SET) == 0))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}
