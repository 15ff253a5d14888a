/* Would break: in a container with a limit of memory we would take what the machine has, and the
 * kernel would end the job for it. The files of /proc and /sys are made up. */
#include "core/memory_left.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/unit.h"

#define MB (UINT64_C(1) << 20)

static char root[64];

static int set_up(void **state)
{
	snprintf(root, sizeof root, "/tmp/tutti-memory-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
	char command[128];

	snprintf(command, sizeof command, "rm -r %s", root);
	return system(command);
}

/* A file below root, and the directories around it. */
static void put(const char *name, const char *text)
{
	char path[256];
	size_t at = strlen(root);

	snprintf(path, sizeof path, "%s/%s", root, name);
	for (char *slash = path + at; slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void put_machine(void)
{
	put("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\n");
}

static void it_is_the_machines(void **state)
{
	assert_int_equal(memory_left(root), UINT64_MAX);
	put_machine();
	assert_int_equal(memory_left(root), 8 * MB);
	put("proc/self/cgroup", "0::/\n");
	assert_int_equal(memory_left(root), 8 * MB);
	put("proc/self/cgroup", "nonsense\n1:\n2:cpu\n0::/a/b\n");
	put("sys/fs/cgroup/a/b/memory.max", "max\n");
	put("sys/fs/cgroup/a/b/memory.current", "4096\n");
	put("sys/fs/cgroup/a/memory.max", "1048576\n"); /* and no memory.current */
	assert_int_equal(memory_left(root), 8 * MB);
}

/* What files in memory take is given back; other groups' limits are others'. */
static void a_group_has_less(void **state)
{
	put_machine();
	put("proc/self/cgroup", "0::/a/b\n");
	put("sys/fs/cgroup/a/b/memory.max", "7340032\n");
	put("sys/fs/cgroup/a/b/memory.current", "5242880\n");
	put("sys/fs/cgroup/c/memory.max", "0\n");
	put("sys/fs/cgroup/c/memory.current", "0\n");
	assert_int_equal(memory_left(root), 2 * MB);
	put("sys/fs/cgroup/a/b/memory.stat", "anon 1\nactive_file 7\ninactive_file 1048576\n");
	assert_int_equal(memory_left(root), 3 * MB);
	put("sys/fs/cgroup/a/memory.max", "4194304\n");
	put("sys/fs/cgroup/a/memory.current", "3145728\n");
	assert_int_equal(memory_left(root), MB);
	put("sys/fs/cgroup/memory.max", "4194304\n");
	put("sys/fs/cgroup/memory.current", "9000000\n");
	assert_int_equal(memory_left(root), 0);
}

/* The first version; a container that sees its own group as the base, whatever its name is. */
static void the_first_version_too(void **state)
{
	put_machine();
	put("proc/self/cgroup", "4:memory:/docker/1234\n3:cpuset:/\n0::/\n");
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n");
	assert_int_equal(memory_left(root), 8 * MB);
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "4194304\n");
	put("sys/fs/cgroup/memory/memory.stat",
	    "inactive_file 4\ntotal_rss 8\ntotal_inactive_file 524288\n");
	assert_int_equal(memory_left(root), 3 * MB + MB / 2);
}

/* What it says here is no more than the machine has. */
static void it_is_here(void **state)
{
	assert_true(memory_left("") > 0);
	assert_true(memory_left("") < UINT64_C(1) << 50);
}

#define left_test(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		left_test(it_is_the_machines),
		left_test(a_group_has_less),
		left_test(the_first_version_too),
		left_test(it_is_here),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
