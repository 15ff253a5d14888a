/* How much memory this machine has left, and sizes in words. */
#ifndef PERF_RAM_H
#define PERF_RAM_H

#include <stddef.h>

#define RAM_TEXT 24

/* Bytes that can be written to before the kernel has to swap or to kill: what /proc/meminfo calls
 * available, or what the control groups of this process leave, if that is less. root: "", or
 * another root of /proc and /sys, for tests. HUGE_VAL: not known. */
double ram_left(const char *root);
/* "58.6 TiB". Returns text. */
const char *ram_text(double bytes, char text[RAM_TEXT]);

#endif
