/* A trainer's flags.
 *
 *   flags.c           the flags and their values: tutti_train_config_read, _help and _rest
 *   flags_file.c      the same flags in a JSON file; no_flags_file.c without jansson
 *   flags_spawn.c     the ranks that flags ask for */
#ifndef TRAIN_FLAGS_H
#define TRAIN_FLAGS_H

#include "train/base/base.h"

#include <tutti/train.h>

enum flag_kind {
	FLAG_COUNT,     /* an int                                              */
	FLAG_AUTO,      /* the same, or "auto"                                 */
	FLAG_REAL,
	FLAG_STRATEGY,
	FLAG_PRECISION,
	FLAG_PATH,
	FLAG_GPUS       /* in argv one or more words                           */
};

struct flag {
	const char *name; /* of --name, and the key in a file                  */
	char letter;      /* 0: none                                           */
	enum flag_kind kind;
	size_t field;     /* offset in tutti_train_options                     */
	int most;         /* of a count, from 1                                */
	const char *wanted; /* "a number from 1 to 4096, or auto"              */
};

enum { FLAGS = 11 };
extern const struct flag flags[FLAGS];

/* NULL: there is none of this name, which has so many bytes. */
const struct flag *flag_named(const char *name, size_t bytes);
/* Whether it is --config, which no file has. */
bool flag_is_file(const struct flag *flag);

/* Sets the flag. where: who gives the value, for messages, such as --devices. INVALID: text is no
 * value of it; options are as they were. A list of GPUs gets longer: flag_clear comes first. */
tutti_status flag_set(tutti_train_options *options, const struct flag *flag, const char *where,
                      const char *text);
/* Forgets GPUs that were given before. */
void flag_clear(tutti_train_options *options, const struct flag *flag);

/* Sets what the file has. */
tutti_status flags_read_file(tutti_train_options *options, const char *path);
/* The same of a file's text; path is for messages. */
tutti_status flags_read_text(tutti_train_options *options, const char *path, const char *text,
                             size_t bytes);

enum { WORD_SHOWN_BYTES = 100 };
/* The begin of a word of so many foreign bytes, as messages have it: what is no text as \xff. */
const char *word_shown(char shown[WORD_SHOWN_BYTES], const char *word, size_t bytes);

#endif
