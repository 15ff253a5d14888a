/* What two processes do with a line of shared memory, what a blocking call adds to that, and what a
 * rank takes that has nothing to do. */
#include "limits.h"
#include "measure.h"

#include <string.h>
#include <unistd.h>

#define FLAG_TRIES   101
#define FLAG_TRIPS   2000
#define ROUNDS       201
#define CALLS        1000
#define IDLE_SECONDS 5

/* ---- one signal from core to core: a line is handed to and fro. On a shared machine that changes
 * within seconds, as the host moves the cores: hence the spread. */

static int limits_flag_body(struct trial *t)
{
	_Atomic uint32_t *mine = &t->shared->lines[0][t->rank].sequence;
	_Atomic uint32_t *other = &t->shared->lines[0][1 - t->rank].sequence;
	static double nanoseconds[FLAG_TRIES];
	uint32_t sequence = 0;
	int tries = 0;

	while (limits_again(t, tries, FLAG_TRIES)) {
		double start = limits_now();

		for (int i = 0; i < FLAG_TRIPS; i++) {
			sequence++;
			if (t->rank == 0)
				atomic_store_explicit(mine, sequence, memory_order_release);
			for (int look = 0;
			     atomic_load_explicit(other, memory_order_acquire) != sequence; look++)
				limits_wait(t, look);
			if (t->rank == 1)
				atomic_store_explicit(mine, sequence, memory_order_release);
		}
		nanoseconds[tries++] = (limits_now() - start) / FLAG_TRIPS / 2 * 1e9;
	}
	if (t->rank == 0)
		t->shared->found = limits_lowest(nanoseconds, tries);
	return 0;
}

int limits_flag(struct trial *t)
{
	t->ranks = 2;
	t->is_pinned = true;
	if (limits_share_cores(t->ranks)) {
		limits_skip("flag", "there is one core only");
		return 0;
	}
	if (limits_run(t, limits_flag_body) != 0)
		return 1;
	struct spread found = t->shared->found;

	printf("a flag from core to core, one way: %.0f ns at the least (median %.0f, the middle "
	       "half of the tries %.0f-%.0f)\n",
	       found.best, found.middle, found.low, found.high);
	limits_figure_spread("flag_ns", found);
	return 0;
}

/* ---- one blocking call of 2 ranks and 16 bytes against its fastest path: one line for each rank
 * and parity, written, seen and summed, with nothing around it. Both are timed in turns, so that
 * they see the same machine. */

static void limits_call_raw_all_reduce(struct trial *t, uint32_t sequence, float *data)
{
	struct raw_line *lines = t->shared->lines[sequence & 1];
	struct raw_line *mine = &lines[t->rank], *other = &lines[1 - t->rank];

	memcpy(mine->payload, data, sizeof mine->payload);
	atomic_store_explicit(&mine->sequence, sequence, memory_order_release);
	for (int look = 0; atomic_load_explicit(&other->sequence, memory_order_acquire) != sequence;
	     look++)
		limits_wait(t, look);
	for (int i = 0; i < 4; i++)
		data[i] += other->payload[i];
}

/* Fewer where each takes a change of ranks. */
static int limits_call_calls(const struct trial *t)
{
	return t->looks == 0 ? CALLS / 10 : CALLS;
}

static double limits_call_time_raw(struct trial *t, uint32_t *sequence)
{
	float data[4] = {0};
	double start = limits_now();

	for (int i = 0; i < limits_call_calls(t); i++)
		limits_call_raw_all_reduce(t, ++*sequence, data);
	return (limits_now() - start) / limits_call_calls(t);
}

static double limits_call_time_tutti(const struct trial *t, tutti_comm *comm)
{
	float data[4] = {0};
	double start = limits_now();

	for (int i = 0; i < limits_call_calls(t); i++) {
		if (tutti_all_reduce(data, data, 4, TUTTI_F32, TUTTI_SUM, comm, NULL) != TUTTI_OK) {
			fprintf(stderr, "limits: rank %d: %s\n", t->rank, tutti_comm_error(comm));
			exit(1);
		}
	}
	return (limits_now() - start) / limits_call_calls(t);
}

static int limits_call_body(struct trial *t)
{
	static double raw[ROUNDS], tutti[ROUNDS], extra[ROUNDS];
	uint32_t sequence = 0;
	int rounds = 0;
	tutti_comm *comm = limits_join(t);

	for (; limits_again(t, rounds, ROUNDS); rounds++) {
		raw[rounds] = limits_call_time_raw(t, &sequence);
		tutti[rounds] = limits_call_time_tutti(t, comm);
		extra[rounds] = tutti[rounds] - raw[rounds];
	}
	t->shared->figures[t->rank][0] = measure_median(raw, rounds);
	t->shared->figures[t->rank][1] = measure_median(tutti, rounds);
	t->shared->figures[t->rank][2] = measure_median(extra, rounds);
	t->shared->figures[t->rank][3] = rounds;
	tutti_comm_destroy(comm);
	return 0;
}

int limits_call(struct trial *t)
{
	const double *found = t->shared->figures[0];

	t->ranks = 2;
	if (limits_run(t, limits_call_body) != 0)
		return 1;
	printf("one blocking all_reduce of 16 B, 2 ranks%s: %.0f ns; bare exchange of lines %.0f "
	       "ns; overhead %.0f ns (median of %.0f rounds)\n",
	       limits_share_cores(2) ? " on one core" : "", found[1] * 1e9, found[0] * 1e9,
	       found[2] * 1e9, found[3]);
	limits_figure("bare_exchange_ns", found[0] * 1e9);
	limits_figure("call_ns", found[1] * 1e9);
	return 0;
}

/* ---- a rank with nothing in flight */

static int limits_idle_body(struct trial *t)
{
	tutti_comm *comm = limits_join(t);
	double before;

	if (tutti_barrier(comm, NULL) != TUTTI_OK)
		return 1;
	before = measure_seconds(CLOCK_PROCESS_CPUTIME_ID);
	sleep(IDLE_SECONDS);
	t->shared->figures[t->rank][0] =
		(measure_seconds(CLOCK_PROCESS_CPUTIME_ID) - before) / IDLE_SECONDS;
	limits_meet(t);
	tutti_comm_destroy(comm);
	return 0;
}

int limits_idle(struct trial *t)
{
	t->ranks = 2;
	if (limits_run(t, limits_idle_body) != 0)
		return 1;
	double percent = t->shared->figures[0][0] * 100;

	printf("processor time of a rank with nothing in flight: %.3f %% (%d s)\n", percent,
	       IDLE_SECONDS);
	limits_figure("idle_percent", percent);
	return 0;
}
