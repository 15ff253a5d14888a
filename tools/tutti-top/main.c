/* tutti-top: what the ranks on this machine are doing, whom they wait for and how fast they move
 * bytes. */
#include "rows.h"
#include "web.h"

#include "core/words/netaddr.h"
#include "tools/must.h"
#include "tools/output.h"

#include <dirent.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
	"usage: tutti-top [--once] [--web[=PORT]] [--interval S] [PID...]\n"
	"\n"
	"Shows the communicators of all running processes that this user may look at, or of\n"
	"those named (tuttirun stands for the ranks of its job), every S seconds (1): what each\n"
	"rank does, since when, which rank it waits for (once that has lasted 20 ms), how many\n"
	"operations it begins and how many bytes it names in them per second. It only reads\n"
	"memory that the ranks write anyhow.\n"
	"\n"
	"      --once         one table of one interval, then ends\n"
	"      --web[=PORT]   instead, a page with the same that renews itself, at the address "
	"that\n"
	"                     is printed. It can be reached from this machine alone, by the users\n"
	"                     who know the address. PORT: a free one\n"
	"  -i, --interval S   0.05 to 3600\n"
	"  -h, --help, --version\n"
	"\n"
	"Exit codes: 0; 1 stdout cannot be written, or the port not be used; 2 the command line;\n"
	"for processes that were named: 1 a damaged trace; 3 no such process; 4 a process without\n"
	"a communicator of Tutti; 5 one that may not be looked at; 6 one whose Tutti is of\n"
	"another version.\n";

struct options {
	bool once, web;
	int port;
	double interval_s;
	char **words;
	int word_count;
};

static bool parse_interval(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	return end != text && !*end && *seconds >= 0.05 && *seconds <= 3600;
}

static int tutti_top_main_parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {{"once", 0, NULL, '1'},
					      {"interval", 1, NULL, 'i'},
					      {"web", 2, NULL, 'w'},
					      {"help", 0, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	int c, pid;

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
		o->web |= c == 'w';
		if (c == 'i' && !parse_interval(optarg, &o->interval_s))
			return usage_error("'%s' is not an interval from 0.05 to 3600 seconds.",
					   optarg);
		if (c == 'w' && optarg && !netaddr_read_port(optarg, &o->port))
			return usage_error("'%s' is not a port from 1 to 65535.", optarg);
	}
	if (o->once && o->web)
		return usage_error("--once and --web are two ways to show the table.");
	o->words = argv + optind;
	o->word_count = argc - optind;
	for (int i = 0; i < o->word_count; i++)
		if (!parse_pid(o->words[i], &pid))
			return usage_error("'%s' is not the number of a process.", o->words[i]);
	return -1;
}

/* Processes that the user did not name and that cannot be read are left out. */
static void main_add_all(struct log *log)
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
	main_add_all(&sample->log);
	return ATTACH_OK;
}

static void main_rest(double seconds)
{
	struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
	nanosleep(&t, NULL);
}

static void show_table(struct sample *before, const struct options *o)
{
	bool clears = isatty(STDOUT_FILENO);
	struct sample now;

	while (!o->word_count || before->log.count) {
		main_rest(o->interval_s);
		take_sample(&now, o, false);
		if (clears && !o->once)
			fputs("\033[H\033[2J", stdout);
		sample_print(before, &now, stdout);
		log_free(&before->log);
		*before = now;
		if (o->once || fflush(stdout) != 0)
			break;
	}
}

static char *page_rows(const struct sample *before, const struct sample *now, size_t *bytes)
{
	char *text = NULL;
	FILE *file = must_have(open_memstream(&text, bytes));

	sample_print_json(before, now, file);
	if (fclose(file) != 0)
		must_have(NULL);
	return text;
}

/* False: there was no port. Nobody finds the page if its address cannot be printed. */
static bool show_page(struct sample *before, const struct options *o)
{
	static struct web web;
	struct sample now;

	if (!web_open(&web, o->port))
		return false;
	bool is_ipv6 = strchr(web.host, ':') != NULL;
	printf("tutti-top: http://%s%s%s:%d/%s/ shows the ranks until this program ends.\n",
	       is_ipv6 ? "[" : "", web.host, is_ipv6 ? "]" : "", web.port, web.key);
	take_sample(&now, o, false);
	while (fflush(stdout) == 0 && (!o->word_count || now.log.count)) {
		char *rows = page_rows(before, &now, &web.rows_bytes);
		web.rows = rows;
		web_serve(&web, (int64_t)clock_now_ns() + (int64_t)(o->interval_s * 1e9));
		free(rows);
		log_free(&before->log);
		*before = now;
		take_sample(&now, o, false);
	}
	log_free(&now.log);
	web_close(&web);
	return true;
}

int main(int argc, char **argv)
{
	struct sample before;
	struct options o;
	int code;

	if (!output_open())
		return OUTPUT_FAILED;
	code = tutti_top_main_parse(&o, argc, argv);
	if (code >= 0)
		return output_end(code);
	code = take_sample(&before, &o, true);
	if (!o.web)
		show_table(&before, &o);
	else if ((!o.word_count || before.log.count) && !show_page(&before, &o))
		code = OUTPUT_FAILED;
	log_free(&before.log);
	return output_end(code);
}
