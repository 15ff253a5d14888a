/* fake_train_main DIR STEPS LR [WORD...]: a trainer for tests of tutti-sweep, whose loss at a step
 * follows from LR alone. In C, since Python would take longer to start than to train. Words:
 *     step:FILE  takes a step only once FILE has grown by a byte      exit:N  ends with N
 *     nan:STEP   its loss is not a number from that step on           stay    ignores SIGTERM
 *     pause:MS   after each step                                      cpus    writes its CPUs
 *     child      starts a process that outlives it
 */
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct told {
	const char *folder, *step_file;
	int steps, pause_ms, nan_step, code;
	double lr;
};

static void sleep_ms(int ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static void start_child(void)
{
	if (fork() == 0) {
		execlp("sleep", "sleep", "1000", (char *)NULL);
		_exit(1);
	}
}

static FILE *open_file(const char *folder, const char *name, const char *mode)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	file = fopen(path, mode);
	if (!file) {
		perror(path);
		exit(1);
	}
	return file;
}

static void write_cpus(const char *folder)
{
	FILE *file = open_file(folder, "cpus", "w");
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set) != 0)
		exit(1);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			fprintf(file, "%u\n", cpu);
	fclose(file);
}

static void read_word(struct told *told, const char *word)
{
	const char *colon = strchr(word, ':'), *value = colon ? colon + 1 : "";

	if (strncmp(word, "step:", 5) == 0)
		told->step_file = value;
	else if (strncmp(word, "nan:", 4) == 0)
		told->nan_step = atoi(value);
	else if (strncmp(word, "pause:", 6) == 0)
		told->pause_ms = atoi(value);
	else if (strncmp(word, "exit:", 5) == 0)
		told->code = atoi(value);
	else if (strcmp(word, "stay") == 0)
		signal(SIGTERM, SIG_IGN);
	else if (strcmp(word, "child") == 0)
		start_child();
	else if (strcmp(word, "cpus") == 0)
		write_cpus(told->folder);
}

/* At most five minutes: a test that was killed gives no more steps. */
static void wait_for_step(const struct told *told, int step)
{
	struct stat file;
	int looks = 30000;

	while (told->step_file && (stat(told->step_file, &file) != 0 || file.st_size <= step)) {
		if (--looks == 0)
			exit(4);
		sleep_ms(10);
	}
	sleep_ms(told->pause_ms);
}

static double loss_at(const struct told *told, int step)
{
	return fabs(told->lr - 0.3) + 1.0 / (step + 1);
}

int main(int argc, char **argv)
{
	struct told told;
	FILE *rows;

	if (argc < 4)
		return 2;
	told = (struct told){.folder = argv[1], .steps = atoi(argv[2]), .lr = atof(argv[3])};
	told.nan_step = told.steps;
	for (int i = 4; i < argc; i++)
		read_word(&told, argv[i]);
	rows = open_file(told.folder, "metrics.jsonl", "a");
	setvbuf(rows, NULL, _IOLBF, 0);
	for (int step = 0; step < told.steps; step++) {
		wait_for_step(&told, step);
		if (step >= told.nan_step)
			fprintf(rows, "{\"step\":%d,\"loss\":\"NaN\"}\n", step);
		else
			fprintf(rows, "{\"step\":%d,\"loss\":%.17g}\n", step, loss_at(&told, step));
	}
	fclose(rows);
	printf("the loss is %g\n", loss_at(&told, told.steps - 1));
	return told.code;
}
