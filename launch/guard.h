/* A small process that outlives a killed launcher, to end what the ranks had started: the kernel ends the
 * ranks themselves with the launcher, but not their children. It knows the process group of each rank that
 * is there, none that was: by then the number may be another's. */
#ifndef LAUNCH_GUARD_H
#define LAUNCH_GUARD_H

#include <sys/types.h>

struct guard {
	pid_t pid;      /* -1: there is none, which only a killed launcher's job would notice */
	int fd;         /* ranks write here who they are, before their program runs           */
};

struct guard guard_start(void);
/* In a rank, the local-th of this machine, that leads its process group and is about to become its program;
 * the descriptor closes with exec. */
void guard_join(const struct guard *guard, int local);
/* In the launcher, once the rank's group has been killed or has ended, and before the rank is
 * reaped: until then no other process can have the number. */
void guard_forget(const struct guard *guard, int local);
/* The job has ended in order; the guard has nothing to do any more. */
void guard_end(struct guard *guard);

#endif
