/* The flags of a trainer, and how words of a command line become their values. */
#include "train/flags/flags.h"

#include "core/words/device_list.h"
#include "core/words/nearest.h"
#include "core/words/number.h"

#include <ctype.h>
#include <float.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* ---- the flags, and what --help says of them ---- */

/* name, letter, kind, field, the most of a count, what is wanted, and what --help says */
#define FLAG_LIST(X)                                                                               \
	X("devices", 0, FLAG_AUTO, devices, 4096, "a number from 1 to 4096, or auto",              \
	  "  --devices N           ranks on this node; auto: one for each GPU or CPU\n")           \
	X("nodes", 0, FLAG_COUNT, nodes, 65536, "a number from 1 to 65536",                        \
	  "  --nodes N             nodes, each with as many ranks\n")                              \
	X("strategy", 0, FLAG_STRATEGY, config.strategy, 0,                                        \
	  "ddp, zero1, zero2, fsdp, hsdp or local_sgd",                                            \
	  "  --strategy S          ddp, zero1, zero2, fsdp, hsdp or local_sgd\n")                  \
	X("precision", 0, FLAG_PRECISION, precision, 0, "32, bf16, bf16-mixed or 16-mixed",        \
	  "  --precision P         32, bf16, bf16-mixed or 16-mixed\n")                            \
	X("accumulate", 0, FLAG_COUNT, accumulate, 65536, "a number from 1 to 65536",              \
	  "  --accumulate N        micro-batches of a step\n")                                     \
	X("clip", 0, FLAG_REAL, config.max_grad_norm, 0,                                           \
	  "a norm: a finite number, or 0 for no clipping",                                         \
	  "  --clip X              the largest norm of a step's gradients; 0: any\n")              \
	X("resume", 0, FLAG_PATH, resume, 0, "a folder of checkpoints, or auto",                   \
	  "  --resume DIR          goes on from the newest checkpoint there; auto: where it "      \
	  "saves\n")                                                                               \
	X("test", 0, FLAG_PATH, test, 0, "a checkpoint",                                           \
	  "  --test CHECKPOINT     evaluates it, and trains nothing\n")                            \
	X("config", 0, FLAG_PATH, config_file, 0, "a JSON file",                                   \
	  "  --config FILE         these flags in JSON; those of the command line win\n")          \
	X("gpus", 'g', FLAG_GPUS, gpus, 0, "GPUs, each of them once, such as 0 1",                 \
	  "  -g, --gpus 0 1        these GPUs, and a rank for each\n")                             \
	X("port", 'p', FLAG_COUNT, port, 65535, "a port from 1 to 65535",                          \
	  "  -p, --port N          where the ranks meet\n")

const struct flag flags[FLAGS] = {
#define ROW(name, letter, kind, member, most, wanted, help)                                        \
	{name, letter, kind, offsetof(tutti_train_options, member), most, wanted},
	FLAG_LIST(ROW)
#undef ROW
};

const char *tutti_train_config_help(void)
{
#define ROW(name, letter, kind, member, most, wanted, help) help
	return FLAG_LIST(ROW);
#undef ROW
}

const struct flag *flag_named(const char *name, size_t bytes)
{
	for (int i = 0; i < FLAGS; i++)
		if (strlen(flags[i].name) == bytes && memcmp(flags[i].name, name, bytes) == 0)
			return &flags[i];
	return NULL;
}

bool flag_is_file(const struct flag *flag)
{
	return flag->field == offsetof(tutti_train_options, config_file);
}

/* ---- words that somebody typed, or that are in a file, in messages ---- */

/* Bytes that a character of UTF-8 has by its first one; 1 for what is no first byte. */
static size_t flags_word_character_bytes(unsigned char first)
{
	return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}

/* Adds the next character of word as it is, or a byte as \xff. Returns how many bytes of word. */
static size_t flags_show_next(char *to, const char *word, size_t left)
{
	unsigned char first = (unsigned char)*word;
	size_t n = flags_word_character_bytes(first);
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
		at += flags_show_next(shown + used, word + at, bytes - at);
		used += strlen(shown + used);
	}
	if (at < bytes)
		strcpy(shown + used, "...");
	return shown;
}

/* ---- texts into the values of flags ---- */

/* The strategies by their numbers. */
static const char *const strategies[] = {"ddp", "zero1", "zero2", "fsdp", "hsdp", "local_sgd"};

/* As Lightning names them. A 16-bit parameter has an f32 master copy in any case. */
static const struct precision {
	const char *name;
	tutti_dtype param, grad, reduce;
	float loss_scale; /* below 0: dynamic */
} precisions[] = {
	{"32", TUTTI_F32, TUTTI_F32, TUTTI_F32, 0},
	{"bf16", TUTTI_BF16, TUTTI_BF16, TUTTI_BF16, 0},
	{"bf16-mixed", TUTTI_BF16, TUTTI_F32, TUTTI_F32, 0},
	{"16-mixed", TUTTI_F16, TUTTI_F32, TUTTI_F32, -1},
};

enum {
	STRATEGIES = sizeof strategies / sizeof *strategies,
	PRECISIONS = sizeof precisions / sizeof *precisions
};

static tutti_status flag_refuse(const struct flag *flag, const char *where, const char *text,
				const char *meant)
{
	char shown[WORD_SHOWN_BYTES];

	return fail_invalid("%s: '%s' is not %s%s%s%s", where,
			    word_shown(shown, text, strlen(text)), flag->wanted,
			    meant ? ": did you mean " : "", meant ? meant : "", meant ? "?" : ".");
}

static const char *flags_choice_name(const struct flag *flag, int i)
{
	return flag->kind == FLAG_STRATEGY ? strategies[i] : precisions[i].name;
}

static tutti_status flags_find_choice(const struct flag *flag, const char *where, const char *text,
				      int *choice)
{
	int choices = flag->kind == FLAG_STRATEGY ? STRATEGIES : PRECISIONS;
	struct nearest nearest = nearest_to(text, strlen(text));

	for (int i = 0; i < choices; i++) {
		if (strcmp(text, flags_choice_name(flag, i)) == 0) {
			*choice = i;
			return TUTTI_OK;
		}
		nearest_try(&nearest, flags_choice_name(flag, i));
	}
	return flag_refuse(flag, where, text, nearest.name);
}

static bool flags_read_real(const char *text, float *real)
{
	double read;

	if (!number_read_real(text, 0, FLT_MAX, &read) || (read > 0 && (float)read == 0))
		return false;
	*real = (float)read + 0; /* -0 is 0 */
	return true;
}

static bool flags_read_path(const char *text, char *path)
{
	if (!*text || strlen(text) >= TUTTI_FLAG_BYTES)
		return false;
	strcpy(path, text);
	return true;
}

static bool flags_read_gpus(tutti_train_options *options, const char *text)
{
	char list[sizeof options->gpus];

	strcpy(list, options->gpus);
	if (!device_list_add(list, sizeof list, text))
		return false;
	strcpy(options->gpus, list);
	options->num_gpus = device_list_count(list);
	return true;
}

static bool flags_read_auto(const char *text, int most, int *count)
{
	if (strcmp(text, "auto") != 0)
		return number_read_int(text, 1, most, count);
	*count = TUTTI_AUTO;
	return true;
}

static tutti_status flags_set_choice(tutti_train_options *options, const struct flag *flag,
				     const char *where, const char *text)
{
	int i = 0;

	TRY(flags_find_choice(flag, where, text, &i));
	if (flag->kind == FLAG_STRATEGY) {
		options->config.strategy = (tutti_strategy)i;
		return TUTTI_OK;
	}
	snprintf(options->precision, sizeof options->precision, "%s", precisions[i].name);
	options->config.param_dtype = precisions[i].param;
	options->config.grad_dtype = precisions[i].grad;
	options->config.reduce_dtype = precisions[i].reduce;
	options->config.loss_scale = precisions[i].loss_scale;
	return TUTTI_OK;
}

tutti_status flag_set(tutti_train_options *options, const struct flag *flag, const char *where,
		      const char *text)
{
	void *field = (char *)options + flag->field;
	bool is_good = false;

	switch (flag->kind) {
	case FLAG_COUNT:
		is_good = number_read_int(text, 1, flag->most, field);
		break;
	case FLAG_AUTO:
		is_good = flags_read_auto(text, flag->most, field);
		break;
	case FLAG_REAL:
		is_good = flags_read_real(text, field);
		break;
	case FLAG_PATH:
		is_good = flags_read_path(text, field);
		break;
	case FLAG_GPUS:
		is_good = flags_read_gpus(options, text);
		break;
	case FLAG_STRATEGY:
	case FLAG_PRECISION:
		return flags_set_choice(options, flag, where, text);
	}
	return is_good ? TUTTI_OK : flag_refuse(flag, where, text, NULL);
}

void flag_clear(tutti_train_options *options, const struct flag *flag)
{
	if (flag->kind != FLAG_GPUS)
		return;
	options->gpus[0] = '\0';
	options->num_gpus = 0;
}

/* ---- the flags among the words of a command line ---- */

/* A flag among the words [first, next). The value's words are [value, next), and the first of them
 * begins at text; it may be in the flag's own word. */
struct flag_words {
	const struct flag *flag; /* NULL: the word is the program's own */
	int first, value, next;
	const char *text; /* NULL: there is none */
};

/* Whether "-p29500" or "-g0,1" is a short flag with its value. "-print" is the program's own. */
static bool flags_has_value_attached(const char *word)
{
	return isdigit((unsigned char)word[2]) && word[2 + strspn(word + 2, "0123456789,")] == '\0';
}

static const struct flag *flags_lettered(const char *word)
{
	for (int i = 0; i < FLAGS; i++)
		if (flags[i].letter && word[1] == flags[i].letter &&
		    (word[2] == '\0' || flags_has_value_attached(word)))
			return &flags[i];
	return NULL;
}

/* Whether a word behind the list's first one belongs to it. "2024.txt" is the program's own. */
static bool flags_is_of_list(const char *word)
{
	if (strncmp(word, "GPU-", 4) == 0 || strncmp(word, "MIG-", 4) == 0)
		return true;
	return isdigit((unsigned char)*word) && word[strspn(word, "0123456789,")] == '\0';
}

static struct flag_words flags_find_at(int argc, char *const *argv, int at)
{
	const char *word = argv[at];
	struct flag_words found = {.first = at, .value = at, .next = at + 1};
	bool is_long = strncmp(word, "--", 2) == 0;
	size_t bytes = is_long ? strcspn(word + 2, "=") : 0;

	if (word[0] != '-')
		return found;
	found.flag = is_long ? flag_named(word + 2, bytes) : flags_lettered(word);
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
		while (found.next < argc && flags_is_of_list(argv[found.next]))
			found.next++;
	return found;
}

static tutti_status flags_set_found(tutti_train_options *options, const struct flag_words *found,
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
static int flags_count_words(int argc, char *const *argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--") == 0)
			return i;
	return argc;
}

/* Sets the flags of argv: --config, or all others. */
static tutti_status flags_set_all(tutti_train_options *options, int words, char *const *argv,
				  bool only_file)
{
	for (int i = 1; i < words;) {
		struct flag_words found = flags_find_at(words, argv, i);
		if (found.flag && flag_is_file(found.flag) == only_file)
			TRY(flags_set_found(options, &found, argv));
		i = found.next;
	}
	return TUTTI_OK;
}

/* Returns how many words are left. */
static int flags_take_out(int argc, int words, char **argv)
{
	int left = argc > 0;

	for (int i = 1; i < words;) {
		struct flag_words found = flags_find_at(words, argv, i);
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

static tutti_status flags_check_arguments(const tutti_train_options *options, const int *argc,
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

static tutti_status flags_check_together(const tutti_train_options *options)
{
	if (options->num_gpus > 0 && options->devices > 0 && options->num_gpus != options->devices)
		return fail_invalid("--devices %d and the %d GPUs of --gpus %s do not go "
				    "together: each GPU has a rank. tuttirun -n starts more ranks "
				    "than GPUs.",
				    options->devices, options->num_gpus, path_shown(options->gpus));
	return TUTTI_OK;
}

static tutti_status flags_all(tutti_train_options *options, int words, char *const *argv)
{
	TRY(flags_set_all(options, words, argv, true));
	if (options->config_file[0])
		TRY(flags_read_file(options, options->config_file));
	TRY(flags_set_all(options, words, argv, false));
	return flags_check_together(options);
}

tutti_status tutti_train_config_read(tutti_train_options *options, int *argc, char **argv)
{
	TRY(flags_check_arguments(options, argc, argv));
	int words = argc ? flags_count_words(*argc, argv) : 0;
	tutti_train_options read = *options;
	locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	if (!plain)
		return fail_no_memory("a locale");
	locale_t before = uselocale(plain); /* of this thread: a number has a point everywhere */
	tutti_status status = flags_all(&read, words, argv);
	uselocale(before);
	freelocale(plain);
	TRY(status);
	*options = read;
	if (argc)
		*argc = flags_take_out(*argc, words, argv);
	return TUTTI_OK;
}

/* ---- words that nobody knows ---- */

/* ", --gpus, --port ...": as many names as there is room for. */
static void flags_list_names(char *list, size_t bytes, const char *const *own)
{
	size_t used = 0;

	for (int i = 0; i < FLAGS; i++)
		used += (size_t)snprintf(list + used, bytes - used, "%s--%s", used ? ", " : "",
					 flags[i].name);
	for (int i = 0; own && own[i]; i++) {
		if (used + strlen(own[i]) + sizeof ", --, ..." > bytes) {
			strcpy(list + used, ", ...");
			return;
		}
		used += (size_t)snprintf(list + used, bytes - used, ", --%s", own[i]);
	}
}

static tutti_status flags_refuse_rest(const char *word, const char *const *own)
{
	const char *name = word + strspn(word, "-");
	struct nearest nearest = nearest_to(name, strcspn(name, "="));
	char shown[WORD_SHOWN_BYTES], list[300];

	word_shown(shown, word, strcspn(word, "="));
	for (int i = 0; i < FLAGS; i++)
		nearest_try(&nearest, flags[i].name);
	for (int i = 0; own && own[i]; i++)
		nearest_try(&nearest, own[i]);
	if (nearest.name)
		return fail_invalid("There is no flag %s: did you mean --%s?", shown, nearest.name);
	flags_list_names(list, sizeof list, own);
	return fail_invalid("There is no flag %s; the flags are %s.", shown, list);
}

tutti_status tutti_train_config_rest(int argc, char *const *argv, const char *const *own)
{
	if (!argv && argc > 0)
		return fail_invalid("tutti_train_config_rest needs argv, not NULL.");
	for (int i = 1; i < argc && argv[i] && strcmp(argv[i], "--") != 0; i++)
		if (argv[i][0] == '-' && argv[i][1] != '\0')
			return flags_refuse_rest(argv[i], own);
	return TUTTI_OK;
}
