/* How long to look before sleeping; what was tried is in docs/measurements/small_calls.md. */
#include "core/wait.h"

#include "core/clock.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

/* With a core each: then 1-2 ms of yields, as one costs a third of a microsecond when nothing else
 * wants the core. */
#define SPIN_NS_ALONE 10000u
#define YIELDS_ALONE  4000u
/* With more threads than cores. By so much the CPUs' turns of eight ranks on two differ at most. */
#define SPIN_NS_SHARED 4000u
#define YIELDS_SHARED  20u
/* Reading the clock costs about as much as a look with a pause. */
#define LOOKS_PER_CLOCK 8u
/* After a yield that has lasted so long another program had its turn, and the thread is taken to
 * share its core with it: for as long as the turn was, and twice as long as the last time if that
 * was not long ago, up to the most. */
#define TURN_NS        2000000u
#define SHARED_NS_MOST 50000000u
/* With more threads than cores two looks at the clock would be a tenth of a yield: it is taken for
 * every eighth, and for so many after a turn of another program. */
#define YIELDS_PER_CLOCK 8u
#define YIELDS_WATCHED   64u

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

void wait_count_cores(void)
{
	pthread_once(&counted, count_cores);
	count_cores();
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
		return (struct wait_policy){.spin_ns = SPIN_NS_ALONE, .yields = YIELDS_ALONE};
	return (struct wait_policy){
		.spin_ns = SPIN_NS_SHARED, .yields = YIELDS_SHARED, .shares_cores = true};
}

static inline void wait_pause_core(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Until when another program is taken to want this thread's core, and for how long it was. */
static _Thread_local uint64_t shared_until_ns, shared_ns;
static _Thread_local unsigned yields_unwatched, yields_to_watch;

/* Whether there is time left to spin. */
static bool wait_may_spin(struct wait *w)
{
	if (++w->looks % LOOKS_PER_CLOCK)
		return true;
	uint64_t now = clock_now_ns();
	if (!w->since_ns)
		w->since_ns = now;
	if (now - w->since_ns < w->policy.spin_ns)
		return true;
	w->looks--; /* the next look reads the clock again */
	return false;
}

static void wait_note_turn(uint64_t before, uint64_t after)
{
	if (before - shared_until_ns >= 4 * shared_ns)
		shared_ns = after - before;
	else
		shared_ns *= 2;
	if (shared_ns > SHARED_NS_MOST)
		shared_ns = SHARED_NS_MOST;
	shared_until_ns = after + shared_ns;
	yields_to_watch = YIELDS_WATCHED;
}

/* False: another program wants the core, and would have its whole turn. */
static bool wait_yield_watched(void)
{
	uint64_t before = clock_now_ns();

	if (before < shared_until_ns)
		return false;
	yields_to_watch -= yields_to_watch > 0;
	sched_yield();
	uint64_t after = clock_now_ns();
	if (after - before > TURN_NS)
		wait_note_turn(before, after);
	return true;
}

static bool wait_yield_to_ranks(struct wait *w)
{
	w->looks = 0;
	w->since_ns = 0;
	if (yields_to_watch > 0 || ++yields_unwatched % YIELDS_PER_CLOCK == 0)
		return wait_yield_watched();
	sched_yield();
	return true;
}

bool wait_again_for(struct wait *w, bool is_near)
{
	if (!is_near && wait_may_spin(w)) {
		wait_pause_core();
		return true;
	}
	if (w->yields == w->policy.yields)
		return false;
	w->yields++;
	return w->policy.shares_cores || is_near ? wait_yield_to_ranks(w) : wait_yield_watched();
}
