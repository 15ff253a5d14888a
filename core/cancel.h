/* Cancels the waits of a thread before their deadlines. The thread names a function once, with
 * cancel_begin, and its waits ask that function. Once the function returns true, all deadlines of
 * the thread count as passed. So no function between has to pass a cancellation hook on. */
#ifndef CORE_CANCEL_H
#define CORE_CANCEL_H

#include <stdbool.h>
#include <stdint.h>

/* From here on this thread asks is_over(arg) while it waits, until cancel_end. Not nested. */
void cancel_begin(bool (*is_over)(void *arg), void *arg);
void cancel_end(void);
bool cancel_requested(void);
/* deadline_ns, or one that has passed when the wait was cancelled. */
uint64_t cancel_deadline(uint64_t deadline_ns);
/* For poll(2), as deadline_poll_ms, and not longer than until it is time to ask again. */
int cancel_poll_ms(uint64_t deadline_ns, int max_ms);

#endif
