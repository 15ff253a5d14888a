/* What all of train uses: files, random numbers, UTF-8, comparisons of texts. */
#ifndef TRAIN_BASE_H
#define TRAIN_BASE_H

#include "collectives/api/agreed_error.h"
#include "core/array.h"
#include "core/status.h"

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* disk.c: files and folders: whole reads and writes at 64-bit offsets. A failure is SYSTEM unless
 * said otherwise, with the file and errno in the message. A file beyond RLIMIT_FSIZE is a failure,
 * too, and no signal. */

/* The path as messages show it: all of it, or its end, which says most. */
const char *path_shown(const char *path);

/* SYSTEM, with "what 'path' failed: " and errno's text, and with a full disk the host and what to
 * do. Keeps errno. */
tutti_status disk_fail(const char *what, const char *path);

enum { DISK_PATH_BYTES = 4096 }; /* the kernel opens no longer path */
tutti_status disk_path(char path[DISK_PATH_BYTES], const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Opens a regular file for reading. INVALID: anything else, such as a folder or a pipe. */
tutti_status disk_open(int *fd, uint64_t *bytes, const char *path);
/* Makes a new, empty file for writing and reading. */
tutti_status disk_create(int *fd, const char *path);
/* Reads or writes all bytes from at on. INVALID: the file ends before. */
tutti_status disk_read(int fd, const char *path, void *data, size_t bytes, uint64_t at);
tutti_status disk_write(int fd, const char *path, const void *data, size_t bytes, uint64_t at);
/* Adds empty space at the end, or removes it. */
tutti_status disk_resize(int fd, const char *path, uint64_t bytes);
/* Makes the file that long, and takes its room: what is written later needs no more. Where the
 * file system cannot take room it is disk_resize. */
tutti_status disk_take_room(int fd, const char *path, uint64_t bytes);
/* The same for a file that will be mapped: its blocks are written where the file system cannot take
 * room, since mapped memory without a block ends the process by SIGBUS. */
tutti_status disk_take_blocks(int fd, const char *path, uint64_t bytes);
/* The file, the folder's list of names, or the path's own name survives a crash of the machine. */
tutti_status disk_sync(int fd, const char *path);
tutti_status disk_sync_folder(const char *path);
tutti_status disk_sync_parent(const char *path);
/* Makes the last part of the path, if it is missing. */
tutti_status disk_make_folder(const char *path);

/* Reads a whole small file. The caller frees *text, which has a zero at its end. INVALID: more than
 * limit bytes. */
tutti_status disk_read_all(const char *path, size_t limit, char **text, size_t *bytes);
/* Writes and syncs the file, not its folder. */
tutti_status disk_write_all(const char *path, const char *text, size_t bytes);

/* random.c: numbers that depend on their arguments alone. tutti_random is the public one. */

/* A well mixed 64-bit word: a bijection. */
uint64_t random_mix(uint64_t x);
/* Element index of parameter param, from a standard normal distribution. */
double random_normal(uint64_t seed, int param, size_t index);
/* A hash for comparing bytes among ranks. It is not secure. */
uint64_t random_hash(const void *data, size_t bytes);

/* texts.c: compares the lines that write prints about of. Collective: OK if they are the same on
 * all ranks. Otherwise MISMATCH with the same message on all: "The <what> differ: rank 1 has
 * <line>, but rank 0 has <line>; <advice>." MEMORY. */
tutti_status texts_compare(tutti_comm *comm, const char *what, const char *advice,
			   void (*write)(FILE *text, const void *of), const void *of);

static inline size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* The bytes, filled up to whole cache lines. */
static inline size_t whole_lines(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* Names in files are UTF-8. */
bool utf8_is_valid(const char *text);

#endif
