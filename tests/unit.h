/* cmocka, and what it needs before it. Comes last: its fail would hide core/status.h's. */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Cases and callbacks have parameters because of their type; few tests need all of them. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Skips a case and prints why, in the words of tests/skips.txt, with which script/test compares them. */
#define skip_because(reason) (print_message("%s\n", (reason)), skip())

#endif
