/* Memory in pieces of 2 MiB: a file without a name each, which processes map. A handle of the
 * driver's points to a piece; it lives until it is released and mapped nowhere. */
#ifndef TESTS_CUDA_PIECE_H
#define TESTS_CUDA_PIECE_H

#include "tests/cuda/driver/driver.h"

#include <stdatomic.h>

#define GRANULARITY ((size_t)2 << 20)

/* Behind the memory in its file, for the process that imports it. */
struct piece_trailer {
	uint64_t magic, id, bytes;
	int32_t gpu;
};

/* The file of a multicast object: what all processes know of it. */
struct team {
	uint32_t devices; /* that there will be */
	uint64_t bytes;
	atomic_uint added; /* bits */
	struct member {
		atomic_uint_fast64_t id; /* of the piece that is bound; 0: none yet */
		int32_t pid, fd;         /* whose file it is                        */
	} members[MAX_GPUS];
};

/* A member's piece, as this process has mapped or bound it. */
struct team_view {
	uint64_t id;
	char *shadow;
	struct piece *bound; /* by this process; a holder of it */
};

struct piece {
	int fd;
	int gpu;
	size_t bytes;
	unsigned types; /* of handles that it can be exported as */
	bool is_imported;
	unsigned holders;
	struct team *team; /* of a multicast object, whose memory is its members'; else NULL */
	struct team_view *views;
};

struct piece *piece_of(CUmemGenericAllocationHandle handle);
/* What is of a multicast object. */
void team_attach(struct piece *piece);
void team_drop(struct piece *piece);
/* Ends the process where the driver would wait for ever. */
void team_must_be_complete(const struct piece *piece, const char *call);
/* The bytes that a mapping of it has. */
size_t piece_mapped_bytes(const struct piece *piece);
/* The memory of a device's member, at this offset; NULL: none is bound. With the lock. */
char *team_reach(const struct piece *piece, int gpu, size_t offset);
/* The file's number. */
uint64_t piece_id(const struct piece *piece);

/* Its file: of its bytes and a trailer. */
int piece_file(const struct piece *piece);
void piece_drop(struct piece *piece); /* with the lock */
/* Pieces of this process that it has made or imported, and not let go. */
extern unsigned piece_count;

#endif
