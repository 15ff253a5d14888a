/* Files of the training layer: whole reads and writes at 64-bit places, and a message with the file
 * and errno when the system refuses one. Errors are SYSTEM unless said otherwise; a file beyond
 * RLIMIT_FSIZE is one, too, and no signal. Nothing here belongs to a communicator. */
#ifndef TRAIN_DISK_H
#define TRAIN_DISK_H

#include <tutti/tutti.h>

/* What a message shows of a path: all of it, or its end. */
const char *disk_shown(const char *path);
/* SYSTEM, with "what 'path' failed: " and errno's words. errno is the failure's, before and after.
 */
tutti_status disk_fail(const char *what, const char *path);

/* folder/name, freed by the caller; NULL: no memory, which is explained. */
char *disk_join(const char *folder, const char *name);

/* A regular file to read; *bytes is its size. Anything else (a folder, a pipe, which open would
 * wait for) is INVALID. */
tutti_status disk_open(int *fd, uint64_t *bytes, const char *path);
/* A new file to write and read; what was there is emptied. */
tutti_status disk_create(int *fd, const char *path);
/* All of it, at that place of the file. INVALID: the file ends before. */
tutti_status disk_read(int fd, const char *path, void *data, size_t bytes, uint64_t at);
tutti_status disk_write(int fd, const char *path, const void *data, size_t bytes, uint64_t at);
/* Empty room at the end, or none. */
tutti_status disk_resize(int fd, const char *path, uint64_t bytes);
/* The file, or the folder's list of names, survives a crash of the machine. */
tutti_status disk_sync(int fd, const char *path);
tutti_status disk_sync_folder(const char *path);

/* A whole small file: *text is freed by the caller and has a 0 behind its end. INVALID: it has more
 * than limit bytes. */
tutti_status disk_read_all(const char *path, size_t limit, char **text, size_t *bytes);
/* Written and synced; the folder is not. */
tutti_status disk_write_all(const char *path, const char *text, size_t bytes);

#endif
