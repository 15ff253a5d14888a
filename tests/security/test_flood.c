/* slow: 12 s */
/* Breaks when attackers at its doors can disturb a job: delay its joining beyond measure, change a
 * value, take its descriptors or memory, or make it talk. Ranks are processes; hundreds of
 * attackers come before, while and after they join. FLOOD_SEED repeats a run. */
#include "tests/limit.h"
#include "tests/security/flood.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"
#include "core/tls.h"
#include "tests/ports.h"
#include "tests/entries.h"
#include "tests/openssl.h"

#include <tutti/tutti.h>

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS_MOST   4
#define PORTS        8 /* in turn, since each join needs one that is free */
#define ROUNDS       30
#define JOIN_MS      20000 /* alone it takes some 50; with hundreds of attackers on two cores, too */
#define FIRST        200   /* attackers that are there before rank 1 comes   */
#define AT_LEAST     1000  /* ... and before the ranks leave for the last time */
#define GROWTH_BYTES (48u << 20)

struct scene {
	const char *name, *transports, *secret;
	int size;
	bool window, tls;
};

static uint64_t seed;
/* Shared with the ranks: there have been enough attackers. */
static atomic_int *is_enough;

static _Noreturn void give_up(int rank, const char *what)
{
	fprintf(stderr, "rank %d: %s: %s\n", rank, what, last_error());
	_exit(1);
}

static void need(int rank, bool is_so, const char *what)
{
	if (!is_so)
		give_up(rank, what);
}

static size_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long all = 0, resident = 0;

	if (fscanf(file, "%lu %lu", &all, &resident) != 2)
		resident = 0;
	fclose(file);
	return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void reduce_and_check(tutti_comm *comm, int rank, int round)
{
	static int64_t data[40000];
	int size = tutti_size(comm), me = tutti_rank(comm);
	size_t count = round % 3 ? (size_t)round * 7 + 1 : sizeof data / sizeof *data;
	tutti_status status;

	for (size_t i = 0; i < count; i++)
		data[i] = (int64_t)i * (me + 1) + round;
	status = tutti_all_reduce(data, data, count, TUTTI_I64, TUTTI_SUM, comm, NULL);
	need(rank, status == TUTTI_OK, "all_reduce");
	for (size_t i = 0; i < count; i++)
		need(rank, data[i] == (int64_t)i * size * (size + 1) / 2 + (int64_t)round * size,
		     "a wrong sum");
}

static void pass_on(tutti_comm *comm, int rank, int round)
{
	int size = tutti_size(comm), to = (rank + 1) % size, from = (rank + size - 1) % size;
	int64_t out = rank * 1000 + round, in = -1;
	tutti_status status;

	need(rank, tutti_group_begin() == TUTTI_OK, "group_begin");
	tutti_send(&out, 1, TUTTI_I64, to, comm, NULL);
	tutti_recv(&in, 1, TUTTI_I64, from, comm, NULL);
	status = tutti_group_end(NULL);
	need(rank, status == TUTTI_OK, "send and recv");
	need(rank, in == from * 1000 + round, "a wrong message");
}

static void split_and_use(tutti_comm *comm, int rank)
{
	tutti_comm *child = NULL;
	tutti_status status = tutti_comm_split(comm, rank % 2, rank, NULL, &child);

	need(rank, status == TUTTI_OK, "split");
	for (int round = 0; round < ROUNDS; round++)
		reduce_and_check(child, rank, round);
	tutti_comm_destroy(child);
}

/* Returns whether it is enough, as rank 0 sees it. */
static bool join_and_use(const struct scene *scene, int rank, int port)
{
	char where[64];
	tutti_config config = {.rank = rank,
			       .world_size = scene->size,
			       .rendezvous = where,
			       .secret = scene->secret,
			       .transports = scene->transports,
			       .timeout_ms = 60000};
	uint64_t begun_ns = clock_now_ns();
	tutti_comm *comm = NULL;
	tutti_status status;
	int32_t verdict;

	snprintf(where, sizeof where, "tcp://127.0.0.1:%d", port);
	status = tutti_init(&comm, &config);
	need(rank, status == TUTTI_OK, "init");
	need(rank,
	     clock_now_ns() - begun_ns <
		     (uint64_t)test_limit_stretched(JOIN_MS) * UINT64_C(1000000),
	     "it took too long");
	for (int round = 0; round < ROUNDS; round++) {
		reduce_and_check(comm, rank, round);
		pass_on(comm, rank, round);
	}
	split_and_use(comm, rank);
	verdict = atomic_load(is_enough);
	status = tutti_broadcast(&verdict, &verdict, 1, TUTTI_I32, 0, comm, NULL);
	need(rank, status == TUTTI_OK, "broadcast");
	tutti_comm_destroy(comm);
	return verdict != 0;
}

static bool is_bounded(size_t before)
{
	size_t now = resident_bytes();

#ifdef __SANITIZE_ADDRESS__ /* it keeps what was freed, and sees leaks itself */
	return now > 0 && before > 0;
#else
	return now < before + GROWTH_BYTES;
#endif
}

static _Noreturn void be_a_rank(const struct scene *scene, int rank, int port, int log_fd)
{
	int files;
	size_t bytes;

	test_limit(120);
	dup2(log_fd, STDERR_FILENO);
	setenv("TUTTI_LOG", "info", 1);
	setenv("TUTTI_WINDOW", scene->window ? "1" : "0", 1);
	setenv("TUTTI_TLS", scene->tls ? "1" : "0", 1);
	files = open_descriptors();
	join_and_use(scene, rank, port);
	bytes = resident_bytes();
	for (int i = 1; !join_and_use(scene, rank, port + i % PORTS); i++)
		;
	need(rank, open_descriptors() == files, "descriptors were left open");
	need(rank, is_bounded(bytes), "memory was left");
	_exit(0);
}

static pid_t start(const struct scene *scene, int rank, int port, int log_fd, struct flood *flood)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		flood_end(flood);
		be_a_rank(scene, rank, port, log_fd);
	}
	return pid;
}

/* Returns how many are left; *failed when one has ended badly. */
static int reap(pid_t *pids, int n, bool *failed)
{
	for (int i = 0; i < n; i++) {
		int status;
		if (waitpid(pids[i], &status, WNOHANG) != pids[i])
			continue;
		*failed |= status != 0;
		pids[i--] = pids[--n];
	}
	return n;
}

/* Of what the ranks have written, what attackers made them write. */
static int lines_about_attackers(int log_fd, bool shows)
{
	FILE *file = fdopen(log_fd, "r");
	char line[1200];
	int n = 0;

	rewind(file);
	while (fgets(line, sizeof line, file)) {
		n += strstr(line, "dropped a connection") || strstr(line, "refused the job");
		if (shows)
			fputs(line, stderr);
		if (strstr(line, "the flood's secret"))
			fail_msg("the log shows the secret: %s", line);
	}
	fclose(file);
	return n;
}

static void flood_job(const struct scene *scene)
{
	pid_t pids[RANKS_MOST];
	int port = test_ports(), started = 0, n = 0, lines, seconds;
	uint64_t begun_ns = clock_now_ns();
	int log_fd = memfd_create("the ranks' stderr", MFD_CLOEXEC);
	struct flood flood;
	bool failed = false;

	flood_begin(&flood, seed);
	atomic_store(is_enough, 0);
	while (started < scene->size || (n > 0 && !failed)) {
		/* Rank 0 is there for long before the others come. */
		if (started < scene->size && (started == 0 || flood_made(&flood) >= FIRST)) {
			pids[n++] = start(scene, started, port, log_fd, &flood);
			started++;
		}
		flood_step(&flood, pids, n);
		atomic_store(is_enough, flood_made(&flood) >= AT_LEAST);
		poll(NULL, 0, 1); /* they are to be many, but the ranks need the cores, too */
		n = reap(pids, n, &failed);
		if (failed)
			break;
	}
	for (int i = 0; i < n; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	flood_end(&flood);
	lines = lines_about_attackers(log_fd, failed);
	print_message("%s: %u attackers by tcp, %u by Unix sockets, %d lines of them; seed %" PRIu64
		      "\n",
		      scene->name, flood.tcp, flood.local, lines, seed);
	assert_false(failed);
	seconds = (int)((clock_now_ns() - begun_ns) / 1000000000u);
	assert_in_range(lines, 1, scene->size * (LOG_AT_ONCE + seconds + 1));
	for (int m = 0; m < MANNER_PASS; m++)
		assert_true(flood.made[m] > 0);
}

static const char secret[] = "the flood's secret";

static void a_job_with_a_window(void **state)
{
	flood_job(&(struct scene){"window", NULL, secret, 4, true, false});
}

static void a_job_over_tcp(void **state)
{
	flood_job(&(struct scene){"tcp", "tcp", secret, 3, false, false});
}

static void a_job_over_tls(void **state)
{
	if (!openssl_is_here())
		skip();
	flood_job(&(struct scene){"tls", "tcp", secret, 3, false, true});
}

static void a_job_over_shm(void **state)
{
	flood_job(&(struct scene){"shm", "shm", secret, 4, false, false});
}

/* Its ranks learn the key from rank 0's Unix socket. */
static void a_job_without_a_secret(void **state)
{
	flood_job(&(struct scene){"no secret", NULL, NULL, 2, true, false});
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_with_a_window),    cmocka_unit_test(a_job_over_tcp),
		cmocka_unit_test(a_job_over_tls),         cmocka_unit_test(a_job_over_shm),
		cmocka_unit_test(a_job_without_a_secret),
	};
	const char *given = getenv("FLOOD_SEED");

	is_enough = mmap(NULL, sizeof *is_enough, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (is_enough == MAP_FAILED)
		return 1;
	unsetenv("TUTTI_SECRET");
	unsetenv("TUTTI_SECRET_FILE");
	seed = given ? strtoull(given, NULL, 10) : clock_now_ns();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
