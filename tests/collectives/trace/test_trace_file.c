/* What would break: files of others. A device that a trace was written to and that is a file since,
 * a link that is none any more, a file that a link beside the trace's path led to; and a full disk
 * that nobody hears of; a trace that is refused because another thread has written one. */
#include "collectives/trace/trace_log.h"

#include "core/status.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/unit.h"

static char folder[] = "/tmp/test_trace_file.XXXXXX";

static tutti_status write_to(const char *path)
{
	struct trace_process process = {.pid = 4711, .host = "here"};
	return trace_write_file(path, &process, 1);
}

static mode_t type_of(const char *path)
{
	struct stat about;
	assert_int_equal(lstat(path, &about), 0);
	return about.st_mode & S_IFMT;
}

static void make_file(const char *path, const char *content)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(content, file);
	fclose(file);
}

static void read_file(const char *path, char *content, size_t bytes)
{
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	content[fread(content, 1, bytes - 1, file)] = '\0';
	fclose(file);
}

static void assert_trace(const char *path)
{
	char content[4096];
	read_file(path, content, sizeof content);
	assert_non_null(strstr(content, "4711"));
	assert_int_equal(content[strlen(content) - 2], '}');
}

/* The library's too. comes_first: before this look, and after an open that found nothing, there is
 * another's trace. */
static bool comes_first;

int lstat(const char *path, struct stat *about)
{
	if (comes_first)
		make_file(path, "another's");
	comes_first = false;
	return fstatat(AT_FDCWD, path, about, AT_SYMLINK_NOFOLLOW);
}

static int enter(void **state)
{
	strcpy(folder + sizeof folder - 7, "XXXXXX");
	return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int leave(void **state)
{
	char command[100];
	snprintf(command, sizeof command, "rm -rf '%s'", folder);
	return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

/* Nothing else is left in the folder. */
static void test_file(void **state)
{
	struct stat about;
	assert_int_equal(write_to("new"), TUTTI_OK);
	assert_trace("new");
	make_file("old", "old");
	assert_int_equal(chmod("old", 0640), 0);
	assert_int_equal(write_to("old"), TUTTI_OK);
	assert_trace("old");
	assert_int_equal(stat("old", &about), 0);
	assert_int_equal(about.st_mode & 0777, 0640);
	assert_int_equal(unlink("new") | unlink("old"), 0);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(rmdir(folder), 0);
	assert_int_equal(mkdir(folder, 0700), 0);
}

static void test_link(void **state)
{
	assert_int_equal(mkdir("sub", 0700), 0);
	make_file("sub/there", "old");
	assert_int_equal(symlink("sub/there", "link"), 0);
	assert_int_equal(write_to("link"), TUTTI_OK);
	assert_true(type_of("link") == S_IFLNK);
	assert_trace("sub/there");
	assert_int_equal(symlink("nowhere", "loose"), 0);
	assert_int_equal(write_to("loose"), TUTTI_ERR_SYSTEM);
	assert_non_null(strstr(last_error(), "loose"));
	assert_true(type_of("loose") == S_IFLNK);
}

/* Another thread writes the same new file at the same time. */
static void test_two_at_once(void **state)
{
	comes_first = true;
	assert_int_equal(write_to("new"), TUTTI_OK);
	assert_false(comes_first);
	assert_trace("new");
}

/* What others have put where the new file is written before it has its name. */
static void test_planted_link(void **state)
{
	char content[16];
	make_file("precious", "precious");
	assert_int_equal(symlink("precious", "trace.part"), 0);
	assert_int_equal(write_to("trace"), TUTTI_OK);
	assert_trace("trace");
	read_file("precious", content, sizeof content);
	assert_string_equal(content, "precious");
}

static void test_pipe(void **state)
{
	char content[4096];
	assert_int_equal(mkfifo("pipe", 0600), 0);
	int fd = open("pipe", O_RDONLY | O_NONBLOCK);
	assert_true(fd >= 0);
	assert_int_equal(write_to("pipe"), TUTTI_OK); /* it has room for so much */
	assert_true(type_of("pipe") == S_IFIFO);
	ssize_t n = read(fd, content, sizeof content - 1);
	assert_true(n > 0);
	content[n] = '\0';
	assert_non_null(strstr(content, "4711"));
	close(fd);
}

/* A device of our own with /dev/full's numbers: this one may be lost. */
static void test_full_device(void **state)
{
	int fd = -1;
	if (mknod("full", S_IFCHR | 0600, makedev(1, 7)) == 0)
		fd = open("full", O_WRONLY);
	if (fd < 0)
		skip_because("a device of one's own needs root");
	close(fd);
	assert_int_equal(symlink("full", "link"), 0);
	for (int i = 0; i < 2; i++) {
		const char *path = i ? "link" : "full";
		assert_int_equal(write_to(path), TUTTI_ERR_SYSTEM);
		assert_non_null(strstr(last_error(), "No space left on device"));
		assert_true(type_of("full") == S_IFCHR && type_of("link") == S_IFLNK);
	}
}

/* A failing communicator follows nothing that it finds where its trace belongs. */
static void test_failure(void **state)
{
	char name[64], content[16];
	make_file("precious", "precious");
	snprintf(name, sizeof name, "tutti-trace.%d.json", trace_first_rank());
	assert_int_equal(symlink("precious", name), 0);
	trace_dump_failure(".");
	read_file("precious", content, sizeof content);
	assert_string_equal(content, "precious");
	assert_true(type_of(name) == S_IFLNK);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(mkfifo(name, 0600), 0);
	trace_dump_failure("."); /* does not wait for somebody who reads it */
	assert_true(type_of(name) == S_IFIFO);
	assert_int_equal(unlink(name), 0);
	trace_dump_failure(".");
	assert_true(type_of(name) == S_IFREG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_file, enter, leave),
		cmocka_unit_test_setup_teardown(test_link, enter, leave),
		cmocka_unit_test_setup_teardown(test_two_at_once, enter, leave),
		cmocka_unit_test_setup_teardown(test_planted_link, enter, leave),
		cmocka_unit_test_setup_teardown(test_pipe, enter, leave),
		cmocka_unit_test_setup_teardown(test_full_device, enter, leave),
		cmocka_unit_test_setup_teardown(test_failure, enter, leave),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
