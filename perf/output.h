/* stdout, where the table goes. A benchmark whose table cannot be written has failed, and says why;
 * but to a reader that has left, as head does, it says nothing. */
#ifndef PERF_OUTPUT_H
#define PERF_OUTPUT_H

#include <stdbool.h>

/* Before anything is opened. False, after a message, when there is no stdout. */
bool output_open(void);
/* Writes what was printed so far. */
void output_flush(void);
/* Whether all of it could be written up to now. */
bool output_is_well(void);

#endif
