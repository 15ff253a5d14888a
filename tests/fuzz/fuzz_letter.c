/* Would break: the tuttirun that another one starts on a machine, by what comes instead of a
 * letter. Of one that is whole, tuttirun's command line is read as well. */
#include "fuzz.h"

#include "launch/agent.h"
#include "launch/options.h"

#include <getopt.h>
#include <string.h>

static void read_whole(struct letter *letter, const char *end)
{
	struct options options;

	MUST(letter->folder && letter->words[0] && !letter->words[letter->word_count]);
	for (int i = 0; i < letter->variable_count; i++)
		MUST(strchr(letter->variables[i], '='));
	MUST(letter->input && letter->input + letter->input_bytes == end);
	optind = 0; /* a new line, for getopt */
	if (options_parse(&options, letter->word_count, letter->words) == -1)
		MUST(*options.program);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	struct letter letter;
	char head[AGENT_HEAD_BYTES], *rest;
	size_t count = n > sizeof head ? n - sizeof head : 0;

	input_bytes(&in, head, sizeof head);
	MUST(letter_bytes(head) <= AGENT_BYTES_MAX);
	rest = malloc(count + 1);
	MUST(rest);
	input_bytes(&in, rest, count);
	if (letter_read(&letter, rest, count))
		read_whole(&letter, rest + count);
	letter_free(&letter);
	free(rest);
}
