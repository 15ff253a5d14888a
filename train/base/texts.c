/* Compares a text of all ranks. Ranks compare a hash of the text. Only if hashes differ rank 0's
 * text is broadcast, and the first rank whose text differs writes the message. */
#include "train/base/base.h"

#include <stdlib.h>
#include <string.h>

enum { EXPLANATION_BYTES = 480, SHOWN_BYTES = 150 };

struct comparing {
	tutti_comm *comm;
	int rank, size;
	const char *what, *advice;
	char *text; /* this rank's */
	size_t bytes;
};

static tutti_status texts_no_memory(const struct comparing *c)
{
	return fail_no_memory("comparing %s", c->what);
}

/* The number of the first line that differs, or -1. *a and *b then point to the line. */
static int texts_first_difference(const char **a, const char **b)
{
	for (int line = 0; **a && **b; line++) {
		size_t a_bytes = strcspn(*a, "\n"), b_bytes = strcspn(*b, "\n");
		if (a_bytes != b_bytes || memcmp(*a, *b, a_bytes) != 0)
			return line;
		*a += a_bytes + 1;
		*b += b_bytes + 1;
	}
	return -1;
}

static int texts_shown(const char *line)
{
	size_t bytes = strcspn(line, "\n");
	return bytes < SHOWN_BYTES ? (int)bytes : SHOWN_BYTES;
}

/* The rank whose text differs in the first line writes the message; of several, the lowest. */
static tutti_status texts_explain(const struct comparing *c, const char *first_rank, int32_t *lines)
{
	const char *own = c->text;
	char message[EXPLANATION_BYTES] = "";
	int reporter = 0;

	lines[c->rank] = texts_first_difference(&own, &first_rank);
	TRY(tutti_all_gather(&lines[c->rank], lines, 1, TUTTI_I32, c->comm, NULL));
	for (int r = 1; r < c->size; r++)
		if (lines[r] >= 0 && (lines[reporter] < 0 || lines[r] < lines[reporter]))
			reporter = r;
	if (reporter == c->rank)
		snprintf(message, sizeof message,
			 "The %s differ: rank %d has %.*s, but rank 0 has %.*s; %s.", c->what,
			 reporter, texts_shown(own), own, texts_shown(first_rank), first_rank,
			 c->advice);
	TRY(tutti_broadcast(message, message, sizeof message, TUTTI_I8, reporter, c->comm, NULL));
	return fail(TUTTI_ERR_MISMATCH, "%s", message);
}

/* bytes: of rank 0's text. */
static tutti_status texts_explain_difference(const struct comparing *c, size_t bytes)
{
	size_t line_bytes = (size_t)c->size * sizeof(int32_t);
	char *memory = calloc(1, line_bytes + bytes + 1);
	char *first_rank = memory ? memory + line_bytes : NULL;
	tutti_status status = error_agree(c->comm, memory ? TUTTI_OK : texts_no_memory(c));

	if (status == TUTTI_OK && c->rank == 0)
		memcpy(first_rank, c->text, bytes);
	if (status == TUTTI_OK)
		status = tutti_broadcast(first_rank, first_rank, bytes, TUTTI_I8, 0, c->comm, NULL);
	if (status == TUTTI_OK)
		status = texts_explain(c, first_rank, (int32_t *)(void *)memory);
	free(memory);
	return status;
}

/* Stands for the text of a rank. */
struct digest {
	uint64_t bytes, hash;
};

static tutti_status base_texts_compare(const struct comparing *c, struct digest *all)
{
	bool differs = false;

	all[c->rank] = (struct digest){c->bytes, random_hash(c->text, c->bytes)};
	TRY(tutti_all_gather(&all[c->rank], all, sizeof *all, TUTTI_U8, c->comm, NULL));
	for (int r = 1; r < c->size; r++)
		differs = differs || memcmp(&all[r], &all[0], sizeof *all) != 0;
	return differs ? texts_explain_difference(c, (size_t)all[0].bytes) : TUTTI_OK;
}

static tutti_status texts_make_text(struct comparing *c, void (*write)(FILE *text, const void *of),
				    const void *of)
{
	FILE *stream = open_memstream(&c->text, &c->bytes);

	if (!stream)
		return texts_no_memory(c);
	write(stream, of);
	fprintf(stream, "nothing more\n");
	return fclose(stream) == 0 ? TUTTI_OK : texts_no_memory(c);
}

tutti_status texts_compare(tutti_comm *comm, const char *what, const char *advice,
			   void (*write)(FILE *text, const void *of), const void *of)
{
	struct comparing c = {.comm = comm,
			      .rank = tutti_rank(comm),
			      .size = tutti_size(comm),
			      .what = what,
			      .advice = advice};
	struct digest *all = calloc((size_t)c.size, sizeof *all);
	tutti_status status = texts_make_text(&c, write, of);

	if (!all)
		status = texts_no_memory(&c);
	status = error_agree(comm, status);
	if (status == TUTTI_OK)
		status = base_texts_compare(&c, all);
	free(c.text);
	free(all);
	return status;
}

/* ---- UTF-8 ---- */

/* UTF-8 of RFC 3629: the shortest form of each character, no surrogates, up to U+10FFFF. */

/* The bytes of the first character of text, or 0 if it is not valid. */
static size_t texts_utf8_character_bytes(const unsigned char *text)
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
		size_t bytes = texts_utf8_character_bytes(next);
		if (bytes == 0)
			return false;
		next += bytes;
	}
	return true;
}
