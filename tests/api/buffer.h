/* Buffers of any kind of memory, at any alignment, with guards on both sides. */
#ifndef TESTS_API_BUFFER_H
#define TESTS_API_BUFFER_H

#include "api.h"

enum buffer_kind {
	BUFFER_HOST,   /* ordinary memory */
	BUFFER_SHARED, /* inside of what tutti_mem_alloc gave */
	BUFFER_PROOF,  /* memory that the CPU may not touch */
	BUFFER_CUDA,   /* memory of a GPU, which it may not touch either */
};

static inline bool buffer_is_device(enum buffer_kind kind)
{
	return kind == BUFFER_PROOF || kind == BUFFER_CUDA;
}

struct buffer {
	enum buffer_kind kind;
	char *data; /* what the library gets */
	size_t bytes, before, whole;
	char *block; /* guards and data */
};

/* Filled with the guards' pattern, data included. Falls back to host memory where a kind has no
 * room. */
void buffer_create(struct buffer *b, struct api *api, enum buffer_kind kind, size_t bytes);
void buffer_destroy(struct buffer *b);
void buffer_write(struct buffer *b, size_t at, const void *from, size_t bytes);
void buffer_read(const struct buffer *b, size_t at, void *to, size_t bytes);
bool buffer_guards_hold(const struct buffer *b);

/* The collective part: tutti_mem_alloc for all buffers to come, and its end. */
void buffer_arena_open(struct api *api, size_t bytes);
void buffer_arena_close(struct api *api);

#endif
