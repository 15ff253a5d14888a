/* Breaks when memory that a peer passed is believed to be as long as it says, when two mappings of
 * one memory differ in a process, or when a reader of published memory can write to it. */
#include "core/shared_memory.h"

#include "core/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/unit.h"

#define BYTES 10000

static const struct shared_memory_use twice = {.most_users = 2};

static void it_has_one_length_for_ever(void **state)
{
	int fd = -1;

	assert_int_equal(shared_memory_create("test", BYTES, &fd), TUTTI_OK);
	assert_int_equal(lseek(fd, 0, SEEK_END), BYTES);
	assert_int_not_equal(ftruncate(fd, BYTES - 1), 0);
	assert_int_not_equal(ftruncate(fd, BYTES + 1), 0);
	close(fd);
}

static void what_may_change_is_not_mapped(void **state)
{
	int loose = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct shared_memory *m = NULL;

	assert_int_equal(ftruncate(loose, BYTES), 0);
	assert_int_equal(shared_memory_open(&m, loose, BYTES, twice), TUTTI_ERR_MISMATCH);
	assert_int_equal(shared_memory_open(&m, file, 100, twice), TUTTI_ERR_MISMATCH);
	assert_int_equal(shared_memory_open(&m, -1, 100, twice), TUTTI_ERR_MISMATCH);
	assert_int_equal(fcntl(loose, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(shared_memory_open(&m, loose, BYTES, twice), TUTTI_ERR_MISMATCH);
	assert_int_equal(fcntl(loose, F_ADD_SEALS, F_SEAL_GROW), 0);
	assert_int_equal(shared_memory_open(&m, loose, BYTES + 1, twice), TUTTI_ERR_MISMATCH);
	assert_null(m);
	assert_int_equal(shared_memory_open(&m, loose, BYTES, twice), TUTTI_OK);
	shared_memory_close(m);
	close(loose);
	close(file);
}

static void users_of_a_process_share_a_mapping(void **state)
{
	struct shared_memory *one, *other, *third = NULL;
	int fd = -1, copy;

	assert_int_equal(shared_memory_create("test", BYTES, &fd), TUTTI_OK);
	copy = dup(fd);
	assert_int_equal(shared_memory_open(&one, fd, BYTES, twice), TUTTI_OK);
	assert_int_equal(shared_memory_open(&third, fd, BYTES - 1, twice), TUTTI_ERR_MISMATCH);
	assert_int_equal(shared_memory_open(&other, copy, BYTES, twice), TUTTI_OK);
	assert_ptr_equal(one->base, other->base);
	assert_int_equal(shared_memory_open(&third, fd, BYTES, twice), TUTTI_ERR_MISMATCH);
	assert_null(third);
	shared_memory_close(one);
	memset(other->base, 7, BYTES); /* still there for the one that is left */
	shared_memory_close(other);
	shared_memory_close(NULL);
	assert_int_equal(shared_memory_open(&one, fd, BYTES, twice), TUTTI_OK);
	assert_int_equal(((uint8_t *)one->base)[BYTES - 1], 7);
	shared_memory_close(one);
	close(fd);
	close(copy);
}

static void huge_pages_are_aligned(void **state)
{
	const struct shared_memory_use huge = {.most_users = 1, .wants_huge_pages = true};
	struct shared_memory *m;
	int fd = -1;

	assert_int_equal(shared_memory_create("test", 5u << 20, &fd), TUTTI_OK);
	assert_int_equal(shared_memory_open(&m, fd, 5u << 20, huge), TUTTI_OK);
	assert_int_equal((uintptr_t)m->base % (2u << 20), 0);
	memset(m->base, 1, 5u << 20);
	shared_memory_close(m);
	close(fd);
}

static void published_memory_is_read_only(void **state)
{
	void *base = NULL, *theirs;
	int fd = -1;

	assert_int_equal(shared_memory_publish("test", BYTES, &fd, &base), TUTTI_OK);
	memcpy(base, "news", 5);
	theirs = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(theirs != MAP_FAILED);
	assert_string_equal(theirs, "news");
	munmap(theirs, BYTES);
	theirs = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(theirs == MAP_FAILED);
	assert_int_not_equal(ftruncate(fd, 0), 0);
	munmap(base, BYTES);
	close(fd);
}

/* A limit of files' lengths is no end of the process. */
static void a_limit_is_an_error(void **state)
{
	struct rlimit whole, little = {4096, 0};
	void *base = NULL;
	int fd = -1;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
	little.rlim_max = whole.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	assert_int_equal(shared_memory_create("test", BYTES, &fd), TUTTI_ERR_SYSTEM);
	assert_int_equal(shared_memory_publish("test", BYTES, &fd, &base), TUTTI_ERR_SYSTEM);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
	assert_non_null(strstr(last_error(), strerror(EFBIG)));
	assert_int_equal(fd, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_has_one_length_for_ever),
		cmocka_unit_test(what_may_change_is_not_mapped),
		cmocka_unit_test(users_of_a_process_share_a_mapping),
		cmocka_unit_test(huge_pages_are_aligned),
		cmocka_unit_test(published_memory_is_read_only),
		cmocka_unit_test(a_limit_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
