/* Lines from the streams of the ranks into the sinks, and into a file of each rank for --log-dir.
 */
#include "launch/output.h"

#include "now.h"
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The lines go to the kernel at once: they are there when this process is killed. */

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

static void output_rank_log_write(struct log_file *log, const char *data, size_t bytes)
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

static void output_drop(char *data, size_t *bytes, size_t n)
{
	memmove(data, data + n, *bytes - n);
	*bytes -= n;
}

static void output_append(struct sink *sink, const char *data, size_t bytes)
{
	memcpy(sink->data + sink->bytes, data, bytes);
	sink->bytes += bytes;
	if (bytes > 0)
		sink->is_mid_line = data[bytes - 1] != '\n';
}

/* How many of the rest bytes at data may travel now: a line, a piece of one that fills the buffer
 * or that no more will come of, or everything when raw. 0: wait for more. */
static size_t output_piece(const struct stream *s, const char *data, size_t rest)
{
	const char *newline;

	if (s->is_raw || (s->is_mid_line && !memchr(data, '\n', rest)))
		return rest;
	newline = memchr(data, '\n', rest);
	if (newline)
		return (size_t)(newline - data) + 1;
	return rest == STREAM_BYTES || s->fd < 0 ? rest : 0;
}

/* The writer's next bytes begin a line. */
static void output_end_line(struct sink *sink)
{
	if (sink->is_mid_line)
		output_append(sink, "\n", 1);
	if (sink->writer)
		sink->writer->is_mid_line = false;
	sink->writer = NULL;
}

uint64_t sink_line_due_ms(const struct sink *sink)
{
	if (!sink->writer || sink->writer->bytes > 0 || sink->bytes == SINK_BYTES)
		return UINT64_MAX;
	return sink->written_ms + LINE_MS;
}

void sink_end_late_line(struct sink *sink)
{
	if (now_ms() >= sink_line_due_ms(sink))
		output_end_line(sink);
}

void stream_pass(struct stream *s)
{
	size_t done = 0, n;

	if (s->sink->writer && s->sink->writer != s)
		return;
	while ((n = output_piece(s, s->data + done, s->bytes - done)) > 0) {
		size_t prefix = s->is_mid_line ? 0 : strlen(s->prefix);
		bool ends = s->data[done + n - 1] == '\n';
		bool is_last = s->fd < 0 && done + n == s->bytes && !s->is_raw;

		if (s->sink->bytes + prefix + n + 1 > SINK_BYTES)
			break;
		output_append(s->sink, s->prefix, prefix);
		output_append(s->sink, s->data + done, n);
		if (is_last && !ends)
			output_append(s->sink, "\n",
				      1); /* so that the next rank's line is its own */
		s->is_mid_line = !ends && !is_last;
		s->sink->writer = s->is_mid_line && !s->is_raw ? s : NULL;
		if (s->is_mid_line)
			s->sink->written_ms = now_ms();
		done += n;
	}
	output_drop(s->data, &s->bytes, done);
}

bool stream_has_room(const struct stream *s)
{
	return s->bytes < STREAM_BYTES;
}

void stream_close(struct stream *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	stream_pass(s);
	if (s->sink->writer == s && s->bytes == 0 && s->sink->bytes < SINK_BYTES)
		output_end_line(s->sink);
}

bool stream_pump(struct stream *s)
{
	ssize_t n;

	if (s->fd < 0 || !stream_has_room(s))
		return false;
	n = read(s->fd, s->data + s->bytes, STREAM_BYTES - s->bytes);
	if (n < 0)
		return errno == EINTR;
	if (n == 0) {
		stream_close(s);
		return false;
	}
	if (s->log)
		output_rank_log_write(s->log, s->data + s->bytes, (size_t)n);
	s->bytes += (size_t)n;
	stream_pass(s);
	return true;
}

/* At most PIPE_BUF bytes, which a pipe takes at once after POLLOUT; whole lines where possible, so
 * that stdout and stderr on one terminal do not cut each other's. */
static size_t output_write_size(const struct sink *sink)
{
	size_t n = sink->bytes < PIPE_BUF ? sink->bytes : PIPE_BUF;
	const char *newline = memrchr(sink->data, '\n', n);

	return newline ? (size_t)(newline - sink->data) + 1 : n;
}

void sink_write(struct sink *sink)
{
	size_t n = output_write_size(sink);
	ssize_t written = write(sink->fd, sink->data, n);

	if (written < 0 && errno != EINTR && errno != EAGAIN) {
		sink->error = errno;
		sink->bytes = 0;
	} else if (written > 0) {
		output_drop(sink->data, &sink->bytes, (size_t)written);
	}
}

void sink_say(struct sink *sink, const char *line)
{
	size_t n = strlen(line);

	if (sink->bytes + n + 1 > SINK_BYTES) {
		if (write(sink->fd, line, n) < 0)
			sink->error = errno;
		return;
	}
	output_end_line(sink);
	output_append(sink, line, n);
}
