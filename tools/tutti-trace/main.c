/* tutti-trace: what running ranks have done and what they wait for, and which rank came last. */
#include "merge.h"

#include "tools/output.h"

#include <getopt.h>
#include <string.h>

static const char help[] =
	"usage: tutti-trace dump [-o FILE] PID...\n"
	"       tutti-trace merge [-o FILE] [--all] FILE...\n"
	"       tutti-trace calls PID...\n"
	"\n"
	"dump writes what running processes remember of their communicators: the last 1,024\n"
	"operations of each, with times, and what they wait for. The processes need not help, and\n"
	"may hang. calls prints the call that each rank is in, and for how long. A PID is that\n"
	"of a rank, or of tuttirun: then it stands for the ranks of that job. merge puts the\n"
	"dumps of several ranks on one time line, and says which rank came last to each\n"
	"collective.\n"
	"\n"
	"  -o, --output FILE  instead of stdout; merge's report then goes to stdout, else to "
	"stderr\n"
	"  -a, --all          the report has a line for every collective, not for the ten worst\n"
	"  -h, --help, --version\n"
	"\n"
	"Both write JSON that https://ui.perfetto.dev and chrome://tracing open, and that merge\n"
	"reads. A rank whose communicator failed writes the same to TUTTI_TRACE_DIR.\n"
	"\n"
	"Exit codes: 0 all is well; 1 a damaged trace, or a file that cannot be read or written;\n"
	"2 the command line; 3 no such process; 4 a process without a communicator of Tutti;\n"
	"5 one that may not be looked at; 6 one whose Tutti is of another version.\n";

static int arguments_check(const struct arguments *a)
{
	int pid;

	if (a->all && !a->merges)
		return usage_error("--all is for merge.");
	if (a->output && a->calls)
		return usage_error("--output is for dump and merge.");
	if (a->word_count == 0)
		return usage_error(a->merges ? "merge needs files: the dumps of ranks."
					     : "%s needs the number of a process.",
				   a->calls ? "calls" : "dump");
	for (int i = 0; !a->merges && i < a->word_count; i++)
		if (!parse_pid(a->words[i], &pid))
			return usage_error("'%s' is not the number of a process.", a->words[i]);
	return -1;
}

static int arguments_parse(struct arguments *a, int argc, char **argv)
{
	static const struct option longs[] = {
		{"output", 1, NULL, 'o'},
		{"all", 0, NULL, 'a'},
		{"help", 0, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	*a = (struct arguments){0};
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":o:ah", longs, NULL)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return 0;
		}
		if (c == ':')
			return usage_error("%s needs a value.", argv[optind - 1]);
		if (c == '?')
			return usage_error("%s is no option.", argv[optind - 1]);
		a->all |= c == 'a';
		a->output = c == 'o' ? optarg : a->output;
	}
	if (optind == argc)
		return usage_error("What shall be done: dump, merge or calls?");
	const char *verb = argv[optind];
	a->merges = strcmp(verb, "merge") == 0;
	a->calls = strcmp(verb, "calls") == 0;
	if (!a->merges && !a->calls && strcmp(verb, "dump") != 0)
		return usage_error("'%s' is neither dump, merge nor calls.", verb);
	a->words = argv + optind + 1;
	a->word_count = argc - optind - 1;
	return arguments_check(a);
}

int main(int argc, char **argv)
{
	struct arguments arguments;
	int code;

	if (!output_open())
		return OUTPUT_FAILED;
	code = arguments_parse(&arguments, argc, argv);
	if (code < 0)
		code = arguments.merges  ? trace_merge(&arguments)
		       : arguments.calls ? trace_calls(&arguments)
					 : trace_dump(&arguments);
	return output_end(code);
}
