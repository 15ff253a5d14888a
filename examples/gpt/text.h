/* Text as tokens: every different byte that occurs is one. */
#ifndef EXAMPLES_GPT_TEXT_H
#define EXAMPLES_GPT_TEXT_H

#include <stddef.h>

struct text {
	unsigned char *tokens;
	size_t count;
	int vocab;
	unsigned char bytes[256];       /* of token i */
};

/* Reads files, or all files of folders in the order of their names, one after the other. Returns 0, or -1
 * with a message in error: nothing there, unreadable, or fewer than at_least bytes in all. */
int text_read(struct text *text, char *const *paths, int count, size_t at_least, char error[256]);
/* The token of a byte; of one that never occurs, the first token. */
unsigned char text_token(const struct text *text, char byte);
void text_free(struct text *text);

#endif
