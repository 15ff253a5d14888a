/* tutti-top: what the ranks on this machine are doing, whom they wait for and how fast they move
 * bytes. */
#include "rows.h"

#include "tools/attach.h"
#include "tools/output.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
	"usage: tutti-top [--once] [--interval S] [PID...]\n"
	"\n"
	"Shows the communicators of all running processes that this user may look at, or of\n"
	"those named, every S seconds (1): what each rank does, since when, which rank it waits\n"
	"for (once that has lasted 20 ms), how many operations it begins and how many bytes it\n"
	"names in them per second. It only reads memory that the ranks write anyhow.\n"
	"\n"
	"      --once         one table of one interval, then ends\n"
	"  -i, --interval S   0.05 to 3600\n"
	"  -h, --help\n"
	"\n"
	"Exit codes: 0; 1 stdout cannot be written; 2 the command line; for processes that were\n"
	"named: 1 a damaged trace; 3 no such process; 4 a process without a communicator of\n"
	"Tutti; 5 one that may not be looked at; 6 one whose Tutti is of another version.\n";

struct options {
	bool once;
	double interval_s;
	char **words;
	int word_count;
};

__attribute__((format(printf, 1, 2))) static int wrong(const char *format, ...)
{
	va_list args;

	fputs("tutti-top: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs(" tutti-top --help says more.\n", stderr);
	return ATTACH_USAGE;
}

static bool pid_of(const char *word, int *pid)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(word, &end, 10);
	*pid = (int)n;
	return !errno && end != word && !*end && n > 0 && n <= 0x7fffffff;
}

static int parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {{"once", 0, NULL, '1'},
					      {"interval", 1, NULL, 'i'},
					      {"help", 0, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	int c, pid;
	char *end;

	*o = (struct options){.interval_s = 1};
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":i:h", longs, NULL)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return 0;
		}
		if (c == ':')
			return wrong("%s needs a value.", argv[optind - 1]);
		if (c == '?')
			return wrong("%s is no option.", argv[optind - 1]);
		o->once |= c == '1';
		if (c != 'i')
			continue;
		o->interval_s = strtod(optarg, &end);
		if (end == optarg || *end || !(o->interval_s >= 0.05 && o->interval_s <= 3600))
			return wrong("'%s' is not an interval from 0.05 to 3600 seconds.", optarg);
	}
	o->words = argv + optind;
	o->word_count = argc - optind;
	for (int i = 0; i < o->word_count; i++)
		if (!pid_of(o->words[i], &pid))
			return wrong("'%s' is not the number of a process.", o->words[i]);
	return -1;
}

/* Processes that the user did not name and that cannot be read are left out. */
static void add_all(struct sample *sample)
{
	struct dirent *entry;
	char why[600];
	int pid;
	DIR *dir = opendir("/proc");

	while (dir && (entry = readdir(dir))) {
		struct trace_process process;
		if (pid_of(entry->d_name, &pid) && pid != getpid() &&
		    attach_read(pid, &process, why, sizeof why) == ATTACH_OK)
			sample_add(sample, &process);
	}
	if (dir)
		closedir(dir);
}

/* The first that cannot be read is the exit code. */
static int add_named(struct sample *sample, const struct options *o, bool says_why)
{
	int code = ATTACH_OK;

	for (int i = 0; i < o->word_count; i++) {
		struct trace_process process;
		char why[600];
		int pid;
		pid_of(o->words[i], &pid);
		enum attach_code one = attach_read(pid, &process, why, sizeof why);
		if (one == ATTACH_OK)
			sample_add(sample, &process);
		else if (says_why)
			fprintf(stderr, "tutti-top: %s\n", why);
		code = code == ATTACH_OK ? (int)one : code;
	}
	return code;
}

static int take(struct sample *sample, const struct options *o, bool says_why)
{
	*sample = (struct sample){.ns = (int64_t)clock_now_ns()};
	if (o->word_count)
		return add_named(sample, o, says_why);
	add_all(sample);
	return ATTACH_OK;
}

static void rest(double seconds)
{
	struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
	nanosleep(&t, NULL);
}

int main(int argc, char **argv)
{
	struct options o;
	struct sample before, now;
	bool clears = isatty(STDOUT_FILENO);
	int code;

	if (!output_open())
		return OUTPUT_FAILED;
	code = parse(&o, argc, argv);
	if (code >= 0)
		return output_end(code);
	code = take(&before, &o, true);
	while (!o.word_count || before.count) {
		rest(o.interval_s);
		take(&now, &o, false);
		if (clears && !o.once)
			fputs("\033[H\033[2J", stdout);
		sample_print(&before, &now, stdout);
		sample_free(&before);
		before = now;
		if (o.once || fflush(stdout) != 0)
			break;
	}
	sample_free(&before);
	return output_end(code);
}
