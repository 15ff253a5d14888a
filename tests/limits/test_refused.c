/* slow: 20 s */
/* Breaks when one request that the system refuses, memory, a descriptor, a mapping, a thread, room
 * in a file, makes a rank crash, leak, hang or fail without a word of what was lacking, or when the
 * other ranks hear of it only at their deadline. Of a whole job every request is refused in turn
 * (LIMITS_ALL=1), or each n-th one. */
#include "core/clock.h"
#include "tests/limit.h"
#include "tests/limits/ranks.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

#define NEVER_MS    86400000 /* threads that wait for this deadline hang       */
#define TIMEOUT_MS  30000    /* of processes, where a rank that is missing is waited for */
#define PROMPT_MS   20000    /* far from the deadline; on a busy machine more            */
#define THREADS     3
#define THREAD_RUNS 4  /* of each kind, when not all are tried     */
#define RUNS        1  /* ... and of each victim among processes   */
#define BEFORE      15 /* requests before ranks know of each other */
#define KEPT        4  /* blocks a rank, see struct job_of         */

static const struct {
	const char *name;
	const char *words[4]; /* one of which says what was lacking */
} kinds[SHIM_KINDS] = {
	{"memory", {"memory", "Cannot allocate memory"}},
	{"descriptor", {"ulimit -n", "Too many open files"}},
	{"mapping", {"Cannot allocate memory", "memory"}},
	{"thread", {"thread", "Resource temporarily unavailable"}},
	{"room", {"No space left"}},
};
static uint64_t random_state;

static long below(long n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (long)(random_state % (uint64_t)n);
}

/* All that is wrong is heard of, not only the first. */
static int complaints;
static char under_way[160];

static void __attribute__((format(printf, 1, 2))) complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	complaints++;
}

struct refusal {
	enum shim_kind kind;
	long number;
	int victim;
	bool lasts;
};

static void refuse(int rank, void *arg)
{
	const struct refusal *r = arg;

	if (rank == r->victim)
		shim_fail(r->kind, r->number, r->lasts);
}

static bool has_words(const struct job_of *job, enum shim_kind kind)
{
	for (int i = 0; i < 4 && kinds[kind].words[i]; i++)
		if (strstr(job->error, kinds[kind].words[i]))
			return true;
	return false;
}

/* What a rank that lacks nothing may say: which one has failed and what that lacked, or, where that
 * one had no way to say it any more, that it has left, gone, or never came. victim -1: any rank. */
static bool is_told(const struct job_of *job, enum shim_kind kind, int victim)
{
	static const char *const gone[] = {"has left the communicator",
					   "missing",
					   "left while",
					   "was lost",
					   "closed its connection",
					   "lost its connection",
					   "refuses the connection of"};
	char name[16];

	snprintf(name, sizeof name, "ank %d", job->in_child ? job->size - 1 - victim : victim);
	if (victim >= 0 && !strstr(job->error, name) && !strstr(job->error, "the meeting"))
		return false;
	for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
		if (strstr(job->error, gone[i]))
			return true;
	return has_words(job, kind);
}

/* The rank that was refused something says what it lacked; the others, which rank that is, and no
 * lies: nobody has died. victim -1: which one it was is not known, but one of them says it. */
static void judge_words(const struct job_of *const *all, int n, enum shim_kind kind, int victim,
			const char *what)
{
	bool is_said = false, has_failed = false;

	for (int r = 0; r < n; r++) {
		const struct job_of *job = all[r];
		if (!job->where)
			continue;
		has_failed = true;
		if (has_words(job, kind) && (victim < 0 || victim == r))
			is_said = true;
		else if (victim == r || !is_told(job, kind, victim) ||
			 strstr(job->error, "has died"))
			complain("%s: rank %d: %s failed: %s", what, r, job->where, job->error);
	}
	if (has_failed && !is_said)
		complain("%s: nobody says what was lacking", what);
}

/* Numbers to try of n: all, or some from a random one on. Returns the number after this one. */
static long next_number(long number, long n, long runs)
{
	long stride = getenv("LIMITS_ALL") ? 1 : n / runs + 1;

	return number < 0 ? below(stride) : number + stride;
}

static tutti_comm *comms[THREADS];
static struct job_of jobs[THREADS];

static void hung(int number)
{
	static const char says[] = " hangs\n";

	(void)number;
	if (!test_limit_is_over())
		return;
	if (write(2, under_way, strlen(under_way)) < 0 || write(2, says, sizeof says - 1) < 0)
		_exit(3);
	_exit(2);
}

static void *use(void *arg)
{
	struct job_of *job = arg;

	job_use(job, comms[job->rank]);
	tutti_comm_destroy(comms[job->rank]); /* the others may wait for who has failed by itself */
	return NULL;
}

/* Returns what init_all said. */
static tutti_status run_threads(const struct scene *scene, bool *failed)
{
	tutti_config config = {.transports = scene->transports, .timeout_ms = NEVER_MS};
	tutti_status status;
	pthread_t threads[THREADS];

	setenv("TUTTI_WINDOW", scene->window ? "1" : "0", 1);
	for (int r = 0; r < THREADS; r++)
		jobs[r] = (struct job_of){.rank = r, .size = THREADS};
	*failed = false;
	status = tutti_init_all(comms, THREADS, &config);
	if (status != TUTTI_OK) {
		jobs[0].where = "init_all";
		jobs[0].status = status;
		snprintf(jobs[0].error, sizeof jobs[0].error, "%s", tutti_comm_error(NULL));
		*failed = true;
		return status;
	}
	for (int r = 0; r < THREADS; r++)
		assert_int_equal(__real_pthread_create(&threads[r], NULL, use, &jobs[r]), 0);
	for (int r = 0; r < THREADS; r++) {
		pthread_join(threads[r], NULL);
		*failed |= jobs[r].where != NULL;
	}
	return TUTTI_OK;
}

/* False: no request had this number. */
static bool try_threads(const struct scene *scene, enum shim_kind kind, long number, bool lasts)
{
	const struct job_of *all[THREADS];
	int files = job_open_files();
	bool failed, was_refused;
	const char *only = getenv("LIMITS_ONLY"); /* "memory 141" */

	snprintf(under_way, sizeof under_way, "%s %ld%s of %d threads, %s%s", kinds[kind].name,
		 number, lasts ? " and after" : "", THREADS,
		 scene->transports ? scene->transports : "all transports",
		 scene->window ? ", window" : "");
	if (only && strncmp(under_way, only, strlen(only)) != 0)
		return true;
	test_limit(RANKS_ALARM_S);
	signal(SIGALRM, hung);
	uint64_t begun_ns = clock_now_ns();
	shim_fail(kind, number, lasts);
	run_threads(scene, &failed);
	was_refused = shim_stop();
	int ms = (int)((clock_now_ns() - begun_ns) / 1000000);
	test_limit(0);
	for (int r = 0; r < THREADS; r++) {
		if (getenv("LIMITS_SHOW"))
			print_message("%s: rank %d: %d ms: %s %s\n", under_way, r, ms,
				      jobs[r].where ? jobs[r].where : "well", jobs[r].error);
		if (jobs[r].wrong)
			complain("%s: rank %d has %d wrong values", under_way, r, jobs[r].wrong);
		all[r] = &jobs[r];
	}
	judge_words(all, THREADS, kind, -1, under_way);
	if (failed && !was_refused)
		complain("%s: failed by itself", under_way);
	if (job_open_files() > files)
		complain("%s: %d descriptors instead of %d", under_way, job_open_files(), files);
	if (shim_blocks() < 0 || shim_blocks() > KEPT * THREADS)
		complain("%s: %ld blocks are left", under_way, shim_blocks());
	return was_refused;
}

static void refuse_threads(struct scene scene)
{
	bool failed;

	complaints = 0;
	run_threads(&scene, &failed);
	assert_false(failed);
	for (int k = 0; k < SHIM_KINDS; k++) {
		enum shim_kind kind = (enum shim_kind)k;
		long before = shim_calls(kind), n, tried = 0;
		run_threads(&scene, &failed);
		assert_false(failed);
		n = shim_calls(kind) - before;
		for (long i = next_number(-1, n, THREAD_RUNS); i < n + 20;
		     i = next_number(i, n, THREAD_RUNS), tried++)
			if (!try_threads(&scene, kind, i, below(3) == 0) && i > n)
				break;
		print_message("%d threads, %s%s: of about %ld requests for %s %ld were refused\n",
			      THREADS, scene.transports ? scene.transports : "all",
			      scene.window ? ", window" : "", n, kinds[kind].name, tried);
	}
	signal(SIGALRM, SIG_DFL);
	assert_int_equal(complaints, 0);
}

static void of_threads_in_a_window(void **state)
{
	refuse_threads((struct scene){.window = true});
}

static void of_threads_over_tcp(void **state)
{
	refuse_threads((struct scene){.transports = "tcp"});
}

static void of_threads_over_shm(void **state)
{
	refuse_threads((struct scene){.transports = "shm"});
}

/* Until a rank has met the others these wait for it, up to their deadline. Not in a short test. */
static bool lets_wait(enum shim_kind kind, long number)
{
	return !getenv("LIMITS_ALL") && number < BEFORE &&
	       (kind == SHIM_MEMORY || kind == SHIM_DESCRIPTORS);
}

static void try_processes(struct scene *scene, struct refusal *refusal)
{
	const struct job_of *all[RANKS_MOST];
	const char *only = getenv("LIMITS_ONLY");
	char what[160];
	struct outcome *outcomes, *victim;

	scene->prepare = refuse;
	scene->arg = refusal;
	scene->first = refusal->victim == 0;
	scene->timeout_ms = TIMEOUT_MS;
	snprintf(what, sizeof what, "%s %ld%s of rank %d of %d, %s%s", kinds[refusal->kind].name,
		 refusal->number, refusal->lasts ? " and after" : "", refusal->victim, scene->size,
		 scene->transports ? scene->transports : "all transports",
		 scene->window ? ", window" : "");
	if (only && strncmp(what, only, strlen(only)) != 0)
		return;
	outcomes = ranks_run(scene);
	victim = &outcomes[refusal->victim];
	ranks_expect_decent(outcomes, scene->size, what);
	for (int r = 0; r < scene->size; r++)
		all[r] = &outcomes[r].job;
	judge_words(all, scene->size, refusal->kind, refusal->victim, what);
	if (!victim->was_refused && !ranks_all_well(outcomes, scene->size))
		complain("%s: failed by itself", what);
	for (int r = 0; r < scene->size; r++)
		if (outcomes[r].job.where && outcomes[r].ms > test_limit_stretched(PROMPT_MS) &&
		    !strstr(outcomes[r].job.error, "missing"))
			complain("%s: rank %d learnt of it after %d ms only: %s", what, r,
				 outcomes[r].ms, outcomes[r].job.error);
}

static void refuse_processes(struct scene scene)
{
	complaints = 0;
	for (int victim = 0; victim < 2; victim++) {
		struct refusal none = {.number = 1000000000, .victim = victim};
		scene.prepare = refuse;
		scene.arg = &none;
		scene.timeout_ms = TIMEOUT_MS;
		struct outcome all = ranks_run(&scene)[victim];
		for (int k = 0; k < SHIM_KINDS; k++) {
			long n = all.calls[k], tried = 0;
			for (long i = next_number(-1, n, RUNS); i < n;
			     i = next_number(i, n, RUNS)) {
				if (lets_wait((enum shim_kind)k, i))
					continue;
				tried++;
				struct refusal refusal = {(enum shim_kind)k, i, victim,
							  below(3) == 0};
				try_processes(&scene, &refusal);
			}
			print_message("%d ranks, %s%s: of %ld requests for %s of rank %d %ld were "
				      "refused\n",
				      scene.size, scene.transports ? scene.transports : "all",
				      scene.window ? ", window" : "", n, kinds[k].name, victim,
				      tried);
		}
	}
	assert_int_equal(complaints, 0);
}

static void of_processes_in_a_window(void **state)
{
	refuse_processes((struct scene){.size = 2, .window = true});
}

static void of_processes_over_tcp(void **state)
{
	refuse_processes((struct scene){.size = 2, .transports = "tcp"});
}

static void of_processes_over_shm(void **state)
{
	refuse_processes((struct scene){.size = 3, .transports = "shm"});
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_threads_in_a_window),
		cmocka_unit_test(of_threads_over_tcp),
		cmocka_unit_test(of_threads_over_shm),
		cmocka_unit_test(of_processes_in_a_window),
		cmocka_unit_test(of_processes_over_tcp),
		cmocka_unit_test(of_processes_over_shm),
	};
	const char *given = getenv("TEST_SEED");

	if (argc > 1)
		cmocka_set_test_filter(argv[1]); /* of_processes_over_shm, say */
	random_state = (given ? strtoull(given, NULL, 10) : clock_now_ns()) | 1;
	printf("TEST_SEED=%" PRIu64 "\n", random_state);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
