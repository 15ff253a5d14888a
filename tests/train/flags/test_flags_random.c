/* no_tsan: it has one thread */
/* What would break: command lines that nobody wrote a test for. Random ones, of flags, values and
 * the program's own words, are read as a plain twin reads them; what the twin refuses changes
 * nothing. */
#include "tests/train/flags/words.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/random.h"
#include "tests/whole.h"
#include "tests/unit.h"

static const char *const vocabulary[] = {"--devices",
					 "--nodes",
					 "--strategy",
					 "--precision",
					 "--accumulate",
					 "--clip",
					 "--resume",
					 "--test",
					 "-g",
					 "--gpus",
					 "-p",
					 "--port",
					 "--devices=",
					 "--nodes=",
					 "--gpus=",
					 "--clip=",
					 "--strategy=",
					 "--resume=",
					 "-p9",
					 "-g0",
					 "-g1,2",
					 "-px",
					 "--",
					 "-",
					 "--steps",
					 "--stratgy",
					 "text",
					 "2024.txt",
					 "auto",
					 "ddp",
					 "zero2",
					 "local_sgd",
					 "zero3",
					 "32",
					 "bf16",
					 "16-mixed",
					 "0",
					 "1",
					 "2",
					 "3",
					 "0,1",
					 "4,5",
					 "1.5",
					 "2e3",
					 "GPU-a",
					 "MIG-1/2",
					 "-1",
					 "70000",
					 "5000",
					 "99999999999",
					 "4x",
					 "",
					 "GPU-a,0",
					 "1,1"};
enum { VOCABULARY = sizeof vocabulary / sizeof *vocabulary, LINE_MAX = 7 };

/* ---- the plain twin: one switch over names ---- */

static bool is_number_to(const char *text, long most, int *value)
{
	long n = 0;

	for (const char *c = text; *c; c++) {
		if (*c < '0' || *c > '9')
			return false;
		n = n * 10 + (*c - '0');
		if (n > 1000000)
			return false;
	}
	*value = (int)n;
	return *text && n >= 1 && n <= most;
}

static bool twin_precision(tutti_train_options *o, const char *text)
{
	bool is_bf16 = strcmp(text, "bf16") == 0, is_f16 = strcmp(text, "16-mixed") == 0;

	if (!is_bf16 && !is_f16 && strcmp(text, "32") != 0)
		return false;
	strcpy(o->precision, text);
	o->config.param_dtype = is_bf16 ? TUTTI_BF16 : is_f16 ? TUTTI_F16 : TUTTI_F32;
	o->config.grad_dtype = o->config.reduce_dtype = is_bf16 ? TUTTI_BF16 : TUTTI_F32;
	o->config.loss_scale = is_f16 ? -1 : 0;
	return true;
}

static bool twin_strategy(tutti_train_options *o, const char *text)
{
	if (strcmp(text, "ddp") != 0 && strcmp(text, "zero2") != 0 &&
	    strcmp(text, "local_sgd") != 0)
		return false;
	o->config.strategy = *text == 'd'   ? TUTTI_DDP
			     : *text == 'z' ? TUTTI_ZERO2
					    : TUTTI_LOCAL_SGD;
	return true;
}

/* Adds the parts between commas to the list: numbers, GPU-... and MIG-..., each once. */
static bool twin_gpus(tutti_train_options *o, const char *text)
{
	char copy[64], *part = copy, *next, hay[1100], needle[70];

	snprintf(copy, sizeof copy, "%s", text);
	for (; part; part = next) {
		next = strchr(part, ',');
		if (next)
			*next++ = '\0';
		bool is_name = strncmp(part, "GPU-", 4) == 0 || strncmp(part, "MIG-", 4) == 0;
		if (!*part || (!is_name && strspn(part, "0123456789") != strlen(part)))
			return false;
		snprintf(hay, sizeof hay, ",%s,", o->gpus);
		snprintf(needle, sizeof needle, ",%s,", part);
		if (strstr(hay, needle))
			return false;
		strcat(o->gpus, o->num_gpus++ ? "," : "");
		strcat(o->gpus, part);
	}
	return true;
}

static bool twin_set(tutti_train_options *o, const char *name, const char *text)
{
	if (strcmp(name, "devices") == 0 && strcmp(text, "auto") == 0) {
		o->devices = TUTTI_AUTO;
		return true;
	}
	if (strcmp(name, "devices") == 0)
		return is_number_to(text, 4096, &o->devices);
	if (strcmp(name, "nodes") == 0)
		return is_number_to(text, 65536, &o->nodes);
	if (strcmp(name, "accumulate") == 0)
		return is_number_to(text, 65536, &o->accumulate);
	if (strcmp(name, "port") == 0)
		return is_number_to(text, 65535, &o->port);
	if (strcmp(name, "strategy") == 0)
		return twin_strategy(o, text);
	if (strcmp(name, "precision") == 0)
		return twin_precision(o, text);
	if (strcmp(name, "gpus") == 0)
		return twin_gpus(o, text);
	if (strcmp(name, "clip") == 0) {
		o->config.max_grad_norm = (float)atof(text);
		return strcmp(text, "1.5") == 0 || strcmp(text, "2e3") == 0 ||
		       (*text && strspn(text, "0123456789") == strlen(text));
	}
	strcpy(strcmp(name, "test") == 0 ? o->test : o->resume, text);
	return *text;
}

static bool is_list_word(const char *word)
{
	return strncmp(word, "GPU-", 4) == 0 || strncmp(word, "MIG-", 4) == 0 ||
	       (*word >= '0' && *word <= '9' && strspn(word, "0123456789,") == strlen(word));
}

/* The name of the flag that the word is, or ""; value: what is in the same word, or NULL. */
static void twin_name(const char *word, char name[32], const char **value)
{
	static const char *const names[] = {"devices", "nodes",     "strategy", "precision",
					    "clip",    "resume",    "test",     "gpus",
					    "port",    "accumulate"};
	const char *equals = strchr(word, '=');

	*value = NULL;
	name[0] = '\0';
	for (int i = 0; i < 10; i++) {
		size_t n = strlen(names[i]);
		if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, names[i], n) != 0)
			continue;
		if (word[2 + n] == '\0' || word[2 + n] == '=') {
			strcpy(name, names[i]);
			*value = equals ? equals + 1 : NULL;
		}
	}
	if (word[0] == '-' && (word[1] == 'p' || word[1] == 'g') &&
	    (word[2] == '\0' || (is_list_word(word + 2) && word[2] <= '9'))) {
		strcpy(name, word[1] == 'p' ? "port" : "gpus");
		*value = word[2] ? word + 2 : NULL;
	}
}

/* Reads words into options and leaves left. False: the line is wrong. */
static bool twin_read(tutti_train_options *o, struct words *words)
{
	int left = 1, i = 1;

	for (; i < words->argc && strcmp(words->argv[i], "--") != 0; i++) {
		const char *word = words->argv[i], *value;
		bool is_alone = strchr(word, '=') != NULL;
		char name[32];
		twin_name(word, name, &value);
		if (!name[0]) {
			words->argv[left++] = words->argv[i];
			continue;
		}
		if (!value) {
			if (i + 1 >= words->argc || strncmp(words->argv[i + 1], "--", 2) == 0)
				return false;
			value = words->argv[++i];
		}
		if (strcmp(name, "gpus") == 0) {
			memset(o->gpus, 0, sizeof o->gpus);
			o->num_gpus = 0;
		}
		if (!twin_set(o, name, value))
			return false;
		while (strcmp(name, "gpus") == 0 && !is_alone && i + 1 < words->argc &&
		       is_list_word(words->argv[i + 1]))
			if (!twin_set(o, name, words->argv[++i]))
				return false;
	}
	for (; i < words->argc; i++)
		words->argv[left++] = words->argv[i];
	words->argc = left;
	words->argv[left] = NULL;
	return !(o->devices > 0 && o->num_gpus > 0 && o->devices != o->num_gpus);
}

/* ---- the comparison ---- */

static void random_line(uint64_t *random, char line[1024])
{
	int n = (int)random_below(random, LINE_MAX);

	line[0] = '\0';
	for (int i = 0; i < n; i++) {
		const char *word = vocabulary[random_below(random, VOCABULARY)];
		strcat(line, i > 0 ? " " : "");
		strcat(line, *word ? word : "''");
		if (word[0] && word[strlen(word) - 1] == '=')
			strcat(line, vocabulary[random_below(random, VOCABULARY)]);
	}
}

/* Of what the options have after a string's end nobody knows. */
static void assert_same(const tutti_train_options *a, const tutti_train_options *b)
{
	assert_int_equal(a->devices, b->devices);
	assert_int_equal(a->nodes, b->nodes);
	assert_int_equal(a->accumulate, b->accumulate);
	assert_int_equal(a->port, b->port);
	assert_int_equal(a->num_gpus, b->num_gpus);
	assert_string_equal(a->gpus, b->gpus);
	assert_string_equal(a->precision, b->precision);
	assert_string_equal(a->resume, b->resume);
	assert_string_equal(a->test, b->test);
	assert_int_equal(a->config.strategy, b->config.strategy);
	assert_int_equal(a->config.param_dtype, b->config.param_dtype);
	assert_int_equal(a->config.grad_dtype, b->config.grad_dtype);
	assert_int_equal(a->config.reduce_dtype, b->config.reduce_dtype);
	assert_true(a->config.loss_scale == b->config.loss_scale);
	assert_true(a->config.max_grad_norm == b->config.max_grad_norm);
}

static void random_lines_are_read_as_the_twin_reads_them(void **state)
{
	const char *given = getenv("TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 10) : 7, random = seed;
	static tutti_train_options options, expected, before;
	static struct words words, twin, all;
	int taken = 0, rounds = whole_or(200000, 20000, 20000);
	char line[1024];

	print_message("seed %llu\n", (unsigned long long)seed);
	for (int i = 0; i < rounds; i++) {
		random_line(&random, line);
		options = expected = before =
			(tutti_train_options){.nodes = 3, .config = {.max_grad_norm = 1}};
		words_split(&twin, line);
		bool is_right = twin_read(&expected, &twin);
		tutti_status status = words_read(&words, &options, line);
		if (status != (is_right ? TUTTI_OK : TUTTI_ERR_INVALID))
			fail_msg("'%s': status %d, '%s'", line, (int)status,
				 tutti_comm_error(NULL));
		taken += is_right;
		if (is_right) {
			char joined[1100];
			assert_same(&options, &expected);
			strcpy(joined, words_joined(&twin));
			assert_string_equal(words_joined(&words), joined);
			continue;
		}
		assert_memory_equal(&options, &before, sizeof before);
		words_split(&all, line);
		assert_int_equal(words.argc, all.argc);
	}
	print_message("%d of %d lines were right\n", taken, rounds);
	assert_in_range(taken, rounds / 10, rounds - rounds / 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_lines_are_read_as_the_twin_reads_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
