/* The input of rank 0 where it runs on another machine: a file that is tuttirun's stdin goes there whole,
 * before the rank starts. Pipes do not: an agent has to hear signals also while no rank reads. */
#ifndef LAUNCH_FILE_INPUT_H
#define LAUNCH_FILE_INPUT_H

#include <stddef.h>

#define FILE_INPUT_MAX (512 << 10)

struct file_input {
	char *data;      /* NULL: stdin is no file, or at its end */
	size_t bytes;
};

/* Reads stdin from where it is, and leaves it there, for another reader. Says what is not passed on. Returns 0, or
 * the exit code after a message on stderr. */
int file_input_read(struct file_input *input);
/* A file in memory with the input, to be a rank's stdin; -1 with errno. */
int file_input_open(const char *data, size_t bytes);

#endif
