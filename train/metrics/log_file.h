/* A file that grows by whole rows, and the buffer in which a row is built. */
#ifndef TRAIN_LOG_FILE_H
#define TRAIN_LOG_FILE_H

#include "train/base/base.h"

struct log_file {
	int fd;                         /* -1: not open */
	char path[DISK_PATH_BYTES];
};

/* flags: for open(2), besides those for appending. Writes *file on TUTTI_OK only. */
tutti_status log_file_open(struct log_file *file, const char *dir, const char *name, int flags);
void log_file_close(struct log_file *file);
/* Appends all of the bytes or, on an error, none. */
tutti_status log_file_append(struct log_file *file, const char *bytes, size_t count);
/* Prepares a file of an earlier run for more rows: removes half a row at its end. INVALID if it
 * does not begin with head. *is_new: the file is empty, also of head. */
tutti_status log_file_resume(struct log_file *file, const char *head, size_t bytes, bool *is_new);
/* The date in seconds since 1970, for readers of logs. The clock may jump: nothing waits by it. */
double log_date(void);

/* The caller computes the room beforehand; to exceed it is a bug. */
struct log_buffer {
	char *bytes;
	size_t used, room;
};
void log_put(struct log_buffer *buffer, const void *bytes, size_t count);
void log_print(struct log_buffer *buffer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The shortest decimal digits that give the same double back; nan, inf and -inf. */
void log_put_number(struct log_buffer *buffer, double number);

#endif
