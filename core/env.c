/* The table of TUTTI_ variables, read and checked. Other files use their values. */
#include "core/env.h"

#include "core/log.h"
#include "core/status.h"
#include "core/tls.h"
#include "core/words/nearest.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX         "TUTTI_"
#define NAME_MAX_BYTES 64

struct number {
	const char *name, *unit;
	int64_t min, max, init;
	size_t offset;
};

struct env_text {
	const char *name, *choices;
	size_t offset;
};

static const struct number numbers[] = {
#define ROW(field, name, unit, min, max, init, help)                                               \
	{name, unit, min, max, init, offsetof(struct env, field)},
	ENV_NUMBERS(ROW)
#undef ROW
};

static const struct env_text texts[] = {
#define ROW(field, name, choices, help) {name, choices, offsetof(struct env, field)},
	ENV_TEXTS(ROW)
#undef ROW
};

#define NUMBERS (sizeof numbers / sizeof *numbers)
#define TEXTS   (sizeof texts / sizeof *texts)
#define NAMES   (NUMBERS + TEXTS)

extern char **environ;

static const char *env_name_of(size_t i)
{
	return i < NUMBERS ? numbers[i].name : texts[i - NUMBERS].name;
}

static tutti_status env_unknown_name(const char *name)
{
	struct nearest nearest = {.typed = name, .bytes = strlen(name), .limit = 5};
	char list[ERROR_BYTES] = "";
	size_t used = 0;

	for (size_t i = 0; i < NAMES; i++) {
		nearest_try(&nearest, env_name_of(i));
		if (used < sizeof list)
			used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
						 i ? ", " : "", env_name_of(i) + strlen(PREFIX));
	}
	if (nearest.name)
		return fail(TUTTI_ERR_INVALID, "%s is not a variable of Tutti: did you mean %s?",
			    name, nearest.name);
	return fail(TUTTI_ERR_INVALID, "%s is not a variable of Tutti: those are " PREFIX "... %s",
		    name, list);
}

/* Variables of the layers above: bindings, and programs' own. */
static bool env_is_of_others(const char *entry)
{
	static const char *const prefixes[] = {"TUTTI_EXT_", "TUTTI_PY_", "TUTTI_TORCH_"};

	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		if (strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

static tutti_status env_check_names(void)
{
	for (char **entry = environ; entry && *entry; entry++) {
		char name[NAME_MAX_BYTES + 1];
		bool is_known = false;

		if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0 || env_is_of_others(*entry))
			continue;
		snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
		for (size_t i = 0; i < NAMES && !is_known; i++)
			is_known = strcmp(name, env_name_of(i)) == 0;
		if (!is_known)
			return env_unknown_name(name);
	}
	return TUTTI_OK;
}

/* The factor of a suffix; 0 if it is unknown. */
static int64_t env_suffix_factor(const char *suffix, bool is_bytes)
{
	static const char letters[] = "KMG";
	const char *letter;

	if (*suffix == '\0')
		return 1;
	if (!is_bytes || suffix[1] != '\0')
		return 0;
	letter = strchr(letters, toupper((unsigned char)*suffix));
	return letter ? INT64_C(1) << 10 * (letter - letters + 1) : 0;
}

static tutti_status env_bad_number(const struct number *n, const char *text, const char *what)
{
	bool is_bytes = strcmp(n->unit, "bytes") == 0;
	bool is_flag = strcmp(n->unit, "0 or 1") == 0;

	if (is_flag)
		return fail(TUTTI_ERR_INVALID, "%s=%.100s %s: it is 0 or 1 (default %lld)", n->name,
			    text, what, (long long)n->init);
	return fail(TUTTI_ERR_INVALID,
		    "%s=%.100s %s: it is a number of %s from %lld to %lld%s "
		    "(default %lld)",
		    n->name, text, what, n->unit, (long long)n->min, (long long)n->max,
		    is_bytes ? ", with K, M or G where you like" : "", (long long)n->init);
}

static tutti_status env_load_number(const struct number *n, const char *text, int64_t *value)
{
	char *end;
	long long v;
	int64_t factor;

	*value = n->init;
	if (!text)
		return TUTTI_OK;
	if (!isdigit((unsigned char)*text) && *text != '-')
		return env_bad_number(n, text, "is not a number");
	errno = 0;
	v = strtoll(text, &end, 10);
	factor = env_suffix_factor(end, strcmp(n->unit, "bytes") == 0);
	if (end == text || factor == 0)
		return env_bad_number(n, text, "is not a number");
	if (errno == ERANGE || v < n->min / factor || v > n->max / factor || v * factor < n->min)
		return env_bad_number(n, text, "is out of range");
	*value = v * factor;
	return TUTTI_OK;
}

static bool env_is_among(const char *choices, const char *text)
{
	size_t n = strlen(text);

	for (const char *choice = choices; *choice; choice += *choice == '|') {
		size_t length = strcspn(choice, "|");
		if (length == n && strncmp(choice, text, n) == 0)
			return true;
		choice += length;
	}
	return false;
}

static tutti_status env_load_text(const struct env_text *t, const char *text, const char **value)
{
	*value = text;
	if (!text)
		return TUTTI_OK;
	/* Mostly a variable of a script that was not set: never taken for "no secret". */
	if (*text == '\0')
		return fail(TUTTI_ERR_INVALID, "%s is set but empty: unset it or give it a value",
			    t->name);
	if (*t->choices && !env_is_among(t->choices, text))
		return fail(TUTTI_ERR_INVALID, "%s=%.100s is not one of %s", t->name, text,
			    t->choices);
	return TUTTI_OK;
}

static enum log_level env_level_named(const char *name)
{
	if (!name)
		return LOG_NOTICE;
	if (strcmp(name, "off") == 0)
		return LOG_OFF;
	return strcmp(name, "info") == 0 ? LOG_INFO : LOG_DEBUG;
}

tutti_status env_load(struct env *env)
{
	struct env loaded;

	TRY(env_check_names());
	for (size_t i = 0; i < NUMBERS; i++)
		TRY(env_load_number(&numbers[i], getenv(numbers[i].name),
				    (int64_t *)((char *)&loaded + numbers[i].offset)));
	for (size_t i = 0; i < TEXTS; i++)
		TRY(env_load_text(&texts[i], getenv(texts[i].name),
				  (const char **)((char *)&loaded + texts[i].offset)));
	if (loaded.tls)
		TRY(tls_load());
	*env = loaded;
	log_set_level(env_level_named(env->log));
	return TUTTI_OK;
}
