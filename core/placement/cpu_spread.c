/* Ranks that wait for each other are always ready to run, and the kernel's balancing may leave two
 * of them on one core, for a tenth of a second or for good, while another core has none; every call
 * then takes as long as that core does. So where one CPU has two ranks more than another, one of
 * them moves there: by its affinity, which is set back at once, so that the kernel may move it
 * again.
 *
 * It cannot see other programs. So a move is a trial: when the new CPU has much less time for ranks
 * than the old one, the thread goes back, and does not try again soon. */
#include "core/placement/cpu_spread.h"

#include "core/clock.h"

#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL_NS   4000000u    /* between two looks */
#define TRIAL_NS      10000000u   /* long enough to show other programs' turns on a CPU */
#define LONG_NS       200000000u  /* looks further apart tell nothing of the time between */
#define REST_LEAST_NS 1000000000u /* after a trial that failed; doubled each time */
#define REST_MOST_NS  60000000000u
#define PACE_MOST_NS  64000000u
#define CPUS          CPU_SETSIZE

static uint64_t cpu_spread_used_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* How many ranks are on each CPU, by the number 1 + CPU; and the highest rank here. False: where
 * some rank is, is not known. */
static bool cpu_spread_count_ranks(const struct spread_ranks *node, int ranks[CPUS + 1],
				   int *highest, int32_t here)
{
	for (int rank = 0; rank < node->size; rank++) {
		int32_t cpu = rank == node->me ? here : node->cpu_of(node->arg, rank);
		if (cpu <= 0 || cpu > CPUS)
			return false;
		ranks[cpu]++;
		if (cpu == here)
			*highest = rank;
	}
	return true;
}

static int32_t cpu_spread_emptiest(const int ranks[CPUS + 1])
{
	cpu_set_t allowed;
	int32_t best = 0;

	if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
		return 0;
	for (int32_t cpu = 1; cpu <= CPUS; cpu++) {
		if (CPU_ISSET((size_t)cpu - 1, &allowed) && (!best || ranks[cpu] < ranks[best]))
			best = cpu;
	}
	return best;
}

/* Sets the affinity back. A thread that is not bound may use all CPUs that its process is given,
 * later ones too, and setting it to allowed would bind it. The kernel does not say whether a thread
 * is bound. But where asking for all CPUs gives just the allowed ones, it may keep all. */
static void cpu_spread_restore(const cpu_set_t *allowed)
{
	cpu_set_t all, now;

	memset(&all, 0xff, sizeof all);
	if (sched_setaffinity(0, sizeof all, &all) != 0 ||
	    sched_getaffinity(0, sizeof now, &now) != 0 || !CPU_EQUAL(&now, allowed))
		sched_setaffinity(0, sizeof *allowed, allowed);
}

/* Returns 1 + the CPU where the thread is then. */
static int32_t cpu_spread_move_to(int32_t cpu)
{
	cpu_set_t allowed, one;

	CPU_ZERO(&one);
	CPU_SET((size_t)cpu - 1, &one);
	if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
	    CPU_ISSET((size_t)cpu - 1, &allowed) && sched_setaffinity(0, sizeof one, &one) == 0)
		cpu_spread_restore(&allowed);
	return sched_getcpu() + 1;
}

static void cpu_spread_rest(struct spread *s, uint64_t now_ns)
{
	s->from = 0;
	s->rest_ns = s->rest_ns ? 2 * s->rest_ns : REST_LEAST_NS;
	if (s->rest_ns > REST_MOST_NS)
		s->rest_ns = REST_MOST_NS;
	s->again_ns = now_ns + s->rest_ns;
}

/* The trial is over: stays, or goes back. share: this CPU's time for ranks. */
static void cpu_spread_end_trial(struct spread *s, uint64_t share, uint64_t now_ns)
{
	int32_t from = s->from;

	s->from = 0;
	if (share * 10 >= s->share * 7)
		return;
	cpu_spread_rest(s, now_ns);
	cpu_spread_move_to(from);
}

/* Looks become rare while nothing changes: each may be a question to the kernel. */
static void cpu_spread_keep_pace(struct spread *s, const struct spread *before)
{
	bool is_calm = s->cpu == before->cpu && s->ranks == before->ranks && !s->from;

	if (is_calm && 2 * s->pace_ns <= s->ranks_here.pace_most_ns)
		s->pace_ns *= 2;
	else if (!is_calm)
		s->pace_ns = INTERVAL_NS;
}

static int32_t cpu_spread_ask_cpu_of(const void *near, int rank)
{
	return cpu_location_now((const struct cpu_location *)near + rank);
}

void spread_near(struct spread *s, const struct cpu_location *near, int count, int me)
{
	s->is_on = count > 0;
	s->ranks_here = (struct spread_ranks){.size = count,
					      .me = me,
					      .cpu_of = cpu_spread_ask_cpu_of,
					      .arg = near,
					      .pace_most_ns = PACE_MOST_NS,
					      .thread = near[me].thread};
}

void spread_look(struct spread *s)
{
	const struct spread_ranks *node = &s->ranks_here;
	struct spread before = *s;
	int ranks[CPUS + 1] = {0}, highest = -1;
	uint64_t now = clock_now_ns(), share;
	int32_t best;

	if (node->thread && node->thread != (int32_t)syscall(SYS_gettid))
		return;
	if (s->pace_ns == 0)
		s->pace_ns = INTERVAL_NS;
	if (now - s->looked_ns < (s->from ? TRIAL_NS : s->pace_ns))
		return;
	s->looked_ns = now;
	s->used_ns = cpu_spread_used_ns();
	s->cpu = sched_getcpu() + 1;
	if (node->say)
		node->say(node->arg, s->cpu);
	if (s->cpu <= 0 || !cpu_spread_count_ranks(node, ranks, &highest, s->cpu))
		return;
	s->ranks = ranks[s->cpu];
	if (s->from == s->cpu)
		cpu_spread_rest(s, now); /* the kernel has taken it back */
	cpu_spread_keep_pace(s, &before);
	if (s->cpu != before.cpu || s->ranks != before.ranks || now < s->again_ns ||
	    now - before.looked_ns > LONG_NS)
		return;
	/* Of a thousand: this CPU's time for all ranks on it, if they ran as much as this one. */
	share = (s->used_ns - before.used_ns) * 1000 / (now - before.looked_ns) *
		(uint64_t)s->ranks;
	if (s->from) {
		cpu_spread_end_trial(s, share, now);
		return;
	}
	best = highest == node->me ? cpu_spread_emptiest(ranks) : 0;
	if (!best || ranks[best] + 2 > s->ranks)
		return;
	s->from = s->cpu;
	s->share = share;
	s->ranks = ranks[best] + 1;
	s->cpu = cpu_spread_move_to(best);
}
