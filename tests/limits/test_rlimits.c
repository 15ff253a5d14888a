/* slow: 3 s */
/* Breaks when a machine that is short of something crashes a rank or makes it hang, or makes ranks
 * fail that could do without: descriptors (ulimit -n), locked memory, address space, the length of
 * files, memory files that a filter refuses, a /dev/shm that is tiny. */
#include "core/clock.h"
#include "tests/limits/ranks.h"
#include "tests/own_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

struct limited {
	int resource, victim; /* -1: all ranks */
	rlim_t limit;
	bool is_relative; /* descriptors beside those that are open already */
};

/* The limit that leaves so many: it bounds their numbers, and the process that started this one may
 * have left any open. */
static rlim_t room_for(rlim_t more)
{
	int fd = 0;

	for (;; fd++) {
		bool is_free = fcntl(fd, F_GETFD) < 0;
		if (is_free && more == 0)
			return (rlim_t)fd;
		more -= is_free;
	}
}

static void shorten(int rank, void *arg)
{
	const struct limited *s = arg;
	struct rlimit limit;

	if (s->victim >= 0 && s->victim != rank)
		return;
	if (getrlimit(s->resource, &limit) != 0)
		_exit(1);
	limit.rlim_cur = s->limit;
	if (s->is_relative)
		limit.rlim_cur = room_for(s->limit);
	if (setrlimit(s->resource, &limit) != 0)
		_exit(1);
}

static const struct outcome *run(struct scene *scene, const char *what)
{
	const struct outcome *outcomes;

	if (!scene->timeout_ms)
		scene->timeout_ms = 15000;
	scene->first = true;
	outcomes = ranks_run(scene);
	ranks_expect_decent(outcomes, scene->size, what);
	return outcomes;
}

static void expect_well(struct scene *scene, const char *what)
{
	const struct outcome *outcomes = run(scene, what);

	for (int r = 0; r < scene->size; r++)
		if (!outcomes[r].was_started || outcomes[r].job.where)
			fail_msg("%s: rank %d: %s: %s", what, r, outcomes[r].job.where,
				 outcomes[r].job.error);
}

/* Some number is enough; with every one below it all ranks fail at once, with a message that says
 * so. Without a single one a rank has no way to the others: these could but wait. */
static void descriptors_of(struct scene scene, int victim)
{
	struct limited limited = {RLIMIT_NOFILE, victim, victim > 0 ? 1 : 0, true};
	char what[100];
	int enough = 0;

	scene.prepare = shorten;
	scene.arg = &limited;
	scene.timeout_ms = 86400000; /* a rank that needs it hangs: RANKS_ALARM_S ends it */
	for (; limited.limit < 80 && enough < 3; limited.limit++) {
		const struct outcome *outcomes;
		bool is_well;
		snprintf(what, sizeof what, "%d descriptors for rank %d of %d", (int)limited.limit,
			 victim, scene.size);
		outcomes = run(&scene, what);
		is_well = ranks_all_well(outcomes, scene.size);
		enough = is_well ? enough + 1 : 0;
		bool is_said = is_well;
		for (int r = 0; r < scene.size && !is_well; r++)
			is_said |= strstr(outcomes[r].job.error, "ulimit -n") != NULL;
		if (!is_said)
			fail_msg("%s: nobody speaks of the limit: %s", what, outcomes[0].job.error);
	}
	print_message("rank %d of %d, %s: %d descriptors are enough\n", victim, scene.size,
		      scene.transports ? scene.transports : "all", (int)limited.limit - 3);
	assert_int_equal(enough, 3);
}

static void few_descriptors(void **state)
{
	descriptors_of((struct scene){.size = 2, .window = true}, -1);
	descriptors_of((struct scene){.size = 2, .window = true}, 0);
	descriptors_of((struct scene){.size = 4, .window = true}, 2);
	descriptors_of((struct scene){.size = 3, .transports = "shm"}, 0);
	descriptors_of((struct scene){.size = 3, .transports = "shm"}, 1);
	descriptors_of((struct scene){.size = 2, .transports = "tcp"}, -1);
	if (!getenv("LIMITS_ALL"))
		return;
	descriptors_of((struct scene){.size = 3, .transports = "tcp"}, 0);
	descriptors_of((struct scene){.size = 4, .transports = "tcp"}, 3);
}

/* Nothing of ours is locked, and what is too long for a file goes by another way. */
static void other_limits(void **state)
{
	struct limited none_locked = {RLIMIT_MEMLOCK, -1, 0, false};
	struct limited no_files = {RLIMIT_FSIZE, 0, 1000, false};
	struct scene scene = {.size = 3, .window = true, .prepare = shorten, .arg = &none_locked};

	expect_well(&scene, "no locked memory");
	scene.arg = &no_files;
	expect_well(&scene, "no long files of rank 0");
	scene.window = false;
	expect_well(&scene, "no long files of rank 0, messages");
	no_files.victim = -1;
	expect_well(&scene, "no long files, messages");
	scene.transports = "tcp";
	expect_well(&scene, "no long files, tcp");
}

#ifndef __SANITIZE_ADDRESS__
#ifndef __SANITIZE_THREAD__
#define MAY_LIMIT_ADDRESSES 1
#endif
#endif

/* In bytes of address space, from too little to enough. */
static void little_address_space(void **state)
{
#ifdef MAY_LIMIT_ADDRESSES
	struct limited limited = {RLIMIT_AS, 1, 0, false};
	struct scene scene = {.size = 2, .prepare = shorten, .arg = &limited};

	for (int i = 0; i < 2; i++) {
		scene.window = i == 0;
		for (rlim_t mib = 12; mib < 400; mib += mib / 3) {
			char what[60];
			limited.limit = mib << 20;
			snprintf(what, sizeof what, "%d MiB of address space", (int)mib);
			run(&scene, what);
		}
	}
#else
	skip_because("ASan's shadow takes all address space");
#endif
}

/* As a container's filter does: memfd_create is refused. */
static void refuse_memory_files(int rank, void *arg)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof code / sizeof *code, code};
	int victim = *(int *)arg;

	if (victim >= 0 && victim != rank)
		return;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		_exit(1);
}

static void no_memory_files(void **state)
{
	int victim;
	struct scene scene = {.size = 3, .prepare = refuse_memory_files, .arg = &victim};
	const struct outcome *outcomes;

	for (victim = -1; victim < scene.size; victim++) {
		scene.window = true;
		expect_well(&scene, "no memory files");
		scene.window = false;
		expect_well(&scene, "no memory files, messages");
	}
	victim = -1;
	scene.transports = "shm";
	outcomes = run(&scene, "no memory files, and nothing but shm");
	for (int r = 0; r < scene.size; r++)
		assert_int_equal(outcomes[r].job.status, TUTTI_ERR_UNSUPPORTED);
}

/* A namespace of its own in which /dev/shm has one page. Nothing of ours is there at all. */
static void a_tiny_dev_shm(void **state)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct scene scene = {.size = 2, .window = true};
		if ((!own_mounts() && (unshare(CLONE_NEWUSER) != 0 || !own_mounts())) ||
		    !own_folder("/dev/shm", "size=4096"))
			_exit(77);
		expect_well(&scene, "a tiny /dev/shm");
		scene.window = false;
		expect_well(&scene, "a tiny /dev/shm, messages");
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip_because("mounts of one's own need root, or namespaces for users");
	assert_int_equal(status, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_descriptors),      cmocka_unit_test(other_limits),
		cmocka_unit_test(little_address_space), cmocka_unit_test(no_memory_files),
		cmocka_unit_test(a_tiny_dev_shm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
