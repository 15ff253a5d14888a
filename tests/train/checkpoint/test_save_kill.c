/* no_tsan: its ranks are processes: nothing is seen of what they share */
/* What would break: a job of which one process or all are killed (SIGKILL) at any moment of
 * training and saving. The next job, of another number of ranks, finds the newest whole checkpoint,
 * at least the last one that tutti_save_wait has committed, with the parameters of its step, and
 * continues. The toy's sums are exact, so all jobs have the bits of an undisturbed training.
 *
 * KILLS=50 test_save_kill: that many kills. */
#include "tests/limit.h"
#include "tests/train/ranks.h"
#include "tests/train/saved.h"
#include "tests/train/toy.h"

#include "train/base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit.h"

enum {
	KILLS = 8,
	SAMPLES = 8,
	LAST_STEPS = 2, /* of the last job, which is not killed */
	MOST_RANKS = 4,
	MOST_STEPS = 6000,
	LIFE_S = 100,
	GRACE_MS = 60000,
	TIMEOUT_MS = 30000
};
enum { ENDED_WELL, ENDED_WRONG, LOST_A_PEER }; /* how a rank ends */

static char dir[64];

/* Memory that all processes share, also the killed ones. */
static struct shared {
	_Atomic int64_t committed;         /* the newest step that a rank knows to be saved */
	atomic_int calm_steps, is_killing; /* steps that values has; a kill is going on */
	float values[MOST_STEPS + 1][TOY_PARAMS][TOY_MAX]; /* after so many steps */
} * shared;

struct job {
	int ranks;
	char url[96];
	int out; /* a rank reports its load, and each save */
};

static void make_toy(struct toy *toy, tutti_comm *comm, tutti_strategy strategy)
{
	const tutti_train_config config = {.strategy = strategy,
					   .seed = 7,
					   .max_grad_norm = 3,
					   .bucket_bytes = 200,
					   .deterministic = 1};

	toy_make(toy, comm, &config);
}

static tutti_status read_values(struct toy *toy, float values[TOY_PARAMS][TOY_MAX])
{
	memset(values, 0, sizeof(float) * TOY_PARAMS * TOY_MAX);
	for (int p = 0; p < TOY_PARAMS; p++)
		TRY(tutti_param_read(toy->trainer, p, 0, toy_count(p), values[p]));
	return TUTTI_OK;
}

/* Ends the rank if they differ. */
static tutti_status compare_values(struct toy *toy, int64_t step, const char *when)
{
	float values[TOY_PARAMS][TOY_MAX];

	TRY(read_values(toy, values));
	if (memcmp(values, shared->values[step], sizeof values) == 0)
		return TUTTI_OK;
	fprintf(stderr, "rank %d of %d: other parameters %s, at step %lld\n", toy->rank, toy->size,
		when, (long long)step);
	_exit(ENDED_WRONG);
}

static void say(const struct job *job, int64_t word)
{
	if (write(job->out, &word, sizeof word) != sizeof word && errno != EAGAIN)
		_exit(ENDED_WRONG);
}

static void committed(int64_t step)
{
	int64_t before = atomic_load(&shared->committed);

	while (before < step && !atomic_compare_exchange_weak(&shared->committed, &before, step))
		;
}

static tutti_status load(struct toy *toy, int64_t *step)
{
	int64_t least = atomic_load(&shared->committed);

	TRY(tutti_load(toy->trainer, dir, step));
	if (*step < least) {
		fprintf(stderr, "found step %lld, though step %lld was saved: %s\n",
			(long long)*step, (long long)least, tutti_comm_error(NULL));
		_exit(ENDED_WRONG);
	}
	*step = *step < 0 ? 0 : *step; /* none yet */
	return compare_values(toy, *step, "as they were loaded");
}

/* Waits for the save or not. tutti_save waits for the one before, saved, if this job has begun one.
 */
static tutti_status save(struct toy *toy, const struct job *job, int64_t step, int64_t saved)
{
	TRY(tutti_save(toy->trainer, dir, step));
	if (saved > 0)
		committed(saved);
	if (step % 3 == 0) {
		TRY(tutti_save_wait(toy->trainer));
		committed(step);
	}
	say(job, step);
	return TUTTI_OK;
}

/* Saves every step, for steps of them, or with 0 until it is killed. */
static tutti_status go_on(struct toy *toy, const struct job *job, int64_t steps)
{
	int64_t first, last = atomic_load(&shared->calm_steps);

	TRY(load(toy, &first));
	say(job, first);
	last = steps ? first + steps : last - LAST_STEPS;
	for (int64_t step = first; step < last; step++) {
		TRY(toy_step(toy, (int)step, SAMPLES));
		TRY(compare_values(toy, step + 1, "after a step"));
		TRY(save(toy, job, step + 1, step == first ? 0 : step));
	}
	TRY(tutti_save_wait(toy->trainer));
	while (!steps) { /* every known step of the undisturbed training is compared */
		TRY(tutti_check_replicas(toy->trainer));
		say(job, last);
	}
	return TUTTI_OK;
}

/* A failure that no kill explains. */
static void complain(const struct job *job, int rank, tutti_status status)
{
	if (status != TUTTI_OK && !atomic_load(&shared->is_killing))
		fprintf(stderr, "rank %d of %d: %s\n", rank, job->ranks, tutti_comm_error(NULL));
}

static void be_rank(const struct job *job, int rank, int64_t steps)
{
	const tutti_config config = {.rank = rank,
				     .world_size = job->ranks,
				     .rendezvous = job->url,
				     .timeout_ms = TIMEOUT_MS};
	struct toy toy;
	tutti_comm *comm;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	test_limit(LIFE_S);
	tutti_status status = tutti_init(&comm, &config);
	if (status == TUTTI_OK) {
		make_toy(&toy, comm, TUTTI_FSDP);
		status = go_on(&toy, job, steps);
		complain(job, rank, status);
		toy_destroy(&toy);
		tutti_comm_destroy(comm);
	} else {
		complain(job, rank, status);
	}
	if (status == TUTTI_OK)
		_exit(ENDED_WELL);
	_exit(atomic_load(&shared->is_killing) ? LOST_A_PEER : ENDED_WRONG);
}

static void keep_calm(tutti_comm *comm, void *arg)
{
	struct toy toy;

	make_toy(&toy, comm, TUTTI_DDP);
	CHECK(read_values(&toy, shared->values[0]) == TUTTI_OK);
	for (int step = 0; step < atomic_load(&shared->calm_steps); step++) {
		CHECK(toy_step(&toy, step, SAMPLES) == TUTTI_OK);
		CHECK(read_values(&toy, shared->values[step + 1]) == TUTTI_OK);
	}
	toy_destroy(&toy);
}

struct running {
	struct job job;
	pid_t ranks[MOST_RANKS];
	bool is_killed[MOST_RANKS];
	int in;
};

static void start(struct running *running, int number, int ranks, int64_t steps)
{
	int pipes[2];

	memset(running, 0, sizeof *running);
	assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
	running->in = pipes[0];
	running->job.out = pipes[1];
	running->job.ranks = ranks;
	snprintf(running->job.url, sizeof running->job.url, "file://%s/join.%d", dir, number);
	for (int r = 0; r < ranks; r++) {
		running->ranks[r] = fork();
		assert_true(running->ranks[r] >= 0);
		if (running->ranks[r] == 0) {
			close(pipes[0]);
			be_rank(&running->job, r, steps);
		}
	}
	close(pipes[1]);
}

/* Waits for so many reports of all ranks together. */
static void listen(const struct running *running, int words)
{
	int64_t word;

	for (int i = 0; i < words; i++) {
		struct pollfd ready = {.fd = running->in, .events = POLLIN};
		assert_int_equal(poll(&ready, 1, GRACE_MS), 1);
		assert_int_equal(read(running->in, &word, sizeof word), sizeof word);
	}
}

static void kill_rank(struct running *running, int rank)
{
	assert_int_equal(kill(running->ranks[rank], SIGKILL), 0);
	running->is_killed[rank] = true;
}

/* A rank that is killed later may have failed first, because a peer was gone. */
static bool ended_as_expected(const struct running *running, int rank, int how)
{
	int expected = atomic_load(&shared->is_killing) ? LOST_A_PEER : ENDED_WELL;

	if (WIFSIGNALED(how))
		return running->is_killed[rank] && WTERMSIG(how) == SIGKILL;
	return WIFEXITED(how) && WEXITSTATUS(how) == expected;
}

static void reap(struct running *running)
{
	for (int r = 0; r < running->job.ranks; r++) {
		int how;
		assert_int_equal(waitpid(running->ranks[r], &how, 0), running->ranks[r]);
		if (!ended_as_expected(running, r, how))
			fail_msg("rank %d of %d ended with %#x", r, running->job.ranks,
				 (unsigned)how);
	}
	close(running->in);
}

/* Kills at any moment: of joining, loading, a step, a save. Ranks wait for one that has not joined,
 * so then all are killed. */
static void disturb(struct running *running, unsigned *seed)
{
	int ranks = running->job.ranks, words = rand_r(seed) % (8 * ranks);
	struct timespec moment = {.tv_nsec = rand_r(seed) % (words == 0 ? 20000000 : 3000000)};
	int victim = rand_r(seed) % (2 * ranks);

	listen(running, words);
	nanosleep(&moment, NULL);
	atomic_store(&shared->is_killing, 1);
	for (int r = 0; r < ranks; r++)
		if (words == 0 || victim >= ranks || victim == r)
			kill_rank(running, r);
	reap(running);
	atomic_store(&shared->is_killing, 0);
}

/* The checkpoint that the next job would find. Others are removed. */
static void look(int round)
{
	struct checkpoint_found found;
	struct checkpoint_name *names;
	size_t count;

	assert_int_equal(checkpoint_dir_find(&found, dir), TUTTI_OK);
	if (found.passed_over)
		fail_msg("round %d: %s", round, found.message);
	assert_true(found.step >= atomic_load(&shared->committed));
	assert_int_equal(checkpoint_names(&names, &count, dir), TUTTI_OK);
	for (size_t i = 0; i < count; i++) {
		char name[CHECKPOINT_NAME_BYTES], path[200];
		checkpoint_name_print(name, names[i]);
		snprintf(path, sizeof path, "%s/%s", dir, name);
		if (names[i].step < found.step)
			checkpoint_remove(path);
	}
	free(names);
}

static unsigned number_of(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);
	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void killed(void **state)
{
	unsigned seed = number_of("TEST_SEED", (unsigned)time(NULL) ^ (unsigned)getpid());
	int kills = (int)number_of("KILLS", KILLS), ranks = 3, unfinished = 0;
	struct running running;

	print_message("TEST_SEED=%u KILLS=%d\n", seed, kills);
	saved_folder(dir);
	atomic_store(&shared->committed, -1);
	atomic_store(&shared->calm_steps, kills * 100 < MOST_STEPS ? kills * 100 : MOST_STEPS);
	assert_int_equal(ranks_as_processes(1, keep_calm, NULL), 0);
	for (int round = 0; round < kills; round++) {
		start(&running, round, ranks, 0);
		disturb(&running, &seed);
		unfinished += saved_count(dir, ".step_") > 0;
		look(round);
		ranks = 2 + (ranks - 1 + rand_r(&seed) % 2) % 3; /* another number of them */
	}
	print_message("%d of %d were killed in the middle of a save, at step %lld at the end\n",
		      unfinished, kills, (long long)atomic_load(&shared->committed));
	start(&running, kills, ranks, LAST_STEPS);
	reap(&running);
	look(kills);
	assert_int_equal(saved_count(dir, ".step_"), 0);
	saved_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed),
	};
	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
