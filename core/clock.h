/* Time: monotonic nanoseconds, and deadlines as points on that scale. */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define DEADLINE_NONE UINT64_MAX
#define MS_TO_NS(ms)  ((uint64_t)(ms) * 1000000u)

static inline uint64_t clock_read_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_now_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

static inline double clock_now_seconds(void)
{
	return 1e-9 * (double)clock_now_ns();
}

static inline uint64_t deadline_after_ms(int64_t ms)
{
	return clock_now_ns() + MS_TO_NS(ms);
}

/* For pthread_cond_clockwait and pthread_mutex_clocklock, with CLOCK_MONOTONIC. */
static inline struct timespec deadline_timespec(uint64_t deadline_ns)
{
	return (struct timespec){.tv_sec = (time_t)(deadline_ns / 1000000000u),
				 .tv_nsec = (long)(deadline_ns % 1000000000u)};
}

/* For poll(2): milliseconds until the deadline, rounded up, at most max_ms, 0 when it has passed.
 */
static inline int deadline_poll_ms(uint64_t deadline_ns, int max_ms)
{
	uint64_t now = clock_now_ns();
	if (now >= deadline_ns)
		return 0;
	uint64_t ms = (deadline_ns - now + 999999u) / 1000000u;
	return ms > (uint64_t)max_ms ? max_ms : (int)ms;
}

#endif
