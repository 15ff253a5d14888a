/* Within single quotes a shell reads all but a single quote as it is. */
#include "quote.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static bool quote_is_plain(const char *word)
{
	const char *at = word;

	while (isalnum((unsigned char)*at) || (*at && strchr("_-+=:,./@%", *at)))
		at++;
	return at > word && *at == '\0';
}

void quote_write(FILE *to, const char *word)
{
	if (quote_is_plain(word)) {
		fputs(word, to);
		return;
	}
	fputc('\'', to);
	for (; *word; word++)
		if (*word == '\'')
			fputs("'\\''", to);
		else
			fputc(*word, to);
	fputc('\'', to);
}
