/* no_tsan: it has one thread */
/* What would break: a file whose values win over the command line's, or of another type are taken,
 * and a mistake in it whose message names neither file nor key. */
#include "tests/train/flags/words.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

static char path[64];
static tutti_train_options options;
static struct words words;

static void write_file(const char *json, size_t bytes)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(json, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

/* The line, in which @ stands for the file with this text. */
static tutti_status read_with(const char *json, const char *line)
{
	char whole[200];
	const char *at = strchr(line, '@');

	write_file(json, strlen(json));
	options = (tutti_train_options){.accumulate = 5};
	snprintf(whole, sizeof whole, "%.*s%s%s", (int)(at - line), line, path, at + 1);
	return words_read(&words, &options, whole);
}

static void reads(const char *json, const char *line)
{
	if (read_with(json, line) != TUTTI_OK)
		fail_msg("%s: %s", json, tutti_comm_error(NULL));
}

static void refuses(const char *json, const char *why)
{
	assert_int_equal(read_with(json, "--config @ --nodes 2"), TUTTI_ERR_INVALID);
	if (!strstr(tutti_comm_error(NULL), why) || !strstr(tutti_comm_error(NULL), path))
		fail_msg("%s: no '%s' in '%s'", json, why, tutti_comm_error(NULL));
	assert_int_equal(options.nodes, 0);
	assert_int_equal(words.argc, 5);
}

static void each_key_sets_its_field(void **state)
{
	reads("{\"devices\": 2, \"nodes\": 3, \"strategy\": \"fsdp\", \"precision\": \"bf16\",\n"
	      " \"accumulate\": 4, \"clip\": 0.5, \"resume\": \"auto\", \"test\": \"\u00e9/x\",\n"
	      " \"gpus\": [0, \"GPU-a\"], \"port\": 29500}",
	      "--config @");
	assert_int_equal(options.devices, 2);
	assert_int_equal(options.nodes, 3);
	assert_int_equal(options.config.strategy, TUTTI_FSDP);
	assert_int_equal(options.config.grad_dtype, TUTTI_BF16);
	assert_string_equal(options.precision, "bf16");
	assert_int_equal(options.accumulate, 4);
	assert_true(options.config.max_grad_norm == 0.5f);
	assert_string_equal(options.resume, "auto");
	assert_string_equal(options.test, "\xc3\xa9/x");
	assert_string_equal(options.gpus, "0,GPU-a");
	assert_int_equal(options.num_gpus, 2);
	assert_int_equal(options.port, 29500);
	assert_string_equal(options.config_file, path);
	reads("{\"precision\": 32, \"devices\": \"auto\", \"gpus\": \"1,0\", \"clip\": 1}",
	      "--config=@");
	assert_string_equal(options.precision, "32");
	assert_int_equal(options.devices, TUTTI_AUTO);
	assert_string_equal(options.gpus, "1,0");
	assert_true(options.config.max_grad_norm == 1);
	reads("{\"gpus\": 3}", "--config=@");
	assert_string_equal(options.gpus, "3");
	reads("{}", "--config=@");
	assert_int_equal(options.accumulate, 5);
}

static void the_command_line_wins(void **state)
{
	const char *json = "{\"strategy\": \"fsdp\", \"nodes\": 3, \"gpus\": [0, 1]}";

	reads(json, "--nodes 7 --config @ -g 5 x");
	assert_int_equal(options.nodes, 7);
	assert_int_equal(options.config.strategy, TUTTI_FSDP);
	assert_string_equal(options.gpus, "5");
	assert_string_equal(words_joined(&words), "x");
	reads(json, "--config /nowhere --config @ --strategy ddp"); /* the last one counts */
	assert_int_equal(options.config.strategy, TUTTI_DDP);
	assert_int_equal(options.nodes, 3);
	/* Each alone is right. */
	assert_int_equal(read_with(json, "--devices 3 --config @"), TUTTI_ERR_INVALID);
	assert_non_null(strstr(tutti_comm_error(NULL), "--devices 3 and the 2 GPUs"));
	/* The program's own file, which --config replaces; without a command line, too. */
	options = (tutti_train_options){.nodes = 1};
	strcpy(options.config_file, path);
	assert_int_equal(tutti_train_config_read(&options, NULL, NULL), TUTTI_OK);
	assert_int_equal(options.nodes, 3);
	strcpy(options.config_file, "/nowhere");
	assert_int_equal(tutti_train_config_read(&options, NULL, NULL), TUTTI_ERR_SYSTEM);
	assert_non_null(strstr(tutti_comm_error(NULL), "'/nowhere' failed: No such file"));
}

static void mistakes_name_the_file_and_the_key(void **state)
{
	refuses("{\"stratgy\": \"fsdp\"}", "there is no \"stratgy\": did you mean \"strategy\"?");
	refuses("{\"lr\": 1}", "there is no \"lr\"; a file may have devices, nodes, ");
	refuses("{\"config\": \"x\"}", "there is no \"config\"");
	refuses("{\"a\\u0001\\u00e9\": 1}", "there is no \"a\\x01\xc3\xa9\"");
	refuses("{\"strategy\": \"zero3\"}",
		"\"strategy\": 'zero3' is not ddp, zero1, zero2, fsdp, hsdp or local_sgd: did you "
		"mean zero1?");
	refuses("{\"nodes\": \"2\"}",
		"\"nodes\" has a value of another type than an integer: give a number from 1");
	refuses("{\"nodes\": 2.0}", "\"nodes\" has a value of another type than an integer");
	refuses("{\"nodes\": true}", "another type than an integer");
	refuses("{\"nodes\": null}", "another type than an integer");
	refuses("{\"nodes\": [2]}", "another type than an integer");
	refuses("{\"nodes\": -2}", "\"nodes\": '-2' is not a number from 1 to 65536");
	refuses("{\"strategy\": 1}", "another type than a string");
	refuses("{\"resume\": true}", "another type than a string");
	refuses("{\"resume\": \"\"}", "\"resume\": '' is not a folder of checkpoints");
	refuses("{\"clip\": \"1\"}", "another type than a number");
	refuses("{\"clip\": -0.5}", "\"clip\": '-0.5' is not a norm");
	refuses("{\"clip\": 1e300}", "is not a norm");
	refuses("{\"devices\": \"all\"}", "\"devices\": 'all' is not a number");
	refuses("{\"devices\": 1.5}", "another type than an integer or a string");
	refuses("{\"gpus\": [0, 0]}", "\"gpus\": '0' is not GPUs, each of them once");
	refuses("{\"gpus\": [0, [1]]}", "another type than a list of integers or strings");
	refuses("{\"gpus\": {\"0\": 1}}", "another type than a list");
	refuses("{\"nodes\": 1, \"nodes\": 2}", "has no flags in JSON: duplicate object key");
	refuses("{\"nodes\": 1", "has no flags in JSON: ");
	refuses("[1]", "has no flags in JSON: it is no object");
	refuses("", "has no flags in JSON: ");
	refuses("{\"nodes\": 99999999999999999999999}", "has no flags in JSON: too big integer");
	refuses("{\"resume\": \"\xff\"}", "has no flags in JSON: ");
	refuses("{\"resume\": \"a\\u0000b\"}", "has no flags in JSON: ");
	refuses("{\"nodes\": 1} x", "has no flags in JSON: ");
}

static void long_files_are_refused(void **state)
{
	static char json[(1 << 20) + 2];

	memset(json, ' ', sizeof json);
	memcpy(json, "{}", 2);
	write_file(json, sizeof json - 2);
	strcpy(options.config_file, path);
	assert_int_equal(tutti_train_config_read(&options, NULL, NULL), TUTTI_OK);
	write_file(json, sizeof json - 1);
	assert_int_equal(tutti_train_config_read(&options, NULL, NULL), TUTTI_ERR_INVALID);
	strcpy(options.config_file, "/dev/zero");
	assert_int_equal(tutti_train_config_read(&options, NULL, NULL), TUTTI_ERR_INVALID);
	assert_non_null(strstr(tutti_comm_error(NULL), "is not a regular file"));
}

static int make_path(void **state)
{
	snprintf(path, sizeof path, "/tmp/flags_%d.json", (int)getpid());
	return 0;
}

static int remove_path(void **state)
{
	return unlink(path);
}

/* A build without jansson has the other flags. */
static int refusal(void)
{
	tutti_status status = words_read(&words, &options, "--config /nowhere --nodes 2");

	puts("jansson is not installed");
	return status == TUTTI_ERR_UNSUPPORTED &&
			       strstr(tutti_comm_error(NULL), "--config '/nowhere': this build") &&
			       strstr(tutti_comm_error(NULL), "(Debian: libjansson-dev)") &&
			       words_read(&words, &options, "--nodes 2") == TUTTI_OK
		       ? 77
		       : 1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_key_sets_its_field),
		cmocka_unit_test(the_command_line_wins),
		cmocka_unit_test(mistakes_name_the_file_and_the_key),
		cmocka_unit_test(long_files_are_refused),
	};

	if (words_read(&words, &options, "--config /nowhere") == TUTTI_ERR_UNSUPPORTED)
		return refusal();
	return cmocka_run_group_tests(tests, make_path, remove_path);
}
