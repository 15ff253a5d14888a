/* Command lines for tests of flags. */
#ifndef TESTS_TRAIN_FLAGS_WORDS_H
#define TESTS_TRAIN_FLAGS_WORDS_H

#include <tutti/train.h>

enum { WORDS_MAX = 24 };

struct words {
	int argc;
	char *argv[WORDS_MAX + 1];
	char text[1024];
};

/* "prog" and the words of line, which single spaces divide; "''" is an empty one. */
void words_split(struct words *words, const char *line);
/* The words of argv behind argv[0], with single spaces; argv ends with NULL. */
const char *words_joined(const struct words *words);
/* Reads line into options. The words are then those left. */
tutti_status words_read(struct words *words, tutti_train_options *options, const char *line);

#endif
