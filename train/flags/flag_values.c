/* Texts into the values of flags. */
#include "train/flags/flags.h"

#include "core/words/device_list.h"
#include "core/words/nearest.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static tutti_status flag_values_refuse(const struct flag *flag, const char *where, const char *text,
				       const char *meant)
{
	char shown[WORD_SHOWN_BYTES];

	return fail_invalid("%s: '%s' is not %s%s%s%s", where,
			    word_shown(shown, text, strlen(text)), flag->wanted,
			    meant ? ": did you mean " : "", meant ? meant : "", meant ? "?" : ".");
}

static const char *choice_name(const struct flag *flag, int i)
{
	return flag->kind == FLAG_STRATEGY ? strategies[i] : precisions[i].name;
}

static tutti_status find_choice(const struct flag *flag, const char *where, const char *text,
				int *choice)
{
	int choices = flag->kind == FLAG_STRATEGY ? STRATEGIES : PRECISIONS;
	struct nearest nearest = nearest_to(text, strlen(text));

	for (int i = 0; i < choices; i++) {
		if (strcmp(text, choice_name(flag, i)) == 0) {
			*choice = i;
			return TUTTI_OK;
		}
		nearest_try(&nearest, choice_name(flag, i));
	}
	return flag_values_refuse(flag, where, text, nearest.name);
}

static bool read_count(const char *text, int most, int *count)
{
	long n = 0;

	if (!*text || text[strspn(text, "0123456789")])
		return false;
	errno = 0;
	n = strtol(text, NULL, 10);
	if (errno || n < 1 || n > most)
		return false;
	*count = (int)n;
	return true;
}

/* Neither "inf", nor "nan", nor hexadecimal. */
static bool read_real(const char *text, float *real)
{
	char *end;

	if (!*text || text[strspn(text, "0123456789.eE+-")])
		return false;
	errno = 0; /* a number that is too small for a float would be 0 */
	float read = strtof(text, &end);
	if (end == text || *end || errno == ERANGE || !isfinite(read) || read < 0)
		return false;
	*real = read + 0; /* -0 is 0 */
	return true;
}

static bool read_path(const char *text, char *path)
{
	if (!*text || strlen(text) >= TUTTI_FLAG_BYTES)
		return false;
	strcpy(path, text);
	return true;
}

static bool read_gpus(tutti_train_options *options, const char *text)
{
	char list[sizeof options->gpus];

	strcpy(list, options->gpus);
	if (!device_list_add(list, sizeof list, text))
		return false;
	strcpy(options->gpus, list);
	options->num_gpus = device_list_count(list);
	return true;
}

static bool read_auto(const char *text, int most, int *count)
{
	if (strcmp(text, "auto") != 0)
		return read_count(text, most, count);
	*count = TUTTI_AUTO;
	return true;
}

static tutti_status set_choice(tutti_train_options *options, const struct flag *flag,
			       const char *where, const char *text)
{
	int i = 0;

	TRY(find_choice(flag, where, text, &i));
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
		is_good = read_count(text, flag->most, field);
		break;
	case FLAG_AUTO:
		is_good = read_auto(text, flag->most, field);
		break;
	case FLAG_REAL:
		is_good = read_real(text, field);
		break;
	case FLAG_PATH:
		is_good = read_path(text, field);
		break;
	case FLAG_GPUS:
		is_good = read_gpus(options, text);
		break;
	case FLAG_STRATEGY:
	case FLAG_PRECISION:
		return set_choice(options, flag, where, text);
	}
	return is_good ? TUTTI_OK : flag_values_refuse(flag, where, text, NULL);
}

void flag_clear(tutti_train_options *options, const struct flag *flag)
{
	if (flag->kind != FLAG_GPUS)
		return;
	options->gpus[0] = '\0';
	options->num_gpus = 0;
}
