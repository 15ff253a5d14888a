/* Breaks when what ranks share shows a secret: the window and its flight recorders, the lanes of
 * shm. Also what is said of a URL that is none: it may have a secret in it. */
#include "collectives/comm/comm.h"
#include "core/net.h"
#include "tests/limit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

static const char secret[] = "as-secret-as-it-gets";

/* 1: it is there; 0: it is not; -1: a thread of the library has unmapped the lane meanwhile, of
 * which only the kernel can say so without a fault. */
static int is_in(int memory_fd, unsigned long first, size_t size, const void *what, size_t bytes)
{
	char *copy = malloc(size);
	ssize_t n = pread(memory_fd, copy, size, (off_t)first);
	int answer = n != (ssize_t)size ? -1 : memmem(copy, size, what, bytes) != NULL;

	free(copy);
	return answer;
}

/* How many of the process's mappings of shared memory there are; -1: one contains what. */
static int shared_without(const void *what, size_t bytes)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	int memory_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	char line[400];
	int n = 0;

	while (fgets(line, sizeof line, maps)) {
		unsigned long first, end;
		char mode[8];
		if (!strstr(line, "/memfd:tutti") ||
		    sscanf(line, "%lx-%lx %7s", &first, &end, mode) != 3 || mode[0] != 'r')
			continue;
		switch (is_in(memory_fd, first, end - first, what, bytes)) {
		case 0:
			n++;
			break;
		case 1:
			n = -1000000;
			break;
		}
	}
	close(memory_fd);
	fclose(maps);
	return n < 0 ? -1 : n;
}

static int search(struct tutti_comm *comm, int least)
{
	int64_t word = 1, words[5000] = {0};

	for (int i = 0; i < 20; i++)
		if (tutti_all_reduce(&word, &word, 1, TUTTI_I64, TUTTI_MAX, comm, NULL) ||
		    tutti_all_reduce(words, words, 5000, TUTTI_I64, TUTTI_SUM, comm, NULL))
			return 1;
	if (shared_without(secret, sizeof secret - 1) < least ||
	    shared_without(comm->identity.key, sizeof comm->identity.key) < least)
		return 2;
	return 0;
}

static _Noreturn void be_a_rank(int rank, int port, bool has_window)
{
	char where[64];
	tutti_config config = {.rank = rank,
			       .world_size = 2,
			       .rendezvous = where,
			       .secret = secret,
			       .transports = "shm",
			       .timeout_ms = 20000};
	tutti_comm *comm;
	int code;

	test_limit(60);
	setenv("TUTTI_WINDOW", has_window ? "1" : "0", 1);
	snprintf(where, sizeof where, "tcp://127.0.0.1:%d", port);
	if (tutti_init(&comm, &config) != TUTTI_OK) {
		fprintf(stderr, "rank %d: %s\n", rank, tutti_comm_error(NULL));
		_exit(3);
	}
	code = search(comm, 1);
	tutti_comm_destroy(comm);
	_exit(code);
}

static void what_is_shared_shows_nothing(void **state)
{
	for (int has_window = 0; has_window < 2; has_window++) {
		pid_t pids[2];
		int fd, port, status;
		assert_int_equal(net_listen("127.0.0.1", 0, 1, &fd, &port), TUTTI_OK);
		close(fd);
		for (int r = 0; r < 2; r++) {
			pids[r] = fork();
			if (pids[r] == 0)
				be_a_rank(r, port, has_window);
		}
		for (int r = 0; r < 2; r++) {
			assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
			assert_int_equal(status, 0);
		}
	}
}

/* With the secret in it the search says so. */
static void the_search_finds(void **state)
{
	int fd = memfd_create("tutti-test", 0);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *shared;

	assert_int_equal(ftruncate(fd, (off_t)page), 0);
	shared = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_int_equal(shared_without(secret, sizeof secret - 1), 1);
	memcpy(shared + 77, secret, sizeof secret);
	assert_int_equal(shared_without(secret, sizeof secret - 1), -1);
	munmap(shared, page);
	close(fd);
}

static void a_wrong_url_is_not_repeated(void **state)
{
	static const char *const urls[] = {
		"tuti://h:1/as-secret-as-it-gets", "tutti://h:1/as-secret-as-it-gets",
		"tcp://h:1/as-secret-as-it-gets",  "as-secret-as-it-gets",
		"http://h/as-secret-as-it-gets",   "tcp://h/as-secret-as-it-gets",
	};

	for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
		tutti_config config = {.rank = 1, .world_size = 2, .rendezvous = urls[i]};
		tutti_comm *comm;
		assert_int_equal(tutti_init(&comm, &config), TUTTI_ERR_INVALID);
		if (strstr(tutti_comm_error(NULL), "secret-as"))
			fail_msg("%s", tutti_comm_error(NULL));
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_search_finds),
		cmocka_unit_test(what_is_shared_shows_nothing),
		cmocka_unit_test(a_wrong_url_is_not_repeated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
