/* A file that is written in the background. Values are copied into a bounded number of slots; a
 * thread sums and writes them, and syncs the file. For one calling thread. */
#ifndef TRAIN_STAGING_H
#define TRAIN_STAGING_H

#include <tutti/tutti.h>

#include <stdbool.h>

enum { STAGING_SLOT_BYTES = 1 << 20 };

struct staging;

/* On OK staging owns fd. path, for messages, is copied. bytes: of memory, at least two slots.
 * timeout_ms: the longest wait while the disk accepts nothing. SYSTEM, MEMORY. */
tutti_status staging_create(struct staging **staging, int fd, const char *path, size_t bytes,
			    int timeout_ms);
/* Copies data. Waits only while all slots are full. *crc32c is continued over data, and is valid
 * after staging_finish; it must exist until then. SYSTEM: a write failed, now or earlier; TIMEOUT:
 * the disk accepts nothing. */
tutti_status staging_write(struct staging *staging, uint64_t at, uint32_t *crc32c, const void *data,
			   size_t bytes);
/* Waits until all is written and synced. Errors as of staging_write. The thread has ended and the
 * file is closed, except after TIMEOUT. */
tutti_status staging_finish(struct staging *staging);
/* Drops what is not written yet. Waits for the write or sync in progress. False: gave up after the
 * timeout, and the thread may still use the file and the sums. Keeps this thread's last error. */
bool staging_destroy(struct staging *staging);

#endif
