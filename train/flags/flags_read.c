/* Finds the flags among the words of a command line. */
#include "train/flags/flags.h"

#include <ctype.h>
#include <locale.h>
#include <string.h>

/* A flag among the words [first, next). The value's words are [value, next), and the first of them
 * begins at text; it may be in the flag's own word. */
struct flag_words {
	const struct flag *flag; /* NULL: the word is the program's own */
	int first, value, next;
	const char *text; /* NULL: there is none */
};

/* Whether "-p29500" or "-g0,1" is a short flag with its value. "-print" is the program's own. */
static bool has_value_attached(const char *word)
{
	return isdigit((unsigned char)word[2]) && word[2 + strspn(word + 2, "0123456789,")] == '\0';
}

static const struct flag *flags_read_lettered(const char *word)
{
	for (int i = 0; i < FLAGS; i++)
		if (flags[i].letter && word[1] == flags[i].letter &&
		    (word[2] == '\0' || has_value_attached(word)))
			return &flags[i];
	return NULL;
}

/* Whether a word behind the list's first one belongs to it. "2024.txt" is the program's own. */
static bool is_of_list(const char *word)
{
	if (strncmp(word, "GPU-", 4) == 0 || strncmp(word, "MIG-", 4) == 0)
		return true;
	return isdigit((unsigned char)*word) && word[strspn(word, "0123456789,")] == '\0';
}

static struct flag_words find_at(int argc, char *const *argv, int at)
{
	const char *word = argv[at];
	struct flag_words found = {.first = at, .value = at, .next = at + 1};
	bool is_long = strncmp(word, "--", 2) == 0;
	size_t bytes = is_long ? strcspn(word + 2, "=") : 0;

	if (word[0] != '-')
		return found;
	found.flag = is_long ? flag_named(word + 2, bytes) : flags_read_lettered(word);
	if (!found.flag)
		return found;
	if (is_long && word[2 + bytes] == '=') {
		found.text = word + 2 + bytes + 1;
		return found;
	}
	if (!is_long && word[2] != '\0') {
		found.text = word + 2;
	} else if (at + 1 < argc && strncmp(argv[at + 1], "--", 2) != 0) {
		found.text = argv[at + 1];
		found.value = at + 1;
		found.next = at + 2;
	}
	if (found.text && found.flag->kind == FLAG_GPUS)
		while (found.next < argc && is_of_list(argv[found.next]))
			found.next++;
	return found;
}

static tutti_status set_found(tutti_train_options *options, const struct flag_words *found,
			      char *const *argv)
{
	char where[16];

	snprintf(where, sizeof where, "--%s", found->flag->name);
	if (!found->text)
		return fail_invalid("%s needs a value: %s. One that begins with -- follows '='.",
				    where, found->flag->wanted);
	flag_clear(options, found->flag);
	TRY(flag_set(options, found->flag, where, found->text));
	for (int i = found->value + 1; i < found->next; i++)
		TRY(flag_set(options, found->flag, where, argv[i]));
	return TUTTI_OK;
}

/* The number of words before "--". */
static int count_words(int argc, char *const *argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--") == 0)
			return i;
	return argc;
}

/* Sets the flags of argv: --config, or all others. */
static tutti_status set_all(tutti_train_options *options, int words, char *const *argv,
			    bool only_file)
{
	for (int i = 1; i < words;) {
		struct flag_words found = find_at(words, argv, i);
		if (found.flag && flag_is_file(found.flag) == only_file)
			TRY(set_found(options, &found, argv));
		i = found.next;
	}
	return TUTTI_OK;
}

/* Returns how many words are left. */
static int flags_read_take_out(int argc, int words, char **argv)
{
	int left = argc > 0;

	for (int i = 1; i < words;) {
		struct flag_words found = find_at(words, argv, i);
		if (!found.flag)
			argv[left++] = argv[i];
		i = found.next;
	}
	for (int i = words; i < argc; i++)
		argv[left++] = argv[i];
	if (left < argc)
		argv[left] = NULL;
	return left;
}

static tutti_status flags_read_check_arguments(const tutti_train_options *options, const int *argc,
					       char *const *argv)
{
	const tutti_train_options zero = {0};

	if (!options || !argc != !argv || (argc && *argc < 0))
		return fail_invalid("tutti_train_config_read needs options, and argc and argv of "
				    "main or NULL for both.");
	if (memcmp(options->reserved, zero.reserved, sizeof zero.reserved) != 0)
		return fail_invalid(
			"tutti_train_options.reserved is not zero: zero-initialise it.");
	for (int i = 0; argc && i < *argc; i++)
		if (!argv[i])
			return fail_invalid("tutti_train_config_read: argv[%d] is NULL, but argc "
					    "is %d.",
					    i, *argc);
	return TUTTI_OK;
}

static tutti_status flags_read_check_together(const tutti_train_options *options)
{
	if (options->num_gpus > 0 && options->devices > 0 && options->num_gpus != options->devices)
		return fail_invalid("--devices %d and the %d GPUs of --gpus %s do not go "
				    "together: each GPU has a rank. tuttirun -n starts more ranks "
				    "than GPUs.",
				    options->devices, options->num_gpus, path_shown(options->gpus));
	return TUTTI_OK;
}

static tutti_status flags_read_all(tutti_train_options *options, int words, char *const *argv)
{
	TRY(set_all(options, words, argv, true));
	if (options->config_file[0])
		TRY(flags_read_file(options, options->config_file));
	TRY(set_all(options, words, argv, false));
	return flags_read_check_together(options);
}

tutti_status tutti_train_config_read(tutti_train_options *options, int *argc, char **argv)
{
	TRY(flags_read_check_arguments(options, argc, argv));
	int words = argc ? count_words(*argc, argv) : 0;
	tutti_train_options read = *options;
	locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	if (!plain)
		return fail_no_memory("a locale");
	locale_t before = uselocale(plain); /* of this thread: a number has a point everywhere */
	tutti_status status = flags_read_all(&read, words, argv);
	uselocale(before);
	freelocale(plain);
	TRY(status);
	*options = read;
	if (argc)
		*argc = flags_read_take_out(*argc, words, argv);
	return TUTTI_OK;
}
