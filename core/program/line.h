/* Command lines: a program's options are a table, which reads the line and prints --help. */
#ifndef CORE_PROGRAM_LINE_H
#define CORE_PROGRAM_LINE_H

#include <stdbool.h>
#include <stddef.h>

/* What a value is, and where it goes. */
enum line_kind {
	LINE_INT,    /* an int from least to most; without value: 1                     */
	LINE_REAL,   /* a double from least to most                                     */
	LINE_BYTES,  /* a size_t of least at the least, such as 64K                     */
	LINE_CHOICE, /* an int: the number of a name in choices, the first one's is least */
	LINE_TEXT,   /* a const char *, not empty                                       */
	LINE_BOOL    /* of an option without value: a bool, true                        */
};

struct line_option {
	const char *name;   /* of --name; NULL: the table ends                              */
	char letter;        /* of -n; 0: it has none                                        */
	const char *value;  /* what --help calls it; NULL: it has none; "[=X]": --name=X or none */
	size_t at;          /* where in the program's struct the value goes                 */
	double least, most;
	/* Writes the value, instead of what kind says. text: NULL where there is none. False: it is
	 * no value. */
	bool (*parse)(const char *text, void *to);
	const char *help;   /* lines, the default in parentheses                            */
	enum line_kind kind;
	const char *const *choices; /* end with NULL                                        */
	const char *wanted; /* what a value is, for messages; NULL: as the kind says        */
	bool takes_numbers; /* words with digits only behind the value are values, too: -g 0 1 */
};

struct line_table {
	const struct line_option *options; /* at most 40                                    */
	const char *operands; /* of the usage line; NULL: none are allowed                  */
	const char *about;    /* in --help before the options; NULL: nothing                */
	const char *after;    /* and behind them                                            */
	const char *usage;    /* lines; NULL: made of the options and operands              */
	int unwritten;        /* the exit code where --help cannot be written; 0: 3         */
	bool is_launcher;     /* options end before the first operand                       */
	/* Where options have other spellings, too: writes the usual one over the word at *at, or
	 * over its address, before it is read. Also for the first word behind the options. */
	void (*respell)(void *values, char **at);
};

/* Writes the values into the program's struct. Returns -1, or the program's exit code: 0 after
 * --help and --version, unwritten where these could not be written, 2 after a message about a wrong
 * line. optind is the first operand's place. */
int line_parse(const struct line_table *line, void *values, int argc, char **argv);
/* The number of a name in a list that ends with NULL, or -1. */
int line_find(const char *const *names, const char *name);
/* Prints a message, and where to find help. Returns 2. */
__attribute__((format(printf, 1, 2))) int line_wrong(const char *format, ...);

#endif
