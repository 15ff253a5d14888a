/* A trainer's flags in a JSON file: {"strategy": "fsdp", "gpus": [0, 1], "clip": 1.0}. A key is a
 * flag's name. Each value becomes a text, which flag_set reads as one of a command line. */
#include "train/base/jansson_values.h"
#include "train/flags/flags.h"

#include "core/words/nearest.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 1 << 20, WHERE_BYTES = 250 };

static tutti_status flags_file_unknown_key(const char *path, const char *key)
{
	struct nearest nearest = nearest_to(key, strlen(key));
	char shown[WORD_SHOWN_BYTES], list[160];
	size_t used = 0;

	word_shown(shown, key, strlen(key));
	for (int i = 0; i < FLAGS; i++) {
		if (flag_is_file(&flags[i]))
			continue;
		nearest_try(&nearest, flags[i].name);
		used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
					 flags[i].name);
	}
	if (nearest.name)
		return fail_invalid("'%s': there is no \"%s\": did you mean \"%s\"?",
				    path_shown(path), shown, nearest.name);
	return fail_invalid("'%s': there is no \"%s\"; a file may have %s.", path_shown(path),
			    shown, list);
}

/* The JSON types of a flag's values. */
static const char *flags_file_type_of(const struct flag *flag)
{
	switch (flag->kind) {
	case FLAG_COUNT:
		return "an integer";
	case FLAG_AUTO:
	case FLAG_PRECISION:
		return "an integer or a string";
	case FLAG_REAL:
		return "a number";
	case FLAG_GPUS:
		return "a list of integers or strings, or a string";
	default:
		return "a string";
	}
}

static bool flags_file_is_of_type(const struct flag *flag, const json_t *value)
{
	switch (flag->kind) {
	case FLAG_COUNT:
		return json_is_integer(value);
	case FLAG_AUTO:
	case FLAG_PRECISION:
	case FLAG_GPUS:
		return json_is_integer(value) || json_is_string(value);
	case FLAG_REAL:
		return json_is_number(value);
	default:
		return json_is_string(value);
	}
}

static tutti_status flags_file_set_value(tutti_train_options *options, const struct flag *flag,
					 const char *where, const json_t *value)
{
	char number[64];

	if (!flags_file_is_of_type(flag, value))
		return fail_invalid("%s has a value of another type than %s: give %s.", where,
				    flags_file_type_of(flag), flag->wanted);
	if (json_is_string(value))
		return flag_set(options, flag, where, json_string_value(value));
	if (json_is_integer(value))
		snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
	else
		snprintf(number, sizeof number, "%.17g", json_real_value(value));
	return flag_set(options, flag, where, number);
}

static tutti_status flags_file_set_key(tutti_train_options *options, const char *path,
				       const char *key, const json_t *value)
{
	const struct flag *flag = flag_named(key, strlen(key));
	char where[WHERE_BYTES];

	if (!flag || flag_is_file(flag))
		return flags_file_unknown_key(path, key);
	snprintf(where, sizeof where, "'%s': \"%s\"", path_shown(path), flag->name);
	flag_clear(options, flag);
	if (flag->kind != FLAG_GPUS || !json_is_array(value))
		return flags_file_set_value(options, flag, where, value);
	for (size_t i = 0; i < json_array_size(value); i++)
		TRY(flags_file_set_value(options, flag, where, json_array_get(value, i)));
	return TUTTI_OK;
}

tutti_status flags_read_text(tutti_train_options *options, const char *path, const char *text,
			     size_t bytes)
{
	char why[200];
	json_t *whole = json_text_read(text, bytes, why);
	tutti_status status = TUTTI_OK;
	const char *key;
	json_t *value;

	if (!whole)
		return fail_invalid("'%s' has no flags in JSON: %s.", path_shown(path), why);
	json_object_foreach(whole, key, value)
	{
		status = flags_file_set_key(options, path, key, value);
		if (status != TUTTI_OK)
			break;
	}
	json_decref(whole);
	return status;
}

tutti_status flags_read_file(tutti_train_options *options, const char *path)
{
	size_t bytes = 0;
	char *text = NULL;

	TRY(disk_read_all(path, FILE_LIMIT, &text, &bytes));
	tutti_status status = flags_read_text(options, path, text, bytes);
	free(text);
	return status;
}
