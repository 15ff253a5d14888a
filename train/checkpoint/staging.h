/* A file that is written in the background: values are copied into a bounded number of slots, and a
 * thread of its own sums them, writes them and syncs the file. Used by one thread. */
#ifndef TRAIN_STAGING_H
#define TRAIN_STAGING_H

#include <tutti/tutti.h>

enum { STAGING_SLOT_BYTES = 1 << 20 };

struct staging;

/* fd is staging's from now on when this returns OK; path, for messages, is copied. bytes: of
 * memory, two slots at least. timeout_ms: how long a wait goes on while the disk takes nothing at
 * all. SYSTEM, MEMORY. */
tutti_status staging_create(struct staging **staging, int fd, const char *path, size_t bytes,
			    int timeout_ms);
/* data is copied when this returns; it waits only while all slots are full. *crc32c becomes that of
 * what it was of and data behind it, once staging_finish has returned: it stays where it is until
 * then. SYSTEM: the file could not be written, now or earlier; TIMEOUT: the disk has taken nothing.
 */
tutti_status staging_write(struct staging *staging, uint64_t at, uint32_t *crc32c, const void *data,
			   size_t bytes);
/* Waits until all of it is written and synced. Errors as of staging_write. The thread has ended and
 * the file is closed unless it is TIMEOUT. */
tutti_status staging_finish(struct staging *staging);
/* What is not written yet never is. Waits for the one write or sync that is under way. */
void staging_destroy(struct staging *staging);

#endif
