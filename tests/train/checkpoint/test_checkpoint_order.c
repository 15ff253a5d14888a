/* no_tsan: it has one thread */
/* What would break: a checkpoint that a crash of the machine destroys. Data and folders are on the
 * disk only after a sync. This test remembers what was written and not synced, and checks it when a
 * folder gets its final name and when one is removed. */
#include "tests/train/saved.h"

#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit.h"

enum { MOST_DIRTY = 200, RANKS = 3 };

static char dir[64];

static ino_t dirty[MOST_DIRTY];
static int dirty_count, names_given, removed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int place_of(ino_t inode)
{
	for (int i = 0; i < dirty_count; i++)
		if (dirty[i] == inode)
			return i;
	return -1;
}

static bool is_dirty(const char *path)
{
	struct stat about;

	assert_int_equal(stat(path, &about), 0);
	pthread_mutex_lock(&lock);
	bool is_there = place_of(about.st_ino) >= 0;
	pthread_mutex_unlock(&lock);
	return is_there;
}

/* Also called by the thread that writes, which cannot use cmocka's assertions. */
static void set_dirty(const struct stat *about)
{
	pthread_mutex_lock(&lock);
	if (place_of(about->st_ino) < 0) {
		if (dirty_count == MOST_DIRTY)
			abort();
		dirty[dirty_count++] = about->st_ino;
	}
	pthread_mutex_unlock(&lock);
}

static void set_clean(const struct stat *about)
{
	pthread_mutex_lock(&lock);
	int place = place_of(about->st_ino);
	if (place >= 0)
		dirty[place] = dirty[--dirty_count];
	pthread_mutex_unlock(&lock);
}

static void written(int fd)
{
	struct stat about;

	if (fstat(fd, &about) != 0)
		abort();
	set_dirty(&about);
}

/* The folder of path has changed. */
static void named(const char *path)
{
	char *copy = strdup(path);
	struct stat about;

	if (!copy || stat(dirname(copy), &about) != 0)
		abort();
	set_dirty(&about);
	free(copy);
}

static bool is_found_by(const char *path)
{
	const char *name = strrchr(path, '/');
	return name && strncmp(name, "/step_", 6) == 0;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, mode_t mode);
ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at);
int __real_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes);
int __real_fallocate(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_rmdir(const char *path);
int __wrap_rmdir(const char *path);

int __wrap_open(const char *path, int flags, mode_t mode)
{
	int fd = __real_open(path, flags, mode);

	if (fd >= 0 && flags & O_CREAT) {
		named(path);
		written(fd);
	}
	return fd;
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
	ssize_t n = __real_pwrite(fd, data, bytes, at);
	written(fd);
	return n;
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes)
{
	int result = __real_fallocate(fd, mode, at, bytes);

	written(fd);
	return result;
}

int __wrap_ftruncate(int fd, off_t bytes)
{
	int result = __real_ftruncate(fd, bytes);
	written(fd);
	return result;
}

int __wrap_fsync(int fd)
{
	struct stat about;
	int result = __real_fsync(fd);

	if (fstat(fd, &about) != 0)
		abort();
	if (result == 0)
		set_clean(&about);
	return result;
}

int __wrap_mkdir(const char *path, mode_t mode)
{
	int result = __real_mkdir(path, mode);
	if (result == 0)
		named(path);
	return result;
}

/* A checkpoint that gets its final name must be whole, and on the disk. */
static void check_whole(const char *path)
{
	struct checkpoint_index index;
	DIR *folder = opendir(path);

	assert_non_null(folder);
	if (is_dirty(path))
		fail_msg("'%s' gets its name before what is in it has its own for good", path);
	for (struct dirent *entry; (entry = readdir(folder));) {
		char file[400];
		snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
		if (entry->d_name[0] != '.' && is_dirty(file))
			fail_msg("'%s' is not on the disk when its folder gets its name", file);
	}
	closedir(folder);
	if (checkpoint_dir_read(&index, path) != TUTTI_OK)
		fail_msg("not whole when it gets its name: %s", tutti_comm_error(NULL));
	checkpoint_index_finish(&index);
}

int __wrap_rename(const char *from, const char *to)
{
	if (is_found_by(to)) {
		check_whole(from);
		names_given++;
	}
	int result = __real_rename(from, to);
	if (result == 0)
		named(to);
	return result;
}

/* An older one of the same step is removed after the newer one's name is on the disk. */
int __wrap_rmdir(const char *path)
{
	if (is_found_by(path)) {
		if (is_dirty(dir))
			fail_msg("'%s' is removed before what takes its place is there for good",
				 path);
		removed++;
	}
	return __real_rmdir(path);
}

/* ---- */
static void on_the_disk(void **state)
{
	const struct saving saving = {
		.dir = dir, .step = 5, .ranks = RANKS, .piece_bytes = 4096, .portion = 1000};
	char above[64];

	saved_folder(dir);
	strcpy(above, dir);
	strcat(dir, "/new"); /* made by the first save */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(saved_write(&saving), TUTTI_OK);
		assert_false(is_dirty(dir)); /* the name survives a crash */
		assert_int_equal(names_given, i + 1);
		assert_int_equal(removed, i);
	}
	assert_int_equal(saved_count(dir, "step_"), 1);
	assert_false(is_dirty(above));
	saved_remove(above);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(on_the_disk),
	};
	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
