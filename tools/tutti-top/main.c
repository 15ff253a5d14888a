/* tutti-top: what the ranks on this machine are doing, whom they wait for and how fast they move
 * bytes. */
#include "rows.h"

#include "tools/output.h"

#include <dirent.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
	"usage: tutti-top [--once] [--interval S] [PID...]\n"
	"\n"
	"Shows the communicators of all running processes that this user may look at, or of\n"
	"those named (tuttirun stands for the ranks of its job), every S seconds (1): what each\n"
	"rank does, since when, which rank it waits for (once that has lasted 20 ms), how many\n"
	"operations it begins and how many bytes it names in them per second. It only reads\n"
	"memory that the ranks write anyhow.\n"
	"\n"
	"      --once         one table of one interval, then ends\n"
	"  -i, --interval S   0.05 to 3600\n"
	"  -h, --help, --version\n"
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
			return usage_error("%s needs a value.", argv[optind - 1]);
		if (c == '?')
			return usage_error("%s is no option.", argv[optind - 1]);
		o->once |= c == '1';
		if (c != 'i')
			continue;
		o->interval_s = strtod(optarg, &end);
		if (end == optarg || *end || !(o->interval_s >= 0.05 && o->interval_s <= 3600))
			return usage_error("'%s' is not an interval from 0.05 to 3600 seconds.",
					   optarg);
	}
	o->words = argv + optind;
	o->word_count = argc - optind;
	for (int i = 0; i < o->word_count; i++)
		if (!parse_pid(o->words[i], &pid))
			return usage_error("'%s' is not the number of a process.", o->words[i]);
	return -1;
}

/* Processes that the user did not name and that cannot be read are left out. */
static void add_all(struct log *log)
{
	struct dirent *entry;
	char why[600];
	int pid;
	DIR *dir = opendir("/proc");

	while (dir && (entry = readdir(dir))) {
		struct trace_process process;
		if (parse_pid(entry->d_name, &pid) && pid != getpid() &&
		    attach_read(pid, &process, why, sizeof why) == ATTACH_OK)
			log_add(log, &process);
	}
	if (dir)
		closedir(dir);
}

static int take_sample(struct sample *sample, const struct options *o, bool says_why)
{
	*sample = (struct sample){.ns = (int64_t)clock_now_ns()};
	if (o->word_count)
		return attach_all(&sample->log, o->words, o->word_count, says_why);
	add_all(&sample->log);
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
	code = take_sample(&before, &o, true);
	while (!o.word_count || before.log.count) {
		rest(o.interval_s);
		take_sample(&now, &o, false);
		if (clears && !o.once)
			fputs("\033[H\033[2J", stdout);
		sample_print(&before, &now, stdout);
		log_free(&before.log);
		before = now;
		if (o.once || fflush(stdout) != 0)
			break;
	}
	log_free(&before.log);
	return output_end(code);
}
