/* Command lines: a program's options are a table, which reads the line and prints --help. */
#ifndef PERF_LINE_H
#define PERF_LINE_H

#include <stdbool.h>
#include <stddef.h>

struct line_option {
	const char *name;  /* of --name; NULL: the table ends */
	char letter;       /* of -n; 0: it has none */
	const char *value; /* what --help calls it; NULL: it has none, and an int becomes 1 */
	size_t at;         /* where in the program's struct the value goes */
	int least, most;   /* of an int */
	/* Writes the value; false: it is none. NULL: an int. */
	bool (*parse)(const char *text, void *to);
	const char *help; /* lines, the default in parentheses */
};

struct line {
	const struct line_option *options; /* at most 40 */
	const char *operands;              /* of the usage line; NULL: none are allowed */
	const char *about;                 /* at the end of --help; NULL: nothing */
};

/* Writes the values into the program's struct. -1, or the program's exit code: 0 after --help, 2
 * after a message about a wrong line, 3 when --help could not be written. optind is the first
 * operand's place. */
int line_parse(const struct line *line, void *values, int argc, char **argv);
/* Prints a message and the usage line. Returns 2. */
__attribute__((format(printf, 2, 3))) int line_wrong(const struct line *line, const char *format,
						     ...);
/* Digits and nothing else: no sign, no blank. */
bool line_int(const char *text, int least, int most, int *value);
bool line_text(const char *text, void *to); /* a const char *, not empty */

#endif
