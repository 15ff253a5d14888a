/* How threads that stand for a GPU's blocks let each other run. */
#ifndef CUDA_KERNELS_GIVE_WAY_H
#define CUDA_KERNELS_GIVE_WAY_H

#include <sched.h>
#include <stdint.h>
#include <time.h>

#define GIVE_WAY_SLOW_NS  300000
#define GIVE_WAY_SLEEP_NS 20000
#define GIVE_WAY_SLEEPS   256

__attribute__((unused)) static inline uint64_t give_way_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Yields. Beside processes that are always busy a yield costs a slice of the scheduler, 2 to 4 ms,
 * for each of them, but who sleeps is run again at once: after a slow yield the next ones are short
 * sleeps. */
__attribute__((unused)) static inline void give_way(void)
{
	static _Thread_local unsigned sleeps;

	if (sleeps > 0) {
		sleeps--;
		nanosleep(&(struct timespec){.tv_nsec = GIVE_WAY_SLEEP_NS}, NULL);
		return;
	}
	uint64_t begun = give_way_now();
	sched_yield();
	if (give_way_now() - begun > GIVE_WAY_SLOW_NS)
		sleeps = GIVE_WAY_SLEEPS;
}

#endif
