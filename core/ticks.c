/* Which counter can be relied on, and how its ticks become nanoseconds. */
#include "core/ticks.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define TRIES  8                   /* the closest of so many looks is taken          */
#define NS_MAX (UINT64_C(1) << 62) /* what does not fit is cut there: 146 years  */

static enum ticks_kind here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
/* The kernel watches the counter, and takes another clock as soon as the cores' differ. A virtual
 * machine's kernel may prefer its host's clock, which is made of the same counter: there the CPU's
 * own word counts. */
static bool ticks_is_trusted(const char *clock)
{
	unsigned eax, ebx, ecx, edx;

	if (strcmp(clock, "tsc\n") == 0)
		return true;
	if (strcmp(clock, "kvm-clock\n") != 0 && strncmp(clock, "hyperv", 6) != 0)
		return false;
	return __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) && edx >> 8 & 1;
}
#endif

static void ticks_find_kind(void)
{
#if defined(__x86_64__)
	char name[48] = "";
	FILE *file =
		fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
	if (!file)
		return;
	if (fgets(name, sizeof name, file) && ticks_is_trusted(name))
		here = TICKS_TSC;
	fclose(file);
#elif defined(__aarch64__)
	here = TICKS_CNTVCT;
#endif
}

enum ticks_kind ticks_kind_here(void)
{
	pthread_once(&once, ticks_find_kind);
	return here;
}

struct ticks_moment ticks_moment(enum ticks_kind kind)
{
	struct ticks_moment best = {0};
	uint64_t closest = UINT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		uint64_t before = ticks_now(kind);
		struct ticks_moment m = {.monotonic_ns = clock_now_ns(),
					 .realtime_ns = clock_read_ns(CLOCK_REALTIME)};
		uint64_t apart = ticks_now(kind) - before;
		m.ticks = before + apart / 3;
		if (apart < closest)
			best = m;
		closest = apart < closest ? apart : closest;
	}
	return best;
}

uint64_t ticks_to_ns(const struct ticks_moment *first, const struct ticks_moment *second,
		     uint64_t ticks)
{
	double slope = second->ticks > first->ticks && second->monotonic_ns > first->monotonic_ns
			       ? (double)(second->monotonic_ns - first->monotonic_ns) /
					 (double)(second->ticks - first->ticks)
			       : 1.0;
	bool is_after = ticks >= first->ticks;
	double ns = slope * (double)(is_after ? ticks - first->ticks : first->ticks - ticks);
	uint64_t by = ns < (double)NS_MAX ? (uint64_t)ns : NS_MAX;
	uint64_t from = first->monotonic_ns < NS_MAX ? first->monotonic_ns : NS_MAX;

	if (!is_after)
		return by < from ? from - by : 0;
	return by < NS_MAX - from ? from + by : NS_MAX;
}
