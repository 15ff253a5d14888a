/* How long to look before sleeping; what was tried is in docs/measurements/small_calls.md. */
#include "core/wait.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

/* With a core each: about 10 us of looks with a pause, then 1-2 ms of looks with a yield. A
 * yield costs a third of a microsecond when nothing else wants the core, and gives it away when
 * something does: the machine's other programs, or the very rank that is waited for. */
#define SPINS_ALONE  200u
#define YIELDS_ALONE 4000u
/* With more threads than cores. */
#define YIELDS_OVERSUBSCRIBED 20u
/* About 4 us: by so much the CPUs' turns of eight ranks on two differ at the most. */
#define APART_OVERSUBSCRIBED 80u

static pthread_once_t counted = PTHREAD_ONCE_INIT;
static int own_cores;

static void count_cores(void)
{
	cpu_set_t set;

	/* Fails on machines with more cores than a cpu_set_t holds; then all online ones are ours.
	 */
	if (sched_getaffinity(0, sizeof set, &set) == 0)
		own_cores = CPU_COUNT(&set);
	else
		own_cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
	if (own_cores < 1)
		own_cores = 1;
}

int wait_cores(void)
{
	pthread_once(&counted, count_cores);
	return own_cores;
}

struct wait_cpus wait_cpus_here(void)
{
	struct wait_cpus cpus = {{0}};
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set) != 0)
		return cpus;
	for (size_t cpu = 0; cpu < WAIT_CPUS && cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			cpus.bits[cpu / 64] |= UINT64_C(1) << cpu % 64;
	return cpus;
}

int wait_cpus_together(const struct wait_cpus *const *sets, int n)
{
	struct wait_cpus all = {{0}};
	int count = 0;

	for (int i = 0; i < n; i++) {
		uint64_t any = 0;
		for (int k = 0; k < WAIT_CPUS / 64; k++) {
			all.bits[k] |= sets[i]->bits[k];
			any |= sets[i]->bits[k];
		}
		if (!any)
			return 0;
	}
	for (int k = 0; k < WAIT_CPUS / 64; k++)
		count += __builtin_popcountll(all.bits[k]);
	return count;
}

struct wait_policy wait_policy_on(int threads, int cores)
{
	if (threads <= cores)
		return (struct wait_policy){.spins = SPINS_ALONE, .yields = YIELDS_ALONE};
	return (struct wait_policy){.yields = YIELDS_OVERSUBSCRIBED, .apart = APART_OVERSUBSCRIBED};
}

static inline void pause_core(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

bool wait_again(struct wait *w)
{
	if (w->looks < w->policy.spins) {
		w->looks++;
		pause_core();
		return true;
	}
	if (w->looks - w->policy.spins < w->policy.yields) {
		w->looks++;
		sched_yield();
		return true;
	}
	return false;
}

bool wait_again_apart(struct wait *w)
{
	if (w->apart < w->policy.apart) {
		w->apart++;
		pause_core();
		return true;
	}
	w->apart = 0;
	return wait_again(w);
}
