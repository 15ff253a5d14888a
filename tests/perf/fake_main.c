/* A benchmark program that measures nothing: it answers with made-up times, or goes wrong as it is
 * told. What perf's scripts make of times that are known, and of programs that fail.
 *
 * FAKE is a list "words=behaviour;...", of which the first whose words are in the program's path
 * counts; behaviour@4 holds from the fourth start on.
 *     x2.5   so many times as slow        dies    exit code 3 after a message
 *     wrong  wrong values, exit code 1    hangs   does not end
 *     killed  by signal 9
 *     refuses  exit code 2 after a message
 *     removes   the folder "late" here, then as if nothing were
 * FAKE_NOISE (0.02) is the noise's width, FAKE_SEED its seed; every start has noise of its own. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct behaviour {
	char what[16];
	long first;
};

static struct behaviour behaviour_of(const char *path)
{
	struct behaviour b = {"x1", 0};
	const char *fake = getenv("FAKE");
	char *list = strdup(fake ? fake : ""), *rest = list, *item;

	while ((item = strsep(&rest, ";"))) {
		char *words = strsep(&item, "=");

		if (!item || !strstr(path, words))
			continue;
		snprintf(b.what, sizeof b.what, "%s", strsep(&item, "@"));
		b.first = item ? atol(item) : 0;
		break;
	}
	free(list);
	return b;
}

/* One more byte in a file beside the program for every start. */
static long count_start(const char *path)
{
	char name[4096];
	long starts;
	FILE *file;

	snprintf(name, sizeof name, "%s.starts", path);
	file = fopen(name, "a");
	if (!file)
		return 1;
	fputc('.', file);
	starts = ftell(file);
	fclose(file);
	return starts;
}

/* The same in every scratch folder: only the build's name and what is in it count. */
static uint64_t seed_of(const char *path, long start)
{
	const char *seed = getenv("FAKE_SEED"), *tail = path + strlen(path);
	char text[4200];
	uint64_t hash = 1469598103934665603u;

	for (int slashes = 0; tail > path && slashes < 3; tail--)
		slashes += *tail == '/';
	snprintf(text, sizeof text, "%s %s %ld", seed ? seed : "1", tail + 1, start);
	for (const char *c = text; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211u;
	return hash;
}

/* Around 1: the sum of twelve uniform numbers is nearly normal, of width 1. */
static double noise(uint64_t *state)
{
	const char *width = getenv("FAKE_NOISE");
	double sum = -6;

	for (int i = 0; i < 12; i++) {
		*state = *state * 6364136223846793005u + 1442695040888963407u;
		sum += (double)(*state >> 11) * 0x1p-53;
	}
	return 1 + sum * (width ? atof(width) : 0.02);
}

static const char *option(char **argv, const char *name)
{
	for (; *argv; argv++) {
		if (strcmp(*argv, name) == 0 && argv[1])
			return argv[1];
	}
	return "";
}

/* A line in a file beside the program for every start with --load. */
static void note_load(char **argv)
{
	char name[4096];
	FILE *file;

	snprintf(name, sizeof name, "%s.loads", argv[0]);
	if (!*option(argv, "--load") || !(file = fopen(name, "a")))
		return;
	fprintf(file, "%s\n", option(argv, "--load"));
	fclose(file);
}

static void write_rows(char **argv, const struct behaviour *b, uint64_t state)
{
	long size = atol(option(argv, "-b")), last = atol(option(argv, "-e"));
	double slowness = b->what[0] == 'x' ? atof(b->what + 1) : 1;
	FILE *file = fopen(option(argv, "-J"), "w");
	const char *comma = "";

	if (!file)
		return;
	fprintf(file, "{\"library\": \"Fake 1.0\", \"ranks\": 2, \"rows\": [");
	for (; size <= last; size *= atol(option(argv, "-f"))) {
		for (int in_place = 0; in_place < 2; in_place++) {
			fprintf(file,
				"%s{\"bytes\": %ld, \"in_place\": %s, \"wrong\": %d, "
				"\"time_us\": %.6f}\n",
				comma, size, in_place ? "true" : "false",
				strcmp(b->what, "wrong") == 0,
				(1 + (double)size / 1000) * slowness * noise(&state));
			comma = ", ";
		}
	}
	fprintf(file, "]}\n");
	fclose(file);
}

int main(int argc, char **argv)
{
	struct behaviour b = behaviour_of(argv[0]);
	long start = count_start(argv[0]);

	(void)argc;
	note_load(argv);
	if (start < b.first)
		strcpy(b.what, "x1");
	printf("# fake_perf (fake), 2 ranks\n");
	fflush(stdout);
	if (strcmp(b.what, "dies") == 0) {
		puts("the message before it died");
		return 3;
	}
	if (strcmp(b.what, "refuses") == 0) {
		puts("fake_perf: there is no such type.");
		return 2;
	}
	if (strcmp(b.what, "killed") == 0)
		raise(SIGKILL);
	if (strcmp(b.what, "hangs") == 0) {
		puts("the line before it hung");
		fflush(stdout);
		alarm(600); /* a process that waits for it has given up before */
		pause();
	}
	if (strcmp(b.what, "removes") == 0 && rmdir("late") == 0)
		symlink("/nowhere", "late");
	write_rows(argv, &b, seed_of(argv[0], start));
	return strcmp(b.what, "wrong") == 0;
}
