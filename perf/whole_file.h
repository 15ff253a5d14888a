/* A file that is there as a whole or not at all: what it is to hold is kept in memory, and takes
 * the name when it is complete. Whatever ends the program before that leaves nothing, and an older
 * file as it was. */
#ifndef PERF_WHOLE_FILE_H
#define PERF_WHOLE_FILE_H

#include <stdbool.h>
#include <stdio.h>

struct whole_file {
	char *path;   /* as given; of a link, where it leads */
	char *beside; /* what it is called until it is whole; NULL: a device or a pipe */
	FILE *stream; /* what is to be in the file; NULL: not open */
	char *text;
	size_t bytes;
};

/* Finds out whether the file can be written, before anything is: false with errno when not. A
 * device or a pipe will be written to in the end as it is. */
bool whole_file_open(struct whole_file *file, const char *path);
/* Writes it when it is complete. False with errno when that did not go well. */
bool whole_file_close(struct whole_file *file, bool is_complete);

#endif
