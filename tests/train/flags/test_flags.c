/* no_tsan: it has one thread */
/* What would break: a flag that sets something else than it says, takes a word of the program's
 * own, or leaves its own; and a wrong one that is taken, or whose message does not help. */
#include "tests/train/flags/words.h"

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

static tutti_train_options options;
static struct words words;

/* The line is read into options, which begin as all zero. left: what stays of it. */
static void reads(const char *line, const char *left)
{
	options = (tutti_train_options){0};
	if (words_read(&words, &options, line) != TUTTI_OK)
		fail_msg("'%s': %s", line, tutti_comm_error(NULL));
	assert_string_equal(words_joined(&words), left);
}

/* The line is INVALID with these words in its message, and nothing has changed. */
static void refuses(const char *line, const char *why)
{
	static const tutti_train_options some = {.nodes = 7, .gpus = "5", .num_gpus = 1};
	struct words same;

	options = some;
	assert_int_equal(words_read(&words, &options, line), TUTTI_ERR_INVALID);
	if (!strstr(tutti_comm_error(NULL), why))
		fail_msg("'%s': no '%s' in '%s'", line, why, tutti_comm_error(NULL));
	assert_memory_equal(&options, &some, sizeof some);
	words_split(&same, line);
	assert_int_equal(words.argc, same.argc);
	for (int i = 0; i < same.argc; i++)
		assert_string_equal(words.argv[i], same.argv[i]);
}

static void each_flag_sets_its_field(void **state)
{
	reads("--devices 3", "");
	assert_int_equal(options.devices, 3);
	reads("--devices=auto", "");
	assert_int_equal(options.devices, TUTTI_AUTO);
	reads("--nodes 2", "");
	assert_int_equal(options.nodes, 2);
	reads("--accumulate 8", "");
	assert_int_equal(options.accumulate, 8);
	reads("--clip 0.5", "");
	assert_true(options.config.max_grad_norm == 0.5f);
	reads("--clip=1e-3", "");
	assert_true(options.config.max_grad_norm == 1e-3f);
	reads("--resume ckpt", "");
	assert_string_equal(options.resume, "ckpt");
	reads("--test some/step_00000010", "");
	assert_string_equal(options.test, "some/step_00000010");
}

static void strategies_have_their_names(void **state)
{
	static const char *const names[] = {"ddp", "zero1", "zero2", "fsdp", "hsdp", "local_sgd"};
	char line[64];

	for (int i = 0; i < 6; i++) {
		snprintf(line, sizeof line, "--strategy %s", names[i]);
		reads(line, "");
		assert_int_equal(options.config.strategy, i);
	}
}

/* Whatever was there before: a program's own default of bf16 ends with --precision 32. */
static void precisions_set_all_four_fields(void **state)
{
	static const struct {
		const char *line;
		tutti_dtype param, grad, reduce;
		float loss_scale;
	} rows[] = {{"--precision 32", TUTTI_F32, TUTTI_F32, TUTTI_F32, 0},
		    {"--precision bf16", TUTTI_BF16, TUTTI_BF16, TUTTI_BF16, 0},
		    {"--precision bf16-mixed", TUTTI_BF16, TUTTI_F32, TUTTI_F32, 0},
		    {"--precision 16-mixed", TUTTI_F16, TUTTI_F32, TUTTI_F32, -1}};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		options = (tutti_train_options){.config = {.param_dtype = TUTTI_F64,
							   .grad_dtype = TUTTI_F64,
							   .reduce_dtype = TUTTI_F64,
							   .loss_scale = 9}};
		assert_int_equal(words_read(&words, &options, rows[i].line), TUTTI_OK);
		assert_int_equal(options.config.param_dtype, rows[i].param);
		assert_int_equal(options.config.grad_dtype, rows[i].grad);
		assert_int_equal(options.config.reduce_dtype, rows[i].reduce);
		assert_true(options.config.loss_scale == rows[i].loss_scale);
		assert_string_equal(options.precision, strchr(rows[i].line, ' ') + 1);
	}
}

static void lists_and_short_flags(void **state)
{
	reads("-g 0 1 text", "text");
	assert_string_equal(options.gpus, "0,1");
	assert_int_equal(options.num_gpus, 2);
	reads("-g2,0 3 text", "text");
	assert_string_equal(options.gpus, "2,0,3");
	reads("--gpus GPU-1a,MIG-2/0 GPU-3 2024.txt", "2024.txt");
	assert_string_equal(options.gpus, "GPU-1a,MIG-2/0,GPU-3");
	assert_int_equal(options.num_gpus, 3);
	reads("--gpus=0 1", "1"); /* = is for one word */
	assert_string_equal(options.gpus, "0");
	reads("-p 29500 7", "7");
	assert_int_equal(options.port, 29500);
	reads("-p29501 -print -gdb -p1x", "-print -gdb -p1x");
	assert_int_equal(options.port, 29501);
}

static void the_program_keeps_its_own_words(void **state)
{
	reads("", "");
	reads("a --steps 3 --devices 2 b --x=--nodes -v - c", "a --steps 3 b --x=--nodes -v - c");
	reads("--nodes 2 x -- --nodes 3 -p", "x -- --nodes 3 -p");
	assert_int_equal(options.nodes, 2);
	reads("--", "--");
	reads("--devicesx --device --Devices -G", "--devicesx --device --Devices -G");
	reads("--nodes 2 --nodes=3", ""); /* the last counts */
	assert_int_equal(options.nodes, 3);
	reads("-g 0 1 --gpus 2", "");
	assert_string_equal(options.gpus, "2");
	assert_int_equal(options.num_gpus, 1);
}

static void what_is_not_given_stays(void **state)
{
	options = (tutti_train_options){.accumulate = 4, .config = {.max_grad_norm = 1}};
	assert_int_equal(words_read(&words, &options, "--nodes 2"), TUTTI_OK);
	assert_int_equal(options.accumulate, 4);
	assert_true(options.config.max_grad_norm == 1);
	assert_int_equal(words_read(&words, &options, "--clip 0"), TUTTI_OK);
	assert_true(options.config.max_grad_norm == 0);
	assert_int_equal(options.nodes, 2);
}

static void wrong_values_are_refused(void **state)
{
	refuses("--devices 0", "--devices: '0' is not a number from 1 to 4096, or auto.");
	refuses("--devices 4097", "'4097' is not a number from 1 to 4096");
	refuses("--devices -1", "'-1' is not a number");
	refuses("--devices 2x", "'2x' is not a number");
	refuses("--devices=", "'' is not a number");
	refuses("--devices ''", "'' is not a number");
	refuses("--devices 99999999999999999999", "'99999999999999999999' is not a number");
	refuses("--nodes 65537", "--nodes: '65537' is not a number from 1 to 65536.");
	refuses("--nodes auto", "'auto' is not a number");
	refuses("--nodes +2", "'+2' is not a number");
	refuses("--accumulate 2.5", "--accumulate: '2.5' is not a number from 1 to 65536.");
	refuses("--clip -1", "--clip: '-1' is not a norm: a finite number, or 0");
	refuses("--clip nan", "'nan' is not a norm");
	refuses("--clip inf", "'inf' is not a norm");
	refuses("--clip 1e99", "'1e99' is not a norm");
	refuses("--clip 1e-50", "'1e-50' is not a norm");
	refuses("--clip 1e-400", "'1e-400' is not a norm");
	refuses("--clip 0x10", "'0x10' is not a norm");
	refuses("--clip 1,5", "'1,5' is not a norm");
	refuses("--clip 1.5.5", "'1.5.5' is not a norm");
	refuses("-p 0", "--port: '0' is not a port from 1 to 65535.");
	refuses("-p 65536", "'65536' is not a port");
	refuses("-p x", "'x' is not a port");
	refuses("-g 0 1 0", "--gpus: '0' is not GPUs, each of them once");
	refuses("-g all", "'all' is not GPUs");
	refuses("-g 0,,1", "'0,,1' is not GPUs");
	refuses("--strategy zero3", "--strategy: 'zero3' is not ddp, zero1, zero2, fsdp, hsdp or "
				    "local_sgd: did you mean zero1?");
	refuses("--strategy localsgd", "did you mean local_sgd?");
	refuses("--strategy DDP", "did you mean ddp?");
	refuses("--strategy deepspeed", "'deepspeed' is not ddp, zero1, zero2, fsdp, hsdp or "
					"local_sgd.");
	refuses("--precision 16", "--precision: '16' is not 32, bf16, bf16-mixed or 16-mixed.");
	refuses("--precision bf16_mixed", "did you mean bf16-mixed?");
	refuses("--resume ''", "--resume: '' is not a folder of checkpoints, or auto.");
	refuses("--test=", "--test: '' is not a checkpoint.");
}

static void missing_values_and_pairs_are_refused(void **state)
{
	refuses("--strategy", "--strategy needs a value: ddp, zero1, zero2, fsdp, hsdp or");
	refuses("x --test", "--test needs a value: a checkpoint.");
	refuses("--resume --test x", "--resume needs a value");
	refuses("--nodes -- 2", "--nodes needs a value");
	refuses("-p", "--port needs a value");
	refuses("-g", "--gpus needs a value");
	refuses("--devices 3 -g 0 1", "--devices 3 and the 2 GPUs of --gpus 0,1 do not go");
	reads("--devices 2 -g 0 1", "");
	reads("--devices auto -g 0 1", "");
	reads("--resume=--test", "");
	assert_string_equal(options.resume, "--test");
}

static void long_and_foreign_bytes(void **state)
{
	char path[TUTTI_FLAG_BYTES + 1];
	char program[] = "prog", flag[] = "--resume", *argv[] = {program, flag, path, NULL};
	int argc = 3;

	memset(path, 'x', sizeof path - 1);
	path[sizeof path - 1] = '\0';
	options = (tutti_train_options){0};
	assert_int_equal(tutti_train_config_read(&options, &argc, argv), TUTTI_ERR_INVALID);
	assert_non_null(strstr(tutti_comm_error(NULL), "xxx...' is not a folder"));
	path[sizeof path - 2] = '\0';
	assert_int_equal(tutti_train_config_read(&options, &argc, argv), TUTTI_OK);
	assert_int_equal(argc, 1);
	assert_string_equal(options.resume, path);
	refuses("--strategy \xff\x01"
		"a\xc3\xa9",
		"'\\xff\\x01a\xc3\xa9' is not ddp");
	refuses("--strategy \xc3", "'\\xc3' is not ddp");
	reads("--resume \xff/x --\xff", "--\xff"); /* a path has any bytes */
	assert_string_equal(options.resume, "\xff/x");
}

static void empty_and_broken_command_lines(void **state)
{
	char program[] = "prog", flag[] = "--nodes", two[] = "2", *argv[] = {program, flag, two};
	char *none[] = {NULL};
	int argc = 0;

	options = (tutti_train_options){.nodes = 7};
	assert_int_equal(tutti_train_config_read(&options, NULL, NULL), TUTTI_OK);
	assert_int_equal(tutti_train_config_read(&options, &argc, none), TUTTI_OK);
	assert_int_equal(argc, 0);
	assert_int_equal(options.nodes, 7);
	assert_int_equal(tutti_train_config_read(NULL, NULL, NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_train_config_read(&options, &argc, NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_train_config_read(&options, NULL, none), TUTTI_ERR_INVALID);
	argc = -1;
	assert_int_equal(tutti_train_config_read(&options, &argc, none), TUTTI_ERR_INVALID);
	argc = 1;
	assert_int_equal(tutti_train_config_read(&options, &argc, none), TUTTI_ERR_INVALID);
	assert_non_null(strstr(tutti_comm_error(NULL), "argv[0] is NULL, but argc is 1"));
	argc = 1; /* nothing is taken: the word behind the last one is not touched */
	assert_int_equal(tutti_train_config_read(&options, &argc, argv), TUTTI_OK);
	assert_ptr_equal(argv[1], flag);
	argc = 3;
	assert_int_equal(tutti_train_config_read(&options, &argc, argv), TUTTI_OK);
	assert_int_equal(argc, 1);
	assert_null(argv[1]);
	assert_int_equal(options.nodes, 2);
	options.reserved[3] = 1;
	assert_int_equal(tutti_train_config_read(&options, NULL, NULL), TUTTI_ERR_INVALID);
	assert_non_null(strstr(tutti_comm_error(NULL), "reserved"));
}

/* A line of words that nobody knows. */
static void rest(const char *line, const char *why)
{
	static const char *const own[] = {"steps", "batch", "x", NULL};

	words_split(&words, line);
	tutti_status status = tutti_train_config_rest(words.argc, words.argv, own);
	assert_int_equal(status, why ? TUTTI_ERR_INVALID : TUTTI_OK);
	if (why && !strstr(tutti_comm_error(NULL), why))
		fail_msg("'%s': no '%s' in '%s'", line, why, tutti_comm_error(NULL));
}

static void the_rest_is_told_the_nearest_name(void **state)
{
	char program[] = "prog", wrong[] = "--wrong", *argv[] = {program, wrong};

	rest("", NULL);
	rest("a - b", NULL);
	rest("a -- --stratgy", NULL);
	rest("--stratgy ddp", "There is no flag --stratgy: did you mean --strategy?");
	rest("--stpes=3", "There is no flag --stpes: did you mean --steps?");
	rest("a -gpu", "There is no flag -gpu: did you mean --gpus?");
	rest("--foo", "There is no flag --foo; the flags are --devices, --nodes, ");
	rest("--foo", "--gpus, --port, --steps, --batch, --x.");
	rest("--\xff", "There is no flag --\\xff; the");
	assert_int_equal(tutti_train_config_rest(2, argv, NULL), TUTTI_ERR_INVALID);
	assert_non_null(strstr(tutti_comm_error(NULL), "--gpus, --port."));
	assert_int_equal(tutti_train_config_rest(0, NULL, NULL), TUTTI_OK);
	assert_int_equal(tutti_train_config_rest(1, NULL, NULL), TUTTI_ERR_INVALID);
}

/* A program has hundreds of flags, of long names. */
static void a_long_list_of_flags_is_cut(void **state)
{
	static char names[300][60];
	static const char *own[301];
	char program[] = "prog", wrong[] = "--7", *argv[] = {program, wrong};

	for (int i = 0; i < 300; i++) {
		memset(names[i], 'a' + i % 26, (size_t)(i % 59 + 1));
		own[i] = names[i];
	}
	assert_int_equal(tutti_train_config_rest(2, argv, own), TUTTI_ERR_INVALID);
	assert_non_null(strstr(tutti_comm_error(NULL), ", --a, --bb, --ccc"));
	assert_non_null(strstr(tutti_comm_error(NULL), ", ...."));
}

static void the_help_has_every_flag(void **state)
{
	static const char *const flags[] = {"--devices N",    "--nodes N",         "--strategy S",
					    "--precision P",  "--accumulate N",    "--clip X",
					    "--resume DIR",   "--test CHECKPOINT", "--config FILE",
					    "-g, --gpus 0 1", "-p, --port N"};

	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		assert_non_null(strstr(tutti_train_config_help(), flags[i]));
}

/* In a language with decimal commas a flag has a point, as in every script. */
static void numbers_do_not_depend_on_the_language(void **state)
{
	char folder[] = "/tmp/flags_XXXXXX", command[512];

	assert_non_null(mkdtemp(folder));
	snprintf(command, sizeof command,
		 "cd %s && printf 'LC_NUMERIC\\ndecimal_point \",\"\\nthousands_sep "
		 "\"\"\\ngrouping -1\\nEND LC_NUMERIC\\n' >comma && localedef -c -i comma ./xx_XX "
		 ">localedef.txt 2>&1",
		 folder);
	int made = system(command);
	setenv("LOCPATH", folder, 1);
	bool has_locale = made >= 0 && setlocale(LC_NUMERIC, "xx_XX") &&
			  localeconv()->decimal_point[0] == ',';
	if (has_locale) {
		reads("--clip 0.25", "");
		assert_true(options.config.max_grad_norm == 0.25f);
		refuses("--clip 0,25", "'0,25' is not a norm");
		assert_int_equal(localeconv()->decimal_point[0], ',');
	}
	setlocale(LC_NUMERIC, "C");
	snprintf(command, sizeof command, "rm -rf %s", folder);
	assert_int_equal(system(command), 0);
	if (!has_locale)
		skip_because("localedef made no language with decimal commas");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_flag_sets_its_field),
		cmocka_unit_test(strategies_have_their_names),
		cmocka_unit_test(precisions_set_all_four_fields),
		cmocka_unit_test(lists_and_short_flags),
		cmocka_unit_test(the_program_keeps_its_own_words),
		cmocka_unit_test(what_is_not_given_stays),
		cmocka_unit_test(wrong_values_are_refused),
		cmocka_unit_test(missing_values_and_pairs_are_refused),
		cmocka_unit_test(long_and_foreign_bytes),
		cmocka_unit_test(empty_and_broken_command_lines),
		cmocka_unit_test(the_rest_is_told_the_nearest_name),
		cmocka_unit_test(a_long_list_of_flags_is_cut),
		cmocka_unit_test(the_help_has_every_flag),
		cmocka_unit_test(numbers_do_not_depend_on_the_language),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
