/* Would break: coming together: wrong connections, a rank that does not come, what is left
 * behind, a wait without a word, a machine with next to no /dev/shm. */
#include "window_team.h"

#include "collectives/window/window_join.h"
#include "core/clock.h"
#include "core/long_wait.h"
#include "core/status.h"
#include "tests/limit.h"
#include "tests/entries.h"
#include "tests/own_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

static struct window_config config(const uint64_t *id, int rank, int size)
{
	return (struct window_config){
		rank, size, {id[0], id[1]}, 1u << 20, wait_policy_on(size, wait_cores()),
		true, 0,    wait_cores(),   NULL};
}

static pid_t start(void (*other)(const uint64_t *id, int rank), const uint64_t *id, int rank)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		test_limit(100);
		other(id, rank);
		_exit(0);
	}
	return pid;
}

static int end(pid_t pid)
{
	int status = -1;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void barrier_of_two(const uint64_t *id, int rank)
{
	struct window_config c = config(id, rank, 2);
	struct call_args args = {.collective = COLL_BARRIER, .fingerprint = 1};
	struct window *window;

	team_check(window_join(&window, &c, deadline_after_ms(60000), NULL, NULL) == TUTTI_OK, "%s",
		   last_error());
	team_check(team_drive(window, &args) == TUTTI_OK, "%s", last_error());
	window_destroy(window);
}

/* Connects to the listener of the window of id, again until it is there. */
static int connect_to(const uint64_t *id)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char name[64];
	socklen_t length;

	window_socket_name(name, sizeof name, id);
	memcpy(address.sun_path + 1, name, strlen(name));
	length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	while (connect(fd, (struct sockaddr *)&address, length) != 0)
		sched_yield();
	return fd;
}

/* Connections that send nothing, nonsense, or close do not disturb. Killed: the check of the magic
 * or of the communicator's id in take_hello; reading a hello where it may block. */
static void test_wrong_connections(void **state)
{
	uint64_t id[2] = {clock_now_ns(), (uint64_t)getpid()};
	pid_t leader = start(barrier_of_two, id, 0), other;
	char junk[200] = {1, 2, 3};
	int silent, talker, leaver;

	test_limit(100);
	silent = connect_to(id);
	talker = connect_to(id);
	assert_int_equal(send(talker, junk, sizeof junk, MSG_NOSIGNAL), sizeof junk);
	leaver = connect_to(id);
	close(leaver);
	/* The nonsense is answered with a closed connection. */
	assert_true(recv(talker, junk, sizeof junk, 0) <= 0);
	other = start(barrier_of_two, id, 1);
	assert_int_equal(end(leader), 0);
	assert_int_equal(end(other), 0);
	close(silent);
	close(talker);
	test_limit(0);
}

/* Each look of a rank that waits is a long wait; what it said is of its thread. */
static _Thread_local char said[200];

bool __wrap_long_wait_is_due(struct long_wait *wait, uint64_t now_ns);
void __wrap_long_wait_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

bool __wrap_long_wait_is_due(struct long_wait *wait, uint64_t now_ns)
{
	(void)wait;
	(void)now_ns;
	return true;
}

void __wrap_long_wait_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(said, sizeof said, format, args);
	va_end(args);
}

static bool has_said(void *what)
{
	return strcmp(said, what) == 0;
}

static void waits_for(const uint64_t *id, int rank, char *what)
{
	struct window_config c = config(id, rank, 3);
	struct window *window;

	team_check(window_join(&window, &c, deadline_after_ms(60000), has_said, what) ==
			   TUTTI_ERR_UNSUPPORTED,
		   "joined alone");
	team_check(has_said(what), "said '%s'", said);
}

static void leads(const uint64_t *id, int rank)
{
	struct window_config c = config(id, rank, 3);
	struct window *window;
	char what[] = "rank 1 of the node's 3 to share memory";

	waits_for(id, rank, what);
	team_check(window_join(&window, &c, deadline_after_ms(0), NULL, NULL) ==
			   TUTTI_ERR_UNSUPPORTED,
		   "joined alone");
	team_check(strstr(last_error(), "2 of 3 ranks did not come"), "%s", last_error());
}

static void follows(const uint64_t *id, int rank)
{
	struct window_config c = config(id, rank, 3);
	struct window *window;

	team_check(window_join(&window, &c, deadline_after_ms(60000), NULL, NULL) ==
			   TUTTI_ERR_UNSUPPORTED,
		   "joined alone");
	team_check(strstr(last_error(), "shares no memory"), "%s", last_error());
}

static void has_no_leader(const uint64_t *id, int rank)
{
	char what[] = "rank 0 of the node's 3 to share memory";

	waits_for(id, rank, what);
}

static void test_missing_rank(void **state)
{
	uint64_t id[2] = {clock_now_ns(), (uint64_t)getpid() + 1};
	pid_t leader = start(leads, id, 0), other = start(follows, id, 2);

	assert_int_equal(end(leader), 0);
	assert_int_equal(end(other), 0);
	id[0]++;
	assert_int_equal(end(start(has_no_leader, id, 1)), 0);
}

static void test_too_little_room(void **state)
{
	struct window_config c = {0,    300, {1, 2}, 65536, {.yields = 20, .shares_cores = true},
				  true, 0,   1,      NULL};
	struct window *window[300];

	assert_int_equal(window_join_all(window, &c, 300), TUTTI_ERR_UNSUPPORTED);
	assert_non_null(strstr(last_error(), "TUTTI_WINDOW_BYTES=65536"));
}

/* Has a descriptor for its listener, and none for those that connect. */
static void poor_leader(const uint64_t *id, int rank)
{
	struct window_config c = config(id, rank, 3);
	struct window *window;
	int refusal = -1, next = dup(0);
	struct rlimit limit = {(rlim_t)next + 1, (rlim_t)next + 1};

	close(next);
	team_check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
	c.refusal = &refusal;
	team_check(window_join(&window, &c, deadline_after_ms(90000), NULL, NULL) ==
			   TUTTI_ERR_UNSUPPORTED,
		   "joined nobody");
	team_check(strstr(last_error(), "Too many open files") != NULL, "%s", last_error());
	team_check(refusal == next, "nobody is told");
	raise(SIGSTOP);
}

static void turned_away(const uint64_t *id, int rank)
{
	struct window_config c = config(id, rank, 3);
	struct window *window;

	team_check(window_join(&window, &c, deadline_after_ms(90000), NULL, NULL) ==
			   TUTTI_ERR_UNSUPPORTED,
		   "joined nobody");
	team_check(strstr(last_error(), rank == 1 ? "the other end" : "has given up") != NULL, "%s",
		   last_error());
}

/* A leader that cannot make a window is not waited for, by who comes before and after. */
static void test_poor_leader(void **state)
{
	uint64_t id[2] = {clock_now_ns(), (uint64_t)getpid() + 3};
	pid_t early = start(turned_away, id, 1), leader = start(poor_leader, id, 0), late;
	int status;

	assert_int_equal(waitpid(leader, &status, WUNTRACED), leader);
	assert_true(WIFSTOPPED(status));
	late = start(turned_away, id, 2);
	assert_int_equal(end(early), 0);
	assert_int_equal(end(late), 0);
	kill(leader, SIGCONT);
	assert_int_equal(end(leader), 0);
}

static void hang_around(const uint64_t *id, int rank)
{
	struct window_config c = config(id, rank, 2);
	struct window *window;

	team_check(window_join(&window, &c, deadline_after_ms(60000), NULL, NULL) == TUTTI_OK, "%s",
		   last_error());
	team_alloc(window, 1u << 20)[0] = 1;
	kill(getpid(), SIGKILL);
}

static void test_nothing_is_left(void **state)
{
	uint64_t id[2] = {clock_now_ns(), (uint64_t)getpid() + 2};
	int before = entries_of("/dev/shm"), files = open_descriptors();
	pid_t leader = start(hang_around, id, 0), other = start(hang_around, id, 1);
	struct team team = {.size = 4};
	struct window *windows[4];

	assert_true(WIFSIGNALED(end(leader)));
	assert_true(WIFSIGNALED(end(other)));
	/* Windows of this process give their descriptors back. */
	team_open(&team, windows);
	team_close(windows, 4);
	assert_int_equal(open_descriptors(), files);
	assert_true(entries_of("/dev/shm") <= before);
}

struct member {
	const uint64_t *id;
	int rank;
	struct window *window;
	pthread_t thread;
};

static void *join_and_meet(void *arg)
{
	struct member *l = arg;
	struct window_config c = config(l->id, l->rank, 4);
	struct call_args args = {.collective = COLL_BARRIER, .fingerprint = 1};

	team_check(window_join(&l->window, &c, deadline_after_ms(60000), NULL, NULL) == TUTTI_OK,
		   "%s", last_error());
	team_check(team_drive(l->window, &args) == TUTTI_OK, "%s", last_error());
	return NULL;
}

/* One mapping for both, who watch the other process and not their own. */
static void two_in_one_process(const uint64_t *id, int first)
{
	struct member members[2];
	int files = open_descriptors();

	for (int i = 0; i < 2; i++) {
		members[i] = (struct member){.id = id, .rank = first + i};
		team_check(pthread_create(&members[i].thread, NULL, join_and_meet, &members[i]) ==
				   0,
			   "a thread");
	}
	for (int i = 0; i < 2; i++)
		pthread_join(members[i].thread, NULL);
	const struct segment *s = members[0].window->segment;
	team_check(members[1].window->segment == s, "two mappings in one process");
	for (int rank = 0; rank < 4; rank++) {
		bool is_own = rank / 2 == first / 2;
		team_check((s->pid_fds[rank] < 0) == is_own, "rank %d watches rank %d: %d", first,
			   rank, s->pid_fds[rank]);
	}
	/* The other process, and for each rank the way of memory. */
	int more = open_descriptors() - files;
	team_check(more == 1 + 2, "%d descriptors", more);
	window_destroy(members[0].window);
	window_destroy(members[1].window);
	team_check(open_descriptors() == files, "descriptors are left");
}

/* Killed: a mapping for each; the own process watched; the other one twice. */
static void test_two_in_one_process(void **state)
{
	uint64_t id[2] = {clock_now_ns(), (uint64_t)getpid() + 4};
	pid_t first = start(two_in_one_process, id, 0), second = start(two_in_one_process, id, 2);

	assert_int_equal(end(first), 0);
	assert_int_equal(end(second), 0);
}

static void with_small_shm(const uint64_t *id, int rank)
{
	(void)rank;
	if (!own_mounts() || !own_folder("/dev/shm", "size=1M"))
		_exit(77); /* not allowed here */
	pid_t other = fork();
	struct window_config c = config(id, other == 0, 2);
	struct window *window;
	c.window_bytes = 8u << 20;
	team_check(window_join(&window, &c, deadline_after_ms(60000), NULL, NULL) == TUTTI_OK, "%s",
		   last_error());
	memset(team_alloc(window, 8u << 20), 1, 8u << 20);
	struct call call = {COLL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, 2000000, 1};
	struct manner manner = {0};
	call_make(window, other == 0, 2, &call, &manner);
	window_destroy(window);
	if (other == 0)
		_exit(0);
	int status;
	waitpid(other, &status, 0);
	team_check(status == 0, "the member failed");
}

static void test_small_shm(void **state)
{
	uint64_t id[2] = {clock_now_ns(), (uint64_t)getpid() + 3};
	int status = end(start(with_small_shm, id, 0));

	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip_because(OWN_MOUNTS_WHY);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_connections),  cmocka_unit_test(test_missing_rank),
		cmocka_unit_test(test_too_little_room),    cmocka_unit_test(test_nothing_is_left),
		cmocka_unit_test(test_poor_leader),        cmocka_unit_test(test_small_shm),
		cmocka_unit_test(test_two_in_one_process),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
