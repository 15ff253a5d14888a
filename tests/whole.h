/* How much of what a test repeats is done in which build: all of it in release, and with script/test --whole, which
 * script/soak runs, everywhere. With a sanitizer each round takes ten times as long and runs the same lines: there it is less. */
#ifndef TESTS_WHOLE_H
#define TESTS_WHOLE_H

#include <stdlib.h>

static inline int whole_or(int whole, int asan, int tsan)
{
	int part = whole;

#if defined(__SANITIZE_ADDRESS__)
	part = asan;
#elif defined(__SANITIZE_THREAD__)
	part = tsan;
#endif
	(void)asan;
	(void)tsan;
	return getenv("TEST_WHOLE") ? whole : part;
}

/* The same of what takes long even in release, which then has a part of it, too. */
static inline int long_or(int whole, int release, int asan, int tsan)
{
	return getenv("TEST_WHOLE") ? whole : whole_or(release, asan, tsan);
}

#endif
