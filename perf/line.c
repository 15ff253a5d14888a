/* Reads a command line by a table, by getopt_long. */
#include "line.h"

#include "output.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS 40
#define NAMED   256 /* getopt's number of the first option: letters are below */
#define WIDTH   90
#define COLUMN  24 /* of what --help says of an option */

static void line_print_usage(const struct line *line, FILE *file)
{
	int column = fprintf(file, "usage: %s", program_invocation_short_name);
	char word[80];

	for (const struct line_option *o = line->options; o->name; o++) {
		const char *space = o->value ? " " : "", *value = o->value ? o->value : "";
		int n = o->letter
				? snprintf(word, sizeof word, "[-%c%s%s]", o->letter, space, value)
				: snprintf(word, sizeof word, "[--%s%s%s]", o->name, space, value);

		if (column + 1 + n > WIDTH)
			column = fprintf(file, "\n      ") - 1;
		column += fprintf(file, " %s", word);
	}
	fprintf(file, "%s\n", line->operands ? line->operands : "");
}

static void line_print_option(const struct line_option *o)
{
	char left[80];
	int n = snprintf(left, sizeof left, "  %c%c%c --%s %s", o->letter ? '-' : ' ',
			 o->letter ? o->letter : ' ', o->letter ? ',' : ' ', o->name,
			 o->value ? o->value : "");

	printf("%-*s", COLUMN - 1, left);
	if (n >= COLUMN)
		printf("\n%*s", COLUMN - 1, "");
	for (const char *text = o->help; *text;) {
		int length = (int)strcspn(text, "\n");

		printf(" %.*s\n", length, text);
		text += length;
		if (*text++ == '\0')
			break;
		printf("%*s", COLUMN - 1, "");
	}
}

static int line_help(const struct line *line)
{
	line_print_usage(line, stdout);
	for (const struct line_option *o = line->options; o->name; o++)
		line_print_option(o);
	puts("  -h, --help");
	if (line->about)
		puts(line->about);
	output_flush();
	return output_is_well() ? 0 : 3;
}

int line_wrong(const struct line *line, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	line_print_usage(line, stderr);
	return 2;
}

bool line_int(const char *text, int least, int most, int *value)
{
	size_t digits = strspn(text, "0123456789");
	long n;

	errno = 0;
	n = strtol(text, NULL, 10);
	if (errno || digits == 0 || text[digits] || n < least || n > most)
		return false;
	*value = (int)n;
	return true;
}

bool line_text(const char *text, void *to)
{
	*(const char **)to = text;
	return *text != '\0';
}

static int line_take(const struct line *line, const struct line_option *o, void *values)
{
	void *to = (char *)values + o->at;

	if (!o->value)
		*(int *)to = 1;
	else if (!(o->parse ? o->parse(optarg, to) : line_int(optarg, o->least, o->most, to)))
		return o->letter
			       ? line_wrong(line, "'%s' is not a value for -%c.", optarg, o->letter)
			       : line_wrong(line, "'%s' is not a value for --%s.", optarg, o->name);
	return -1;
}

/* ':', '?' */
static int line_unknown(const struct line *line, int kind, char **argv)
{
	if (kind == ':')
		return line_wrong(line, "%s needs a value.", argv[optind - 1]);
	if (optopt > 0 && optopt < 128)
		return line_wrong(line, "unknown option -%c.", optopt);
	return line_wrong(line, "unknown option %s.", argv[optind - 1]);
}

int line_parse(const struct line *line, void *values, int argc, char **argv)
{
	struct option longs[OPTIONS + 2] = {{"help", no_argument, NULL, 'h'}};
	char letters[2 * OPTIONS + 3] = ":h";
	const struct line_option *o = line->options;
	int n = 0, used = 2, found, code = -1;

	for (; o[n].name; n++) {
		longs[n + 1] = (struct option){o[n].name, o[n].value != NULL, NULL, NAMED + n};
		if (!o[n].letter)
			continue;
		letters[used++] = o[n].letter;
		if (o[n].value)
			letters[used++] = ':';
	}
	opterr = 0;
	while (code < 0 && (found = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		if (found == 'h')
			return line_help(line);
		if (found == ':' || found == '?')
			return line_unknown(line, found, argv);
		for (int i = 0; i < n; i++)
			if (found == NAMED + i || found == o[i].letter)
				code = line_take(line, &o[i], values);
	}
	if (code < 0 && optind < argc && !line->operands)
		return line_wrong(line, "'%s' belongs to no option.", argv[optind]);
	return code;
}
