/* A file that grows by whole rows, and the buffer that a row is built in. */
#ifndef TRAIN_LOG_FILE_H
#define TRAIN_LOG_FILE_H

#include <tutti/tutti.h>

#include <stdbool.h>

struct log_file {
	int fd;                         /* -1: not open */
	char *path;
};

/* flags for open(2), besides those for appending. Writes *file on TUTTI_OK only. */
tutti_status log_file_open(struct log_file *file, const char *dir, const char *name, int flags);
void log_file_close(struct log_file *file);
/* All of the bytes or, with a message, none of them. */
tutti_status log_file_append(struct log_file *file, const char *bytes, size_t count);
tutti_status log_file_sync(struct log_file *file);
/* Makes a file that may have been written before good for more rows: it begins with head, or
 * INVALID, and half a row at its end, that somebody died in, is taken off. *is_new: there is
 * nothing in it, not even head. */
tutti_status log_file_resume(struct log_file *file, const char *head, size_t bytes, bool *is_new);
/* A SYSTEM failure of this file with errno: "Rank 0 cannot <what> <path>: ...". */
tutti_status log_file_fail(const struct log_file *file, const char *what);

/* The date in seconds since 1970, for readers of logs. The clock may jump: nothing waits by it. */
double log_date(void);

/* Has the room that its user has computed before: going past it is a mistake of ours. */
struct log_buffer {
	char *bytes;
	size_t used, room;
};
void log_put(struct log_buffer *buffer, const void *bytes, size_t count);
void log_put_text(struct log_buffer *buffer, const char *text);
/* As few decimal digits as give the same double back; nan, inf and -inf. */
void log_put_number(struct log_buffer *buffer, double number);
void log_put_integer(struct log_buffer *buffer, int64_t number);
/* To the millisecond. */
void log_put_seconds(struct log_buffer *buffer, double seconds);

#endif
