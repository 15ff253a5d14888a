/* Memory that processes share without a name: a memfd, sealed so that its length never changes. It
 * depends on no /dev/shm and is gone with its last user. A descriptor that another process passed
 * is trusted with nothing: it must be sealed and long enough, or a load could end this process by
 * SIGBUS. Descriptors travel by core/net.h's net_send_fds. */
#ifndef CORE_SHARED_MEMORY_H
#define CORE_SHARED_MEMORY_H

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* One mapping of this process, however many open the same memory: ranks that are threads share it.
 */
struct shared_memory {
	void *base;
	size_t bytes;
	/* private */
	struct shared_memory *next;
	int users;
	dev_t device;
	ino_t inode;
};

struct shared_memory_use {
	int most_users;       /* in this process; one more is MISMATCH */
	bool wants_huge_pages; /* aligned to 2 MiB, and asked for; the system may have none */
};

/* Zero-filled; *fd is the caller's. SYSTEM: also where a limit of files' lengths (ulimit -f) is in
 * the way. */
tutti_status shared_memory_create(const char *name, size_t bytes, int *fd);
/* Maps so many bytes, or shares the mapping that is there; fd stays the caller's. From any thread.
 * MISMATCH: not sealed, too short, or opened with another length before. SYSTEM, MEMORY. */
tutti_status shared_memory_open(struct shared_memory **memory, int fd, size_t bytes,
				struct shared_memory_use use);
void shared_memory_close(struct shared_memory *memory); /* NULL is fine */
/* Memory that this process alone writes and that others may read (where the kernel knows that:
 * Linux 5.1): both *fd and *base are the caller's. SYSTEM. */
tutti_status shared_memory_publish(const char *name, size_t bytes, int *fd, void **base);

#endif
