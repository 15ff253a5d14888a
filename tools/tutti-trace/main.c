/* tutti-trace: what running ranks have done and what they wait for, and which rank came last. */
#include "merge.h"

#include "core/program/line.h"
#include "core/program/output.h"
#include "core/words/number.h"

#include <getopt.h>
#include <limits.h>
#include <string.h>

static const struct line_option main_options[] = {
	{"output", 'o', "FILE", offsetof(struct arguments, output), .kind = LINE_TEXT,
	 .help = "instead of stdout; merge's report then goes to stdout, else to stderr"},
	{"all", 'a', NULL, offsetof(struct arguments, all), .kind = LINE_BOOL,
	 .help = "the report has a line for every collective, not for the ten worst"},
	{0},
};

static const char main_about[] =
	"dump writes what running processes remember of their communicators: the last 1,024\n"
	"operations of each, with times, and what they wait for. The processes need not help,\n"
	"and may hang. calls prints the call that each rank is in, and for how long. A PID is\n"
	"that of a rank, or of tuttirun: then it stands for the ranks of that job. merge puts\n"
	"the dumps of several ranks on one time line, and says which rank came last to each\n"
	"collective.";

static const char main_after[] =
	"Both write JSON that https://ui.perfetto.dev and chrome://tracing open, and that merge\n"
	"reads. A rank whose communicator failed writes the same to TUTTI_TRACE_DIR.\n"
	"\n"
	"Exit codes: 0 all is well; 1 a damaged trace, or a file that cannot be read or\n"
	"written; 2 the command line; 3 no such process; 4 a process without a communicator of\n"
	"Tutti; 5 one that may not be looked at; 6 one whose Tutti is of another version.";

static const struct line_table main_line = {
	.options = main_options,
	.operands = "",
	.unwritten = ATTACH_FAILED,
	.usage = "usage: tutti-trace dump [-o FILE] PID...\n"
		 "       tutti-trace merge [-o FILE] [--all] FILE...\n"
		 "       tutti-trace calls PID...",
	.about = main_about,
	.after = main_after,
};

static int trace_arguments_check(const struct arguments *a)
{
	int pid;

	if (a->all && !a->merges)
		return line_wrong("--all is for merge.");
	if (a->output && a->calls)
		return line_wrong("--output is for dump and merge.");
	if (a->word_count == 0)
		return line_wrong(a->merges ? "merge needs files: the dumps of ranks."
					    : "%s needs the number of a process.",
				  a->calls ? "calls" : "dump");
	for (int i = 0; !a->merges && i < a->word_count; i++)
		if (!number_read_int(a->words[i], 1, INT_MAX, &pid))
			return line_wrong("'%s' is not the number of a process.", a->words[i]);
	return -1;
}

static int trace_arguments_parse(struct arguments *a, int argc, char **argv)
{
	int code;

	*a = (struct arguments){0};
	code = line_parse(&main_line, a, argc, argv);
	if (code >= 0)
		return code;
	if (optind == argc)
		return line_wrong("What shall be done: dump, merge or calls?");
	const char *verb = argv[optind];
	a->merges = strcmp(verb, "merge") == 0;
	a->calls = strcmp(verb, "calls") == 0;
	if (!a->merges && !a->calls && strcmp(verb, "dump") != 0)
		return line_wrong("'%s' is neither dump, merge nor calls.", verb);
	a->words = argv + optind + 1;
	a->word_count = argc - optind - 1;
	return trace_arguments_check(a);
}

int main(int argc, char **argv)
{
	struct arguments arguments;
	int code;

	if (!output_open())
		return ATTACH_FAILED;
	code = trace_arguments_parse(&arguments, argc, argv);
	if (code < 0)
		code = arguments.merges  ? trace_merge(&arguments)
		       : arguments.calls ? trace_calls(&arguments)
					 : trace_dump(&arguments);
	return output_end(code, ATTACH_FAILED);
}
