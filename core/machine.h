/* This machine and the processes on it, as the kernel's small files tell. */
#ifndef CORE_MACHINE_H
#define CORE_MACHINE_H

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads such a file, as far as there is room. False: nothing, or there is no such file. */
bool machine_text(const char *path, char *text, size_t text_bytes);

/* The kernel's name for this run of it; "" where it tells none. SYSTEM: no descriptor is left. */
#define MACHINE_BOOT_BYTES 40
tutti_status machine_boot(char id[MACHINE_BOOT_BYTES]);
/* The number of this process's namespace of a kind ("net", "pid"), or 0 if unknown. */
uint64_t machine_namespace(const char *kind);

/* The number of a pidfd's process, as this process sees it; 0 if it has ended, or cannot be seen
 * from here. */
int process_of(int pid_fd);
/* Whether it is proved to have ended, or to be ending: no thread of it runs its program any more.
 * Of processes that this one sees. */
bool process_has_ended(int pid);
struct process_look {
	bool is_stopped; /* by SIGSTOP, a terminal, a batch system, a debugger; not by sleeping */
	/* Another number after an exec: where the kernel has put the program and its stack. 0:
	 * unknown. (The same program without randomized addresses gets the same number.) */
	uint64_t program;
};
/* One read of /proc; all zero for a process that this one does not see. */
struct process_look process_look(int pid);
bool process_is_stopped(int pid);

#endif
