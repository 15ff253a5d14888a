/* stdout of the tools: half an answer must not pass for a whole one. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <stdbool.h>

#define OUTPUT_FAILED 1

/* Before anything is opened, which would take its place. False after a message: there is none. */
bool output_open(void);
/* The tool's exit code: OUTPUT_FAILED after a message where all went well but that what was printed cannot be written. */
int output_end(int code);

#endif
