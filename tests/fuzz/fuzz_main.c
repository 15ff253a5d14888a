/* Runs a harness over kept inputs: files, or folders of them. What would break is said by the
 * sanitizer, by an assertion, or by the alarm. */
#include "fuzz.h"
#include "tests/limit.h"

#include <dirent.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_MAX_BYTES (1u << 20)
#define INPUT_SECONDS   20           /* of one input, on a slow and busy machine */
#define MEMORY_BYTES    (3ull << 30) /* where no sanitizer keeps maps of its own */

static int runs;

static void run_file(const char *path)
{
	static uint8_t bytes[INPUT_MAX_BYTES];
	FILE *file = fopen(path, "rb");
	uint8_t *copy;
	size_t n;

	if (!file) {
		perror(path);
		exit(1);
	}
	n = fread(bytes, 1, sizeof bytes, file);
	fclose(file);
	copy = malloc(n ? n : 1); /* so that a sanitizer sees its end */
	MUST(copy);
	memcpy(copy, bytes, n);
	printf("%s: %zu bytes\n", path, n);
	fflush(stdout);
	test_limit(INPUT_SECONDS);
	fuzz_one(copy, n);
	test_limit(0);
	free(copy);
	runs++;
}

static int is_shown(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void run_folder(const char *path)
{
	struct dirent **names;
	int count = scandir(path, &names, is_shown, alphasort);

	for (int i = 0; i < count; i++) {
		char file[4096];
		snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
		run_file(file);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

static void limit_memory(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	struct rlimit limit = {MEMORY_BYTES, MEMORY_BYTES};

	setrlimit(RLIMIT_AS, &limit);
#endif
}

int main(int argc, char **argv)
{
	struct stat what;

	limit_memory();
	for (int i = 1; i < argc; i++) {
		if (stat(argv[i], &what) == 0 && S_ISDIR(what.st_mode))
			run_folder(argv[i]);
		else
			run_file(argv[i]);
	}
	fuzz_one((const uint8_t *)"", 0);
	printf("%d inputs\n", runs);
	return runs == 0; /* a corpus that is not found shows nothing */
}
