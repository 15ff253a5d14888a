/* Cases of a test that run in a child process: what they leave allocated, or abort, ends with it. */
#ifndef TESTS_CORE_CHILD_H
#define TESTS_CORE_CHILD_H

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stddef.h>

enum { CHILD_TIMEOUT_MS = 1000 };

/* In a child: ends it with 3, and a message, if the claim does not hold. */
#define MUST(claim) child_must(claim, #claim)
void child_must(bool is_so, const char *what);
/* Both ranks of a communicator with CHILD_TIMEOUT_MS. */
void child_init(tutti_comm **comms);
/* Runs the case in a child. Returns how it ended, a signal as -number; said has its stderr. */
int child_run(void (*scenario)(void), char *said, size_t bytes);
/* The test fails if the case does not end so, or does not print that. */
void child_expect_end(void (*scenario)(void), int end, const char *notice);

#endif
