/* The suite's buffers of a page and more come from one registered block: the linker puts the
 * functions below in the place of malloc and its like (--wrap). One file of a program includes
 * this. */
#ifndef TESTS_TRANSPORT_VERBS_ARENA_H
#define TESTS_TRANSPORT_VERBS_ARENA_H

#include "core/known_memory.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA   ((size_t)128 << 20)
#define PAGE    ((size_t)4096)
#define CLASSES 16 /* of 2^n pages */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void __real_free(void *ptr);
/* Seen by shared objects: the linker of some builds resolves theirs to these, too. */
#define SEEN __attribute__((visibility("default")))
SEEN void *__wrap_malloc(size_t bytes);
SEEN void *__wrap_calloc(size_t n, size_t bytes);
SEEN void __wrap_free(void *ptr);

static struct {
	pthread_mutex_t lock;
	uint8_t *base;
	size_t used;
	void *free[CLASSES]; /* the first word of a free one is the next */
	uint8_t class_of[ARENA / PAGE];
} arena = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *arena_take(size_t bytes)
{
	uint8_t class = 0;
	void *ptr = NULL;

	while (PAGE << class < bytes)
		class ++;
	pthread_mutex_lock(&arena.lock);
	if (arena.free[class]) {
		ptr = arena.free[class];
		memcpy(&arena.free[class], ptr, sizeof ptr);
	} else if (arena.base && ARENA - arena.used >= PAGE << class) {
		ptr = arena.base + arena.used;
		arena.class_of[arena.used / PAGE] = class;
		arena.used += PAGE << class;
	}
	pthread_mutex_unlock(&arena.lock);
	return ptr;
}

void *__wrap_malloc(size_t bytes)
{
	void *ptr = bytes >= PAGE ? arena_take(bytes) : NULL;

	return ptr ? ptr : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	void *ptr = n * bytes >= PAGE ? arena_take(n * bytes) : NULL;

	return ptr ? memset(ptr, 0, n * bytes) : __real_calloc(n, bytes);
}

void __wrap_free(void *ptr)
{
	size_t at = (size_t)((uint8_t *)ptr - arena.base);

	if (!ptr || at >= ARENA) {
		__real_free(ptr);
		return;
	}
	pthread_mutex_lock(&arena.lock);
	uint8_t class = arena.class_of[at / PAGE];
	memcpy(ptr, &arena.free[class], sizeof ptr);
	arena.free[class] = ptr;
	pthread_mutex_unlock(&arena.lock);
}

static bool arena_open(void)
{
	arena.base = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return arena.base != MAP_FAILED && known_memory_add(arena.base, ARENA) == TUTTI_OK;
}

#endif
