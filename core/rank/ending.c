/* Exit codes and signals as text. */
#include "core/rank/ending.h"

#include <stdio.h>
#include <string.h>

int ending_code(const struct rank_ending *e)
{
	return e->signal ? 128 + e->signal : e->code;
}

void ending_words(char text[ENDING_BYTES], const char *name, const struct rank_ending *e)
{
	if (e->signal)
		snprintf(text, ENDING_BYTES, "%s was killed by signal %d (%s)", name, e->signal,
			 strsignal(e->signal));
	else
		snprintf(text, ENDING_BYTES, "%s exited with code %d", name, e->code);
}
