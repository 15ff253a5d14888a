/* tutti-top: what the ranks on this machine are doing, whom they wait for and how fast they move
 * bytes. */
#include "rows.h"
#include "web.h"

#include "core/program/line.h"
#include "core/program/output.h"
#include "core/words/netaddr.h"
#include "core/words/number.h"
#include "tools/must.h"

#include <dirent.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
	bool once, web;
	int port;
	double interval_s;
	char **words;
	int word_count;
};

static bool main_read_web(const char *text, void *to)
{
	struct options *o = to;

	o->web = true;
	return !text || netaddr_read_port(text, &o->port);
}

static const struct line_option main_options[] = {
	{"once", 0, NULL, offsetof(struct options, once), .kind = LINE_BOOL,
	 .help = "one table of one interval, then ends"},
	{"web", 0, "[=PORT]", .parse = main_read_web, .wanted = "a port from 1 to 65535",
	 .help = "instead, a page with the same that renews itself, at the address that is\n"
		 "printed. It can be reached from this machine alone, by the users who know\n"
		 "the address. PORT: a free one"},
	{"interval", 'i', "S", offsetof(struct options, interval_s), 0.05, 3600, .kind = LINE_REAL,
	 .help = "0.05 to 3600"},
	{0},
};

static const char main_about[] =
	"Shows the communicators of all running processes that this user may look at, or of\n"
	"those named (tuttirun stands for the ranks of its job), every S seconds (1): what each\n"
	"rank does, since when, which rank it waits for (once that has lasted 20 ms), how many\n"
	"operations it begins and how many bytes it names in them per second. It only reads\n"
	"memory that the ranks write anyhow.";

static const char main_after[] =
	"Exit codes: 0; 1 stdout cannot be written, or the port not be used; 2 the command\n"
	"line; for processes that were named: 1 a damaged trace; 3 no such process; 4 a process\n"
	"without a communicator of Tutti; 5 one that may not be looked at; 6 one whose Tutti is\n"
	"of another version.";

static const struct line_table main_line = {
	.options = main_options,
	.operands = " [PID...]",
	.unwritten = ATTACH_FAILED,
	.about = main_about,
	.after = main_after,
};

static int main_parse(struct options *o, int argc, char **argv)
{
	int pid, code;

	*o = (struct options){.interval_s = 1};
	code = line_parse(&main_line, o, argc, argv);
	if (code >= 0)
		return code;
	if (o->once && o->web)
		return line_wrong("--once and --web are two ways to show the table.");
	o->words = argv + optind;
	o->word_count = argc - optind;
	for (int i = 0; i < o->word_count; i++)
		if (!number_read_int(o->words[i], 1, INT_MAX, &pid))
			return line_wrong("'%s' is not the number of a process.", o->words[i]);
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
		if (number_read_int(entry->d_name, 1, INT_MAX, &pid) && pid != getpid() &&
		    attach_read(pid, &process, why, sizeof why) == ATTACH_OK)
			log_add(log, &process);
	}
	if (dir)
		closedir(dir);
}

static int top_take_sample(struct sample *sample, const struct options *o, bool says_why)
{
	*sample = (struct sample){.ns = (int64_t)clock_now_ns()};
	if (o->word_count)
		return attach_all(&sample->log, o->words, o->word_count, says_why);
	main_add_all(&sample->log);
	return ATTACH_OK;
}

static void top_show_table(struct sample *before, const struct options *o)
{
	bool clears = isatty(STDOUT_FILENO);
	struct sample now;

	while (!o->word_count || before->log.count) {
		poll(NULL, 0, (int)(o->interval_s * 1e3));
		top_take_sample(&now, o, false);
		if (clears && !o->once)
			fputs("\033[H\033[2J", stdout);
		sample_print(before, &now, stdout);
		log_free(&before->log);
		*before = now;
		output_flush();
		if (o->once || !output_is_well())
			break;
	}
}

static char *top_page_rows(const struct sample *before, const struct sample *now, size_t *bytes)
{
	char *text = NULL;
	FILE *file = must_have(open_memstream(&text, bytes));

	sample_print_json(before, now, file);
	if (fclose(file) != 0)
		must_have(NULL);
	return text;
}

/* False: there was no port. Nobody finds the page if its address cannot be printed. */
static bool top_show_page(struct sample *before, const struct options *o)
{
	static struct web web;
	struct sample now;

	if (!web_open(&web, o->port))
		return false;
	bool is_ipv6 = strchr(web.host, ':') != NULL;
	printf("tutti-top: http://%s%s%s:%d/%s/ shows the ranks until this program ends.\n",
	       is_ipv6 ? "[" : "", web.host, is_ipv6 ? "]" : "", web.port, web.key);
	output_flush();
	top_take_sample(&now, o, false);
	while (output_is_well() && (!o->word_count || now.log.count)) {
		char *rows = top_page_rows(before, &now, &web.rows_bytes);
		web.rows = rows;
		web_serve(&web, (int64_t)clock_now_ns() + (int64_t)(o->interval_s * 1e9));
		free(rows);
		log_free(&before->log);
		*before = now;
		top_take_sample(&now, o, false);
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
		return ATTACH_FAILED;
	code = main_parse(&o, argc, argv);
	if (code >= 0)
		return output_end(code, ATTACH_FAILED);
	code = top_take_sample(&before, &o, true);
	if (!o.web)
		top_show_table(&before, &o);
	else if ((!o.word_count || before.log.count) && !top_show_page(&before, &o))
		code = ATTACH_FAILED;
	log_free(&before.log);
	return output_end(code, ATTACH_FAILED);
}
