/* A process that has communicators may fork, for its own purposes: the child has their memory and
 * descriptors, but not the threads that serve them, and the other ranks know nothing of it. It may
 * exec, or exit, or do other things; its calls of this library are refused. */
#ifndef CORE_FORKS_H
#define CORE_FORKS_H

#include <tutti/tutti.h>

#include <stdbool.h>

extern bool forks_is_orphan;    /* this process was forked from one that had communicators */

/* One more communicator of this process; one less. */
void forks_watch(void);
void forks_forget(void);
/* How many it has. */
int forks_communicators(void);
/* A connection or listener of ours that is open: a forked child closes its copy. While it has one
 * the others' kernels see no end when the parent dies. Forget it before it is closed, or the number
 * may be another file's. */
void forks_own(int fd);
void forks_disown(int fd);
/* INVALID with a message, in a forked child; what: the function that was called. */
tutti_status forks_refuse(const char *what);

static inline tutti_status forks_check(const char *what)
{
	return __builtin_expect(forks_is_orphan, 0) ? forks_refuse(what) : TUTTI_OK;
}

#endif
