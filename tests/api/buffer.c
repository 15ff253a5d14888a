/* Guarded buffers. */
#include "buffer.h"

#include "../cuda/gpu.h"

#ifdef API_PROOF
#include "../core/memory/proof_kind.h"
#endif

#include <stdlib.h>
#include <string.h>

#define GUARD   64
#define PATTERN ((char)0xa5)

void buffer_arena_open(struct api *api, size_t bytes)
{
	void *arena = NULL;
	tutti_status status = tutti_mem_alloc(&arena, bytes, api->comm);

	if (status == TUTTI_ERR_UNSUPPORTED)
		return;
	CHECK_OK(api, status);
	CHECK(api, arena, "tutti_mem_alloc gave no memory");
	api->arena = arena;
	api->arena_bytes = bytes;
	CHECK(api, api->arena[0] == 0 && memcmp(api->arena, api->arena + 1, bytes - 1) == 0,
	      "tutti_mem_alloc's memory is not zero");
}

void buffer_arena_close(struct api *api)
{
	CHECK_OK(api, tutti_mem_free(api->arena));
	api->arena = NULL;
	api->arena_bytes = 0;
}

/* Buffers of the arena live for a batch; arena_used goes back to 0 at its end. */
static char *arena_take(struct api *api, size_t bytes)
{
	size_t at = api->arena_used + random_below(&api->own, 300);

	if (api->arena == NULL || at + bytes > api->arena_bytes)
		return NULL;
	api->arena_used = at + bytes;
	return api->arena + at;
}

static void block_write(const struct buffer *b, size_t at, const void *from, size_t bytes)
{
#ifdef API_PROOF
	if (b->kind == BUFFER_PROOF) {
		proof_write(b->block + at, from, bytes);
		return;
	}
#endif
	if (b->kind == BUFFER_CUDA)
		gpu_write(b->block + at, from, bytes);
	else if (bytes)
		memcpy(b->block + at, from, bytes);
}

static void block_read(const struct buffer *b, size_t at, void *to, size_t bytes)
{
#ifdef API_PROOF
	if (b->kind == BUFFER_PROOF) {
		proof_read(to, b->block + at, bytes);
		return;
	}
#endif
	if (b->kind == BUFFER_CUDA)
		gpu_read(to, b->block + at, bytes);
	else if (bytes)
		memcpy(to, b->block + at, bytes);
}

void buffer_create(struct buffer *b, struct api *api, enum buffer_kind kind, size_t bytes)
{
	*b = (struct buffer){.kind = kind, .bytes = bytes};
	b->before = GUARD + random_below(&api->own, GUARD);
	if (random_below(&api->own, 3) == 0)
		b->before = GUARD; /* aligned ones happen too */
	b->whole = b->before + bytes + GUARD;
	if (kind == BUFFER_SHARED)
		b->block = arena_take(api, b->whole);
#ifdef API_PROOF
	if (kind == BUFFER_PROOF)
		b->block = proof_alloc(b->whole);
#endif
	if (kind == BUFFER_CUDA) {
		gpu_use(api->gpu); /* this thread may be one that a pass has made */
		b->block = gpu_alloc(b->whole);
	}
	if (b->block == NULL) {
		b->kind = BUFFER_HOST;
		b->block = malloc(b->whole);
	}
	CHECK(api, b->block, "no memory for %zu bytes", b->whole);
	b->data = b->block + b->before;
	char *pattern = malloc(b->whole);
	CHECK(api, pattern, "no memory for %zu bytes", b->whole);
	memset(pattern, PATTERN, b->whole);
	block_write(b, 0, pattern, b->whole);
	free(pattern);
}

void buffer_destroy(struct buffer *b)
{
	if (b->kind == BUFFER_HOST)
		free(b->block);
	if (b->kind == BUFFER_CUDA)
		gpu_free(b->block);
#ifdef API_PROOF
	if (b->kind == BUFFER_PROOF)
		proof_free(b->block);
#endif
	b->block = NULL;
}

void buffer_write(struct buffer *b, size_t at, const void *from, size_t bytes)
{
	block_write(b, b->before + at, from, bytes);
}

void buffer_read(const struct buffer *b, size_t at, void *to, size_t bytes)
{
	block_read(b, b->before + at, to, bytes);
}

bool buffer_guards_hold(const struct buffer *b)
{
	char guard[2 * GUARD];

	block_read(b, 0, guard, b->before);
	for (size_t i = 0; i < b->before; i++)
		if (guard[i] != PATTERN)
			return false;
	block_read(b, b->before + b->bytes, guard, GUARD);
	for (size_t i = 0; i < GUARD; i++)
		if (guard[i] != PATTERN)
			return false;
	return true;
}
