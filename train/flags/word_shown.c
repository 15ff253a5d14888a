/* Words that somebody typed, or that are in a file, in messages. */
#include "train/flags/flags.h"

#include <string.h>

/* Bytes that a character of UTF-8 has by its first one; 1 for what is no first byte. */
static size_t word_shown_character_bytes(unsigned char first)
{
	return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}

/* Adds the next character of word as it is, or a byte as \xff. Returns how many bytes of word. */
static size_t show_next(char *to, const char *word, size_t left)
{
	unsigned char first = (unsigned char)*word;
	size_t n = word_shown_character_bytes(first);
	char character[5] = "";

	if (n <= left)
		memcpy(character, word, n);
	if (n <= left && first >= 0x20 && first != 0x7f && utf8_is_valid(character)) {
		strcpy(to, character);
		return n;
	}
	snprintf(to, 5, "\\x%02x", first);
	return 1;
}

const char *word_shown(char shown[WORD_SHOWN_BYTES], const char *word, size_t bytes)
{
	size_t at = 0, used = 0;

	shown[0] = '\0';
	while (at < bytes && used + 8 < WORD_SHOWN_BYTES) {
		at += show_next(shown + used, word + at, bytes - at);
		used += strlen(shown + used);
	}
	if (at < bytes)
		strcpy(shown + used, "...");
	return shown;
}
