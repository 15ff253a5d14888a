/* What would break: a run that the kernel kills, or one that is refused where there is room: how
 * much memory is left is read wrongly. The files of the kernel are made up. */
#include "perf/ram.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/unit.h"

#define MIB 1048576.0

static char root[] = "/tmp/test_ram_XXXXXX";

static void put(const char *path, const char *text)
{
	char name[300];
	FILE *file;

	snprintf(name, sizeof name, "%s%s", root, path);
	for (char *slash = strchr(name + sizeof root, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(name, 0700);
		*slash = '/';
	}
	file = fopen(name, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void nobody_says(void **state)
{
	(void)state;
	assert_true(ram_left(root) == HUGE_VAL);
}

static void the_machine_alone(void **state)
{
	(void)state;
	put("/proc/meminfo", "MemTotal:   9000 kB\nMemFree:   10 kB\nMemAvailable:    8192 kB\n");
	assert_true(ram_left(root) == 8 * MIB);
	put("/proc/self/cgroup", "0::/a/b\n");
	assert_true(ram_left(root) == 8 * MIB);
}

static void the_tightest_group_counts(void **state)
{
	(void)state;
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/b/memory.current", "1048576\n");
	assert_true(ram_left(root) == 8 * MIB);
	put("/sys/fs/cgroup/a/memory.max", "4194304\n");
	put("/sys/fs/cgroup/a/memory.current", "3145728\n");
	assert_true(ram_left(root) == 1 * MIB);
	put("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 2097152\n");
	assert_true(ram_left(root) == 3 * MIB);
	put("/sys/fs/cgroup/a/memory.current", "5242880\n");
	put("/sys/fs/cgroup/a/memory.stat", "anon 5\n");
	assert_true(ram_left(root) == 0);
	put("/sys/fs/cgroup/a/memory.max", "41943040\n");
	assert_true(ram_left(root) == 8 * MIB);
}

static void groups_of_the_first_version(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "12:cpu,cpuacct:/a\n5:memory:/c\n1:name=systemd:/d\n0::/a/b\n");
	put("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "3145728\n");
	put("/sys/fs/cgroup/memory/c/memory.usage_in_bytes", "1048576\n");
	assert_true(ram_left(root) == 2 * MIB);
}

static void words(void **state)
{
	char text[RAM_TEXT];

	(void)state;
	assert_string_equal(ram_text(512, text), "512 B");
	assert_string_equal(ram_text(1536, text), "1.5 KiB");
	assert_string_equal(ram_text(60000.0 * 1024 * MIB, text), "58.6 TiB");
}

static void here_it_is_some(void **state)
{
	(void)state;
	assert_true(ram_left("") > MIB);
}

static int open_root(void **state)
{
	(void)state;
	return mkdtemp(root) ? 0 : -1;
}

static int close_root(void **state)
{
	char line[60];

	(void)state;
	snprintf(line, sizeof line, "rm -r %s", root);
	return system(line);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_says),
		cmocka_unit_test(the_machine_alone),
		cmocka_unit_test(the_tightest_group_counts),
		cmocka_unit_test(groups_of_the_first_version),
		cmocka_unit_test(words),
		cmocka_unit_test(here_it_is_some),
	};

	return cmocka_run_group_tests(tests, open_root, close_root);
}
