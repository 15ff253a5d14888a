/* stdout, where a program's results go. Half an answer must not pass for a whole one: a program
 * whose results cannot be written has failed, and says why; but to a reader that has left, as head
 * does, it says nothing. */
#ifndef CORE_PROGRAM_OUTPUT_H
#define CORE_PROGRAM_OUTPUT_H

#include <stdbool.h>

/* Before anything is opened. False, after a message, when there is no stdout. */
bool output_open(void);
/* Part of output_open, by itself for a program whose stdout is not its own: up to 64 KiB wait for
 * output_flush. Before anything is printed. */
void output_buffer(void);
/* Writes what was printed so far. */
void output_flush(void);
/* Whether all of it could be written up to now. */
bool output_is_well(void);
/* Writes the rest. Returns the program's exit code: code, unless that is 0 and not all could be
 * written: then failure. */
int output_end(int code, int failure);

#endif
