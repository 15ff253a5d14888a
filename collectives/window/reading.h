/* Ordinary buffers that are only copied, read where they lie in the other process
 * (process_vm_readv). */
#ifndef COLLECTIVES_WINDOW_READING_H
#define COLLECTIVES_WINDOW_READING_H

#include "collectives/window/window_internal.h"

/* Before the others look: how they can know this process. */
void read_say_process(struct window *window);
/* When all have said it: whether this rank can read what all others have in memory. */
void read_find_out(struct window *window, size_t read_bytes);
/* Says in buffers whether this rank would read, and returns that. */
bool read_publish(struct window *window, const struct window_run *run,
		  struct line_buffers *buffers);
/* With all lines there: run goes this path; false, on every rank alike: some rank would not. */
bool read_begin(struct window *window, struct window_run *run);

#endif
