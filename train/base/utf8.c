/* UTF-8 of RFC 3629: the shortest form of each character, no surrogates, up to U+10FFFF. */
#include "train/base/base.h"

/* The bytes of the first character of text, or 0 if it is not valid. */
static size_t utf8_character_bytes(const unsigned char *text)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t bytes = text[0] < 0x80   ? 1
		       : text[0] < 0xc0 ? 0
		       : text[0] < 0xe0 ? 2
		       : text[0] < 0xf0 ? 3
		       : text[0] < 0xf8 ? 4
					: 0;
	uint32_t code = bytes > 1 ? text[0] & (0xffu >> (bytes + 1)) : text[0];

	/* The end of the text is not a continuation byte, so nothing behind it is read. */
	for (size_t i = 1; i < bytes; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (text[i] & 0x3f);
	}
	if (bytes && (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)))
		return 0;
	return bytes;
}

bool utf8_is_valid(const char *text)
{
	const unsigned char *next = (const unsigned char *)text;

	while (*next) {
		size_t bytes = utf8_character_bytes(next);
		if (bytes == 0)
			return false;
		next += bytes;
	}
	return true;
}
