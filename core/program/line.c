/* Reads a command line by a table, by getopt_long. */
#include "core/program/line.h"

#include "core/program/output.h"
#include "core/words/nearest.h"
#include "core/words/number.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OPTIONS 40
#define NAMED   256 /* getopt's number of the first option: letters are below */
#define HELP    (NAMED + OPTIONS)
#define VERSION (HELP + 1)
#define WIDTH   90
#define COLUMN  24 /* of what --help says of an option */

int line_wrong(const char *format, ...)
{
	const char *program = program_invocation_short_name;
	va_list args;

	fprintf(stderr, "%s: ", program);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n%s --help explains the options.\n", program);
	return 2;
}

/* ---- --help ---- */

/* "-n N", "--name[=N]" */
static int line_name_option(char *text, size_t bytes, const struct line_option *o, bool is_short)
{
	const char *value = o->value ? o->value : "", *space = *value && *value != '[' ? " " : "";

	return is_short ? snprintf(text, bytes, "-%c%s%s", o->letter, space, value)
			: snprintf(text, bytes, "--%s%s%s", o->name, space, value);
}

static void line_print_usage(const struct line_table *line)
{
	int column = printf("usage: %s", program_invocation_short_name);
	char word[80];

	for (const struct line_option *o = line->options; o->name; o++) {
		int n = line_name_option(word, sizeof word, o, o->letter != 0);

		if (column + 3 + n > WIDTH)
			column = printf("\n      ") - 1;
		column += printf(" [%s]", word);
	}
	printf("%s\n", line->operands ? line->operands : "");
}

static void line_print_option(const struct line_option *o)
{
	char name[80];
	int n;

	line_name_option(name, sizeof name, o, false);
	n = o->letter ? printf("  -%c, %s", o->letter, name) : printf("      %s", name);
	if (n >= COLUMN)
		n = printf("\n") - 1;
	for (const char *text = o->help; *text; n = 0) {
		int length = (int)strcspn(text, "\n");

		printf("%*s%.*s\n", COLUMN - n, "", length, text);
		text += length;
		text += *text == '\n';
	}
}

static void line_help(const struct line_table *line)
{
	output_buffer();
	if (line->usage)
		puts(line->usage);
	else
		line_print_usage(line);
	if (line->about)
		printf("\n%s\n", line->about);
	putchar('\n');
	for (const struct line_option *o = line->options; o->name; o++)
		line_print_option(o);
	puts("  -h, --help, --version");
	if (line->after)
		printf("\n%s\n", line->after);
}

/* ---- values ---- */

int line_find(const char *const *names, const char *name)
{
	for (int i = 0; names[i]; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	return -1;
}

static bool line_read_choice(const struct line_option *o, const char *text, int *to)
{
	int i = line_find(o->choices, text);

	if (i >= 0)
		*to = (int)o->least + i;
	return i >= 0;
}

static bool line_read(const struct line_option *o, const char *text, void *to)
{
	if (o->parse)
		return o->parse(text, to);
	switch (o->kind) {
	case LINE_INT:
		if (o->value)
			return number_read_int(text, (int)o->least, (int)o->most, to);
		*(int *)to = 1;
		return true;
	case LINE_REAL:
		return number_read_real(text, o->least, o->most, to);
	case LINE_BYTES:
		return number_read_bytes(text, to) && (double)*(size_t *)to >= o->least;
	case LINE_CHOICE:
		return line_read_choice(o, text, to);
	case LINE_TEXT:
		*(const char **)to = text;
		return text[strspn(text, " ")] != '\0';
	case LINE_BOOL:
		return *(bool *)to = true;
	}
	return false;
}

/* What a value is; "": nobody says. */
static void line_describe_value(const struct line_option *o, char *text, size_t bytes)
{
	size_t used = 0;

	*text = '\0';
	if (o->wanted)
		snprintf(text, bytes, "%s", o->wanted);
	else if (o->parse)
		return;
	else if (o->kind == LINE_INT || o->kind == LINE_REAL)
		snprintf(text, bytes, "a number from %.10g to %.10g", o->least, o->most);
	else if (o->kind == LINE_BYTES && o->least > 0)
		snprintf(text, bytes, "a size such as 64K or 1M, of %g bytes at least", o->least);
	else if (o->kind == LINE_BYTES)
		snprintf(text, bytes, "a size such as 64K or 1M");
	else if (o->kind == LINE_TEXT)
		snprintf(text, bytes, "one that is not empty");
	for (int i = 0; o->kind == LINE_CHOICE && o->choices[i] && used < bytes; i++)
		used += (size_t)snprintf(text + used, bytes - used, "%s%s",
					 i == 0              ? ""
					 : o->choices[i + 1] ? ", "
							     : " or ",
					 o->choices[i]);
}

/* name: as it was given, -g or --gpus. */
static int line_take(const struct line_option *o, const char *name, void *values)
{
	char wanted[300];

	if (line_read(o, optarg, (char *)values + o->at))
		return -1;
	line_describe_value(o, wanted, sizeof wanted);
	return line_wrong("'%s' is not a value for %s%s%s.", optarg, name, *wanted ? ": give " : "",
			  wanted);
}

/* A word behind an option's value. */
static bool line_next_number(int argc, char **argv)
{
	if (optind >= argc || !*argv[optind] || argv[optind][strspn(argv[optind], "0123456789")])
		return false;
	optarg = argv[optind++];
	return true;
}

/* ---- words that are no options ---- */

/* The options whose names begin so, as "--hosts, --hostfile". */
static void line_list_names(char *list, size_t bytes, const struct option *longs, const char *begin,
			    size_t length)
{
	size_t used = 0;

	*list = '\0';
	for (const struct option *o = longs; o->name && used < bytes; o++)
		if (strncmp(o->name, begin, length) == 0)
			used += (size_t)snprintf(list + used, bytes - used, "%s--%s",
						 used ? ", " : "", o->name);
}

/* Says why getopt_long knows no such option as word. */
static int line_unknown(const struct option *longs, const char *word)
{
	int length = (int)strcspn(word, "=");
	size_t bytes = (size_t)length - 2;
	char names[400];

	if (optopt < 0 || (optopt > '~' && optopt < NAMED)) /* not ASCII */
		return line_wrong("unknown option -\\x%02x.", (unsigned char)optopt);
	if (optopt && optopt < NAMED)
		return line_wrong("unknown option -%c.", optopt);
	if (optopt)
		return line_wrong("%.*s takes no value.", length, word);
	line_list_names(names, sizeof names, longs, word + 2, bytes);
	if (*names)
		return line_wrong("%.*s is short for several options: %s.", length, word, names);
	struct nearest nearest = nearest_to(word + 2, bytes);
	for (const struct option *o = longs; o->name; o++)
		nearest_try(&nearest, o->name);
	if (nearest.name)
		return line_wrong("unknown option %.*s: did you mean --%s?", length, word,
				  nearest.name);
	return line_wrong("unknown option %.*s.", length, word);
}

/* ---- the line ---- */

/* For getopt_long. */
struct line_names {
	struct option longs[OPTIONS + 3];
	char letters[2 * OPTIONS + 4];
};

static struct line_names line_names_of(const struct line_table *line)
{
	struct line_names names = {.longs = {{"help", no_argument, NULL, HELP},
					     {"version", no_argument, NULL, VERSION}}};
	char *letters = names.letters;

	letters += sprintf(letters, "%s:h", line->is_launcher ? "+" : "");
	for (int n = 0; line->options[n].name; n++) {
		const struct line_option *o = &line->options[n];

		assert(n < OPTIONS);
		int has_value = !o->value          ? no_argument
				: *o->value == '[' ? optional_argument
						   : required_argument;

		names.longs[n + 2] = (struct option){o->name, has_value, NULL, NAMED + n};
		if (o->letter)
			letters += sprintf(letters, "%c%s", o->letter, o->value ? ":" : "");
	}
	return names;
}

/* The option that getopt_long has found, by its name or letter, as name says. */
static const struct line_option *line_found(const struct line_table *line, int found, char *name,
					    size_t bytes)
{
	const struct line_option *o = line->options;

	if (found >= NAMED) {
		snprintf(name, bytes, "--%s", o[found - NAMED].name);
		return &o[found - NAMED];
	}
	snprintf(name, bytes, "-%c", found);
	while (o->letter != found)
		o++;
	return o;
}

/* Reads the next option. -1, or the exit code; *is_end: there is none. */
static int line_parse_next(const struct line_table *line, const struct line_names *names,
			   void *values, int argc, char **argv, bool *is_end)
{
	const struct line_option *o;
	char name[80];
	int found, code;

	if (line->respell)
		line->respell(values, argv + (optind ? optind : 1));
	found = getopt_long(argc, argv, names->letters, names->longs, NULL);
	*is_end = found == -1;
	if (*is_end)
		return -1;
	if (found == ':')
		return line_wrong("%s needs a value.", argv[optind - 1]);
	if (found == '?')
		return line_unknown(names->longs, argv[optind - 1]);
	if (found == VERSION)
		printf("%s (Tutti) " TUTTI_VERSION "\n", program_invocation_short_name);
	if (found == 'h' || found == HELP)
		line_help(line);
	if (found == 'h' || found == HELP || found == VERSION)
		return output_end(0, line->unwritten ? line->unwritten : 3);
	o = line_found(line, found, name, sizeof name);
	do
		code = line_take(o, name, values);
	while (code < 0 && o->takes_numbers && line_next_number(argc, argv));
	return code;
}

int line_parse(const struct line_table *line, void *values, int argc, char **argv)
{
	struct line_names names = line_names_of(line);
	bool is_end = false;
	int code = -1;

	opterr = 0;
	while (code < 0 && !is_end)
		code = line_parse_next(line, &names, values, argc, argv, &is_end);
	if (code < 0 && optind < argc && !line->operands)
		return line_wrong("'%s' belongs to no option.", argv[optind]);
	return code;
}
