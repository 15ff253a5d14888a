/* cmocka, and what it needs before it. Comes last: its fail would hide core/status.h's. */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Skips a case and prints why, in the words of tests/skips.txt, with which script/test compares them. */
#define skip_because(reason) (print_message("%s\n", (reason)), skip())

#endif
