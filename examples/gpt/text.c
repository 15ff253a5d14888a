/* Reads text and counts its alphabet. */
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int text_complain(char error[256], const char *path)
{
	snprintf(error, 256, "cannot read %.160s: %s", path, strerror(errno));
	return -1;
}

static int text_append(struct text *text, const void *bytes, size_t count)
{
	unsigned char *longer = realloc(text->tokens, text->count + count + 1);

	if (!longer)
		return -1;
	memcpy(longer + text->count, bytes, count);
	text->tokens = longer;
	text->count += count;
	return 0;
}

static int text_read_file(struct text *text, const char *path, char error[256])
{
	char piece[65536];
	size_t got;
	FILE *file = fopen(path, "rb");

	if (!file)
		return text_complain(error, path);
	errno = 0;
	while ((got = fread(piece, 1, sizeof piece, file)) > 0)
		if (text_append(text, piece, got) != 0)
			break;
	int failed = ferror(file) || got > 0;
	if (failed)
		text_complain(error, path);
	fclose(file);
	return failed ? -1 : 0;
}

/* Links are left out: in a folder they mostly lead to its other files. */
static int is_file(const char *path)
{
	struct stat what;
	return lstat(path, &what) == 0 && S_ISREG(what.st_mode);
}

static int read_folder(struct text *text, const char *path, char error[256])
{
	struct dirent **names;
	int count = scandir(path, &names, NULL, alphasort), status = 0;

	if (count < 0)
		return text_complain(error, path);
	for (int i = 0; i < count; i++) {
		char file[4096];
		snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
		if (status == 0 && is_file(file))
			status = text_read_file(text, file, error);
		free(names[i]);
	}
	free(names);
	return status;
}

static void count_alphabet(struct text *text)
{
	int token_of[256] = {0};

	for (size_t i = 0; i < text->count; i++)
		token_of[text->tokens[i]] = 1;
	for (int byte = 0; byte < 256; byte++)
		if (token_of[byte]) {
			token_of[byte] = text->vocab;
			text->bytes[text->vocab++] = (unsigned char)byte;
		}
	for (size_t i = 0; i < text->count; i++)
		text->tokens[i] = (unsigned char)token_of[text->tokens[i]];
}

int text_read(struct text *text, char *const *paths, int count, size_t at_least, char error[256])
{
	struct stat what;

	memset(text, 0, sizeof *text);
	for (int i = 0; i < count; i++) {
		int status = stat(paths[i], &what) != 0 ? text_complain(error, paths[i])
			     : S_ISDIR(what.st_mode)    ? read_folder(text, paths[i], error)
							: text_read_file(text, paths[i], error);
		if (status != 0) {
			text_free(text);
			return -1;
		}
	}
	if (text->count < at_least) {
		snprintf(error, 256,
			 "the text has %zu bytes, too few: one sequence and its targets take %zu",
			 text->count, at_least);
		text_free(text);
		return -1;
	}
	count_alphabet(text);
	return 0;
}

unsigned char text_token(const struct text *text, char byte)
{
	for (int token = 0; token < text->vocab; token++)
		if (text->bytes[token] == (unsigned char)byte)
			return (unsigned char)token;
	return 0;
}

void text_free(struct text *text)
{
	free(text->tokens);
	text->tokens = NULL;
}
