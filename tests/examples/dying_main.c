/* Kills a rank of the examples of RPC in the middle of its work, and holds back a worker of the
 * parameter server; linked into both programs.
 *
 *   DIES=RANK:CALLS  the rank kills itself (SIGKILL) before its call of that number; a rank that
 *                    serves: before its answer of that number
 *   LAG=STEPS        worker number 0 begins a step only when all others have pushed as many steps
 *                    more as that staleness lets them, so it must let them. Every worker checks
 *                    when it begins a step that it is no more steps ahead of any other. Needs
 *                    CLOCKS, a file of zeros that the ranks share, WORKERS and STEPS.
 *
 * A wait for other ranks ends after 60 s with an abort. */
#include <tutti/rpc.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS_MOST = 64, DEADLINE_S = 60 };

static atomic_int calls, answers;
/* Of each worker: the steps whose push it has begun; shared by the ranks. Relaxed: nothing else is
 * read through them. */
static atomic_int *clocks;
static int lag, workers, steps, me, step;

static _Noreturn void give_up(const char *why, int number)
{
	fprintf(stderr, "dying_main: worker %d, step %d: %s %d\n", me, step, why, number);
	abort();
}

/* DIES, if it names this rank. RANK is set by every launcher that the tests use. */
static void maybe_die(atomic_int *count)
{
	const char *dies = getenv("DIES"), *rank = getenv("RANK");
	int which, when;

	if (dies && rank && sscanf(dies, "%d:%d", &which, &when) == 2 && which == atoi(rank) &&
	    atomic_fetch_add(count, 1) + 1 == when)
		raise(SIGKILL);
}

static void map_clocks(tutti_rpc *rpc)
{
	int fd = open(getenv("CLOCKS"), O_RDWR | O_CLOEXEC);

	lag = atoi(getenv("LAG"));
	workers = atoi(getenv("WORKERS"));
	steps = atoi(getenv("STEPS"));
	me = tutti_rpc_rank(rpc) - (tutti_rpc_size(rpc) - workers);
	clocks = mmap(NULL, sizeof(atomic_int[WORKERS_MOST]), PROT_READ | PROT_WRITE, MAP_SHARED,
		      fd, 0);
	if (fd < 0 || clocks == MAP_FAILED || workers > WORKERS_MOST)
		give_up("no clocks of workers:", workers);
	close(fd);
}

static int clock_of(int worker)
{
	return atomic_load_explicit(&clocks[worker], memory_order_relaxed);
}

/* Worker 0 before a step: the others come as far as they may. Their last push has no answer yet. */
static void wait_for_others(void)
{
	int most = step + lag + 1 < steps ? step + lag + 1 : steps;
	time_t end = time(NULL) + DEADLINE_S;

	for (int w = 1; w < workers; w++) {
		while (clock_of(w) < most) {
			if (time(NULL) > end)
				give_up("does not come as far ahead as it may: worker", w);
			sched_yield();
		}
	}
}

static void begin_step(void)
{
	for (int w = 0; w < workers; w++) {
		if (clock_of(w) < step - lag)
			give_up("too far ahead of worker", w);
	}
	if (me == 0)
		wait_for_others();
}

/* By what it asks of server 0. After the last push come the parameters that it evaluates. */
static void watch(const char *name)
{
	if (strcmp(name, "pull_dense") == 0 && step < steps)
		begin_step();
	if (strcmp(name, "push") == 0)
		atomic_store_explicit(&clocks[me], ++step, memory_order_relaxed);
}

tutti_status __real_tutti_rpc_call_async(tutti_rpc *, int, const char *, const tutti_rpc_piece *,
					 int, tutti_rpc_answer *, const tutti_rpc_options *,
					 tutti_rpc_future **);
tutti_status __wrap_tutti_rpc_call_async(tutti_rpc *rpc, int rank, const char *name,
					 const tutti_rpc_piece *pieces, int num_pieces,
					 tutti_rpc_answer *answer, const tutti_rpc_options *options,
					 tutti_rpc_future **future);
tutti_status __wrap_tutti_rpc_call_async(tutti_rpc *rpc, int rank, const char *name,
					 const tutti_rpc_piece *pieces, int num_pieces,
					 tutti_rpc_answer *answer, const tutti_rpc_options *options,
					 tutti_rpc_future **future)
{
	maybe_die(&calls);
	if (!clocks && getenv("LAG"))
		map_clocks(rpc);
	if (clocks && rank == 0)
		watch(name);
	return __real_tutti_rpc_call_async(rpc, rank, name, pieces, num_pieces, answer, options,
					   future);
}

void __real_tutti_rpc_reply_end(tutti_rpc_reply *, tutti_status);
void __wrap_tutti_rpc_reply_end(tutti_rpc_reply *reply, tutti_status status);
void __wrap_tutti_rpc_reply_end(tutti_rpc_reply *reply, tutti_status status)
{
	maybe_die(&answers);
	__real_tutti_rpc_reply_end(reply, status);
}
