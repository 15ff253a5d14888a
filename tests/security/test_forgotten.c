/* no_asan, no_tsan: it reads all of its memory, and their shadow memory is terabytes */
/* Breaks when a rank keeps the job's secret in its memory after its last communicator is gone: a
 * communicator has it for new ranks (tutti_comm_grow). */
#include <tutti/tutti.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/limit.h"
#include "tests/unit.h"

#define SECRET_BYTES 32
#define VEIL         0x55

#define NEED(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not %s: %s\n", __FILE__, __LINE__, #condition,     \
				tutti_comm_error(NULL));                                           \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* Of the secret, in a form that is not found when the secret is looked for. */
static uint8_t veiled[SECRET_BYTES];

static void unveil(char secret[SECRET_BYTES + 1])
{
	for (int i = 0; i < SECRET_BYTES; i++)
		secret[i] = (char)(veiled[i] ^ VEIL);
	secret[SECRET_BYTES] = '\0';
}

static bool is_secret(const uint8_t *at)
{
	for (int i = 0; i < SECRET_BYTES; i++)
		if ((at[i] ^ VEIL) != veiled[i])
			return false;
	return true;
}

/* Through /proc: a page that nobody may read is passed over. */
static int count_in(int memory, uint64_t begin, uint64_t end)
{
	static uint8_t part[1 << 20];
	int found = 0;

	while (end - begin >= SECRET_BYTES) {
		size_t bytes = end - begin < sizeof part ? (size_t)(end - begin) : sizeof part;
		ssize_t got = pread(memory, part, bytes, (off_t)begin);
		if (got < SECRET_BYTES)
			break;
		for (ssize_t i = 0; i + SECRET_BYTES <= got; i++)
			found += is_secret(part + i);
		memset(part, 0, sizeof part);
		begin += (uint64_t)got - (SECRET_BYTES - 1);
		if (end - begin < SECRET_BYTES)
			break;
	}
	return found;
}

/* How often the secret is in memory of this process that can be written. */
static int count_secrets(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC), found = 0;
	uint64_t begin, end;
	char line[600], rights[5];

	NEED(maps && memory >= 0);
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, rights) == 3 &&
		    rights[0] == 'r' && rights[1] == 'w' && !strstr(line, "/dev/"))
			found += count_in(memory, begin, end);
	fclose(maps);
	close(memory);
	return found;
}

static tutti_comm *join(int rank, const char *path)
{
	char secret[SECRET_BYTES + 1], place[200];
	tutti_config config = {.rank = rank,
			       .world_size = 2,
			       .rendezvous = place,
			       .secret = secret,
			       .timeout_ms = (int)test_limit_stretched(20) * 1000};
	tutti_comm *comm;

	snprintf(place, sizeof place, "file://%s", path);
	unveil(secret);
	NEED(tutti_init(&comm, &config) == TUTTI_OK);
	explicit_bzero(secret, sizeof secret);
	return comm;
}

static void be_rank(int rank, const char *path)
{
	tutti_comm *comm = join(rank, path), *copy, *grown;

	NEED(tutti_comm_dup(comm, &copy) == TUTTI_OK);
	tutti_comm_destroy(comm);
	NEED(count_secrets() > 0);
	NEED(tutti_comm_grow(copy, 2, NULL, &grown) == TUTTI_OK);
	tutti_comm_destroy(copy);
	NEED(count_secrets() > 0); /* this one may be grown, too */
	tutti_comm_destroy(grown);
	NEED(count_secrets() == 0);
	_exit(0);
}

static void no_secret_is_left(void **state)
{
	char path[] = "/tmp/tutti-forgotten-XXXXXX";
	int fd = mkstemp(path), status;

	assert_true(fd >= 0);
	close(fd);
	unlink(path);
	assert_int_equal(getrandom(veiled, sizeof veiled, 0), sizeof veiled);
	for (int i = 0; i < SECRET_BYTES; i++) /* a secret is text */
		veiled[i] = (uint8_t)(('a' + veiled[i] % 26) ^ VEIL);
	for (int rank = 0; rank < 2; rank++)
		if (fork() == 0) {
			test_limit(60);
			be_rank(rank, path);
		}
	for (int rank = 0; rank < 2; rank++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_secret_is_left),
	};
	unsetenv("TUTTI_SECRET");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
