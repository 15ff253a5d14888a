/* Signals from outside that would end this process: while it has ranks they end those first. */
#ifndef COLLECTIVES_SPAWN_OUTSIDE_H
#define COLLECTIVES_SPAWN_OUTSIDE_H

#include <tutti/tutti.h>

#include <signal.h>
#include <stdbool.h>

#define OUTSIDE_SIGNALS 3
#define OUTSIDE_CHANGED (OUTSIDE_SIGNALS + 1) /* and SIGCHLD */

struct outside {
	int fd;                /* becomes readable when one has come                          */
	int last;              /* the last that has come, or 0                                */
	struct sigaction old[OUTSIDE_CHANGED];
};

/* From here on SIGINT, SIGTERM and SIGHUP are noted, those that the program neither handles nor
 * ignores; and children can be waited for, though the program may have ignored their ends. SYSTEM.
 * INVALID: another thread is between this and give_back. */
tutti_status outside_take(struct outside *outside);
/* The next that has come, or 0. has_all: the terminal has sent it to the ranks, too. */
int outside_next(struct outside *outside, bool *has_all);
/* All is as it was. One that came in the last moment is noted in outside->last. */
void outside_give_back(struct outside *outside);

/* Around fork: between the two none is handled here, nor does a handler of the program's take the
 * child; in the child leave instead of release, and all is as before take. */
void outside_hold(sigset_t *mask);
void outside_release(const sigset_t *mask);
void outside_leave(struct outside *outside, const sigset_t *mask);

#endif
