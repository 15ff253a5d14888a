/* Messages and stdout of the tools: half an answer must not pass for a whole one. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <stdbool.h>

#define OUTPUT_FAILED 1
#define USAGE_WRONG   2

/* Explains on stderr what is wrong with the command line. Returns the exit code, USAGE_WRONG. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Checks that there is a stdout, before a file is opened that would take its descriptor. False
 * after a message. */
bool output_open(void);
/* The tool's exit code: code, or OUTPUT_FAILED after a message if stdout could not be written. */
int output_end(int code);

#endif
