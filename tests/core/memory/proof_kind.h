/* A kind of memory that the CPU may not touch, to prove that nobody does.
 *
 * What its users hold are addresses of protected pages: a load, a store or a system call on them
 * fails. The kind itself reaches the same bytes through a second mapping that nobody else knows.
 * Its operations are done only in later progress calls, after a random delay, in any order that
 * their overlaps allow. */
#ifndef TESTS_CORE_MEMORY_PROOF_KIND_H
#define TESTS_CORE_MEMORY_PROOF_KIND_H

#include "core/memory/memory.h"

#define PROOF_KIND (TUTTI_MEMORY_KINDS - 1)

extern const struct memory_kind memory_proof;

/* Registers the kind in this process; the seed rules the delays of queues that are opened later. */
tutti_status proof_kind_use(uint64_t seed);

/* A test's own way to this memory, at once and from any thread. Zero-filled. */
void *proof_alloc(size_t bytes);
void proof_free(void *ptr);
void proof_write(void *ptr, const void *data, size_t bytes);
void proof_read(void *data, const void *ptr, size_t bytes);

/* Bytes that are allocated now: a test sees whether the library gave everything back. */
size_t proof_allocated(void);

#endif
