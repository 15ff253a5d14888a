/* How a thread waits for another rank: the one place that says when to spin, yield and sleep.
 *
 * With at least a core per waiting thread of this node a look costs nothing and waking up costs 30
 * us: spin, then yield. With more threads than cores a spin keeps the one waited for from running:
 * yield at once, sleep after ~20. But not where all that is waited for runs on other CPUs: then
 * those on this one wait for the same, and a switch to them and back only makes this one late.
 * Helper threads count as ranks' threads.
 *
 * Where another program wants the core, too, a yield lasts as long as that program's turn, and a
 * thread that has slept runs as soon as it is woken. So after such a turn a thread sleeps where it
 * would have yielded, for a while, and for longer the sooner the next turn comes.
 */
#ifndef CORE_WAIT_H
#define CORE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct wait_policy {
	uint32_t spin_ns;  /* looks with a pause between them, for so long ...           */
	uint32_t yields;   /* ... then looks with sched_yield between them; then sleep   */
	bool shares_cores; /* more threads than cores: it spins again after each yield   */
};

struct wait {
	struct wait_policy policy;
	uint32_t looks, yields;
	uint64_t since_ns; /* when it began to spin; 0 before the clock was read */
};

/* threads: how many threads of this node may wait at the same time; cores: that they may use. */
struct wait_policy wait_policy_on(int threads, int cores);
/* Cores that this process may use: counted with sched_getaffinity, once. */
int wait_cores(void);
/* Counts them again, in a process that was forked and has others now. It has one thread. */
void wait_count_cores(void);

/* Which these are, now and for the calling thread. Processes of a node that are bound to a core
 * each may have as many as there are processes, though none of them may use more than one. */
#define WAIT_CPUS 1024
struct wait_cpus {
	uint64_t bits[WAIT_CPUS / 64]; /* all 0 if the machine has more */
};
struct wait_cpus wait_cpus_here(void);
/* How many the n sets have together; unknown, by one of them, is 0. */
int wait_cpus_together(const struct wait_cpus *const *sets, int n);

static inline void wait_begin(struct wait *w, struct wait_policy policy)
{
	*w = (struct wait){.policy = policy};
}

/* After a look that found nothing. False: it is time to sleep (futex, poll), at most 1 ms a time.
 * is_near: what it waits for may be waiting for this very CPU. */
bool wait_again_for(struct wait *w, bool is_near);
/* The same where nobody knows on which CPU that is. */
static inline bool wait_again(struct wait *w)
{
	return wait_again_for(w, w->policy.shares_cores);
}

#endif
