/* tutti-trace's command line. */
#ifndef TUTTI_TRACE_ARGUMENTS_H
#define TUTTI_TRACE_ARGUMENTS_H

#include <stdbool.h>

struct arguments {
	bool merges;        /* else it dumps                             */
	const char *output; /* NULL: stdout                              */
	bool all;           /* merge: every collective in the report    */
	char **words;       /* processes or files                        */
	int word_count;
};

/* -1: go on; else the exit code, after help on stdout or a message on stderr. */
int arguments_parse(struct arguments *arguments, int argc, char **argv);
bool parse_pid(const char *word, int *pid);

#endif
