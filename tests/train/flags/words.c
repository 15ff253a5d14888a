/* Command lines as one text. */
#include "tests/train/flags/words.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

void words_split(struct words *words, const char *line)
{
	static char program[] = "prog";
	char *next = words->text;

	*words = (struct words){.argc = 1, .argv = {program}};
	assert_true(strlen(line) < sizeof words->text);
	strcpy(words->text, line);
	while (*next) {
		assert_true(words->argc < WORDS_MAX);
		words->argv[words->argc++] = strncmp(next, "''", 2) == 0 ? next + 2 : next;
		next += strcspn(next, " ");
		if (*next)
			*next++ = '\0';
	}
}

const char *words_joined(const struct words *words)
{
	static char joined[1100];
	size_t used = 0;

	joined[0] = '\0';
	for (int i = 1; i < words->argc; i++)
		used += (size_t)snprintf(joined + used, sizeof joined - used, "%s%s",
					 i > 1 ? " " : "", words->argv[i]);
	assert_null(words->argv[words->argc]);
	return joined;
}

tutti_status words_read(struct words *words, tutti_train_options *options, const char *line)
{
	words_split(words, line);
	return tutti_train_config_read(options, &words->argc, words->argv);
}
