/* Other processes of this machine, as the kernel tells: /proc. */
#ifndef CORE_PROCESS_H
#define CORE_PROCESS_H

#include <stdbool.h>

/* The number of a pidfd's process, as this process sees it; 0 if it has ended, or cannot be seen
 * from here. */
int process_of(int pid_fd);
/* Whether it is proved to have ended, or to be ending: no thread of it runs its program any more.
 * Of processes that this one sees. */
bool process_has_ended(int pid);
/* By SIGSTOP, a terminal, a batch system, or a debugger. Computing and sleeping are none of it. */
bool process_is_stopped(int pid);

#endif
