/* A device's memory of one process is a file without a name. Its first pages list what is allocated,
 * for the processes that map it. */
#ifndef TESTS_CUDA_IPC_H
#define TESTS_CUDA_IPC_H

#include "tests/cuda/driver/driver.h"

#include <stdatomic.h>

#define ARENA_SLOTS  8192
#define ARENA_HEADER ((size_t)1 << 18)

/* Written by the process whose memory it is. A slot whose id changed is another allocation. */
struct arena_header {
	uint64_t token; /* of this process: another one of the same number has another token */
	struct {
		atomic_uint_fast64_t id; /* 0: free */
		uint64_t offset, bytes;  /* in the file */
	} slots[ARENA_SLOTS];
};

struct arena {
	int fd;
	char *user, *shadow; /* the memory; the header lies before the shadow */
	struct arena_header *header;
	size_t used; /* bytes, those of cuMemCreate too */
	uint32_t *pages; /* by page of the memory: of the file, behind its header; NULL: the same */
	size_t next_page;
};

extern struct arena arenas[MAX_GPUS];

#endif
