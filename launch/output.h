/* The ranks' output on its way to ours: whole lines, never mixed, never blocking the launcher.
 *
 * A stream is one rank's stdout or stderr, a sink is ours. A line goes from stream to sink when the
 * sink has room; while it has none the stream is not read, and the rank waits as it would for any slow
 * reader. Lines longer than a buffer travel in pieces, and the other streams wait until such a line
 * ends; a rank that goes on with it only later finds it ended. */
#ifndef LAUNCH_OUTPUT_H
#define LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file with what a rank prints. */
struct log_file {
	int fd;    /* -1: there is none                                        */
	int error; /* why it was given up; 0: it was not                      */
};

#define STREAM_BYTES 65536
#define SINK_BYTES   (2 * STREAM_BYTES)

struct sink {
	int fd;
	int error;                   /* why it cannot be written; EPIPE: its reader has left */
	bool is_given_up;            /* and the ranks' streams to it are closed             */
	bool is_mid_line;
	struct stream *writer;       /* it is within a line of this stream; or NULL        */
	uint64_t written_ms;         /* when that line was last written on                 */
	size_t bytes;
	char data[SINK_BYTES];
};

struct stream {
	int fd;                      /* -1: ended                                           */
	bool is_raw;                 /* pass bytes on as they come, not line by line        */
	bool is_mid_line;            /* the sink has the beginning of this line             */
	char prefix[16];
	struct sink *sink;
	struct log_file *log;        /* has all of it, too; or NULL                         */
	size_t bytes;
	char data[STREAM_BYTES];
};

/* Reads once what there is and passes lines on. Returns false when there was nothing to read. */
bool stream_pump(struct stream *stream);
/* Passes on what fits; the last line as well once the stream has ended. */
void stream_pass(struct stream *stream);
bool stream_has_room(const struct stream *stream);
void stream_close(struct stream *stream);

/* How long other streams wait for the rest of a line. */
#define LINE_MS 1000
/* When they have waited so long; UINT64_MAX if none has to wait. */
uint64_t sink_line_due_ms(const struct sink *sink);
/* Ends the line if that time has come. */
void sink_end_late_line(struct sink *sink);

/* One write that does not block, given that poll said POLLOUT. */
void sink_write(struct sink *sink);
/* A line of the launcher's own. */
void sink_say(struct sink *sink, const char *line);

/* Makes the folder, unless it is there. Returns 0, or the exit code after a message on stderr. */
int rank_log_prepare(const char *folder);
/* Empties the file of a rank, unless is_again. Returns as rank_log_prepare. */
int rank_log_open(struct log_file *log, const char *folder, int rank, bool is_again);
void rank_log_close(struct log_file *log);

#endif
