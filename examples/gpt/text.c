/* Reads text and counts its alphabet. */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool text_read_file(struct text *text, const char *path)
{
	enum { PIECE = 1 << 16 };
	FILE *file = fopen(path, "rb");
	size_t got = file ? 1 : 0;

	while (got > 0) {
		unsigned char *longer = realloc(text->tokens, text->count + PIECE);
		if (!longer)
			break;
		text->tokens = longer;
		text->count += got = fread(longer + text->count, 1, PIECE, file);
	}
	bool is_read = file && got == 0 && !ferror(file);
	if (!is_read)
		fprintf(stderr, "gpt: cannot read %s: %s\n", path, strerror(errno));
	if (file)
		fclose(file);
	return is_read;
}

/* A file, or all of a folder. Links there are left out: they mostly lead to its other files. */
static bool text_read_path(struct text *text, const char *path)
{
	struct dirent **names;
	struct stat what;
	int count = scandir(path, &names, NULL, alphasort);
	bool is_read = count >= 0 || text_read_file(text, path);

	for (int i = 0; i < count; i++) {
		char file[4096];
		snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
		if (is_read && lstat(file, &what) == 0 && S_ISREG(what.st_mode))
			is_read = text_read_file(text, file);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
	return is_read;
}

static void text_number_bytes(struct text *text)
{
	int token_of[GPT_MAX_VOCAB] = {0};

	for (size_t i = 0; i < text->count; i++)
		token_of[text->tokens[i]] = 1;
	for (int byte = 0; byte < GPT_MAX_VOCAB; byte++)
		if (token_of[byte]) {
			token_of[byte] = text->vocab;
			text->bytes[text->vocab++] = (unsigned char)byte;
		}
	for (size_t i = 0; i < text->count; i++)
		text->tokens[i] = (unsigned char)token_of[text->tokens[i]];
}

bool text_read(struct text *text, char *const *paths, int count, size_t at_least)
{
	for (int i = 0; i < count; i++)
		if (!text_read_path(text, paths[i]))
			return false;
	if (text->count < at_least) {
		fprintf(stderr,
			"gpt: the text has %zu bytes, too few: one sequence and its targets take "
			"%zu\n",
			text->count, at_least);
		return false;
	}
	text_number_bytes(text);
	return true;
}
