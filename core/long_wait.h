/* When a wait has become so long that its user should be told what is waited for. */
#ifndef CORE_LONG_WAIT_H
#define CORE_LONG_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#define LONG_WAIT_MS       5000  /* until it is said, on stderr ... */
#define LONG_WAIT_AGAIN_MS 30000 /* ... and said again              */

/* All 0: the wait has not begun. */
struct long_wait {
	uint64_t due_ns;
};

/* Begins the wait, or looks at it: true each time it is to be said. */
bool long_wait_is_due(struct long_wait *wait, uint64_t now_ns);
/* Says "still waits for" and what format makes, for the rank of this thread (log_set_rank), unless
 * TUTTI_LOG is off. */
void long_wait_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
