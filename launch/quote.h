/* Words for a shell to read. */
#ifndef LAUNCH_QUOTE_H
#define LAUNCH_QUOTE_H

#include <stdio.h>

/* A word without special characters as it is, others within single quotes. */
void quote_write(FILE *to, const char *word);

#endif
