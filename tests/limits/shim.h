/* Between the library and the system: calls that ask for something can be made to fail, one by
 * number. The tests of this folder are linked so that every such call of the library's objects
 * comes here (tests.cmake). */
#ifndef TESTS_LIMITS_SHIM_H
#define TESTS_LIMITS_SHIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum shim_kind {
	SHIM_MEMORY,      /* malloc, calloc, realloc, strdup: ENOMEM */
	SHIM_DESCRIPTORS, /* sockets, memfds, eventfds, epolls, timers, pidfds, files: EMFILE */
	SHIM_MAPS,        /* mmap, mremap: ENOMEM */
	SHIM_THREADS,     /* pthread_create: EAGAIN */
	SHIM_ROOM,        /* ftruncate, epoll_ctl that adds: ENOSPC */
	SHIM_KINDS
};

/* The call of this kind with this number, from 0, counted from now on, fails; lasts: and all after
 * it. */
void shim_fail(enum shim_kind kind, long number, bool lasts);
/* The system's own, which nothing fails. */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*run)(void *arg), void *arg);
/* Calls of this kind so far. */
long shim_calls(enum shim_kind kind);
/* Nothing fails any more. Returns whether something has. */
bool shim_stop(void);
/* A clock that is not even: after_ns from now it stands for stop_ns, and then goes on, jump_ns
 * ahead (or behind). */
struct shim_clock {
	int64_t after_ns, stop_ns, jump_ns;
};
/* The monotonic clock (its coarse twin too), and that of the day. NULL: as the system has it. */
void shim_clocks(const struct shim_clock *monotonic, const struct shim_clock *day);
/* Blocks of memory that the library has and has not freed. */
long shim_blocks(void);

#endif
