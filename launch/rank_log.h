/* Files with what each rank prints, for --log-dir. */
#ifndef LAUNCH_RANK_LOG_H
#define LAUNCH_RANK_LOG_H

#include <stdbool.h>
#include <stddef.h>

struct log_file {
	int fd;                  /* -1: there is none                                        */
	int error;               /* why it was given up; 0: it was not                      */
};

/* Makes the folder, unless it is there. Returns 0, or the exit code after a message on stderr. */
int rank_log_prepare(const char *folder);
/* Empties the file of a rank, unless is_again. Returns as rank_log_prepare. */
int rank_log_open(struct log_file *log, const char *folder, int rank, bool is_again);
void rank_log_write(struct log_file *log, const char *data, size_t bytes);
void rank_log_close(struct log_file *log);

#endif
