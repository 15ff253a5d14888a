/* What would break: flags that start other ranks than they say, of one node or of two, or start any
 * where a launcher has; and a missing variable without a message. */
#include "tests/train/flags/words.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/ports.h"
#include "tests/unit.h"

static const char *const variables[] = {
	"RANK",         "WORLD_SIZE",        "LOCAL_RANK",     "LOCAL_WORLD_SIZE",    "NODE_RANK",
	"MASTER_ADDR",  "MASTER_PORT",       "TUTTIRUN_JOB",   "TORCHELASTIC_RUN_ID", "TF_CONFIG",
	"TUTTI_SECRET", "TUTTI_SECRET_FILE", "TUTTI_INSECURE", "CUDA_VISIBLE_DEVICES"};

static int clear(void **state)
{
	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
		unsetenv(variables[i]);
	return 0;
}

static tutti_train_options options;

static void read_line(const char *line)
{
	struct words words;

	options = (tutti_train_options){0};
	assert_int_equal(words_read(&words, &options, line), TUTTI_OK);
}

/* What a rank must find. */
struct wanted {
	int size, nodes, code;
	const char *gpus; /* NULL: it is not looked at */
	pid_t parent;     /* 0: fn runs in this process */
};

/* Why fn has returned 101. */
static char message[512];

static int joins(void *arg)
{
	const struct wanted *wanted = arg;
	const char *gpus = getenv("CUDA_VISIBLE_DEVICES");
	tutti_comm *comm = NULL;
	int sum = 1;

	if (tutti_init(&comm, NULL) != TUTTI_OK ||
	    tutti_train_ranks_check(&options, comm) != TUTTI_OK ||
	    tutti_all_reduce(&sum, &sum, 1, TUTTI_I32, TUTTI_SUM, comm, NULL) != TUTTI_OK) {
		snprintf(message, sizeof message, "%s", tutti_comm_error(NULL));
		tutti_comm_destroy(comm);
		return 101;
	}
	bool is_right = sum == wanted->size && tutti_size(comm) == wanted->size &&
			tutti_num_nodes(comm) == wanted->nodes &&
			(getpid() == wanted->parent) == (wanted->size == 1) &&
			(!wanted->gpus || (gpus && strcmp(gpus, wanted->gpus) == 0));
	tutti_comm_destroy(comm);
	return is_right ? wanted->code : 102;
}

static void runs(const char *line, struct wanted wanted)
{
	int code = -1;

	read_line(line);
	wanted.parent = getpid();
	tutti_status status = tutti_train_spawn(&options, joins, &wanted, &code);
	if (status != (wanted.code == 0 || wanted.size == 1 ? TUTTI_OK : TUTTI_ERR_PEER))
		fail_msg("'%s': %s", line, tutti_comm_error(NULL));
	assert_int_equal(code, wanted.code);
}

static void flags_start_their_ranks(void **state)
{
	runs("", (struct wanted){.size = 1, .nodes = 1});
	runs("--nodes 1", (struct wanted){.size = 1, .nodes = 1});
	runs("--devices 1", (struct wanted){.size = 1, .nodes = 1, .code = 7});
	runs("--devices 2", (struct wanted){.size = 2, .nodes = 1});
	runs("--devices 4 --nodes 1", (struct wanted){.size = 4, .nodes = 1});
	runs("--devices 2", (struct wanted){.size = 2, .nodes = 1, .code = 7});
	runs("-g 5", (struct wanted){.size = 1, .nodes = 1, .gpus = "5"});
	runs("-g 3 1 2", (struct wanted){.size = 3, .nodes = 1, .gpus = "3,1,2"});
	setenv("CUDA_VISIBLE_DEVICES", "4,5", 1);
	runs("--devices auto", (struct wanted){.size = 2, .nodes = 1, .gpus = "4,5"});
}

static void a_port_is_where_ranks_meet(void **state)
{
	char line[64];

	snprintf(line, sizeof line, "--devices 2 -p %d", test_ports());
	runs(line, (struct wanted){.size = 2, .nodes = 1});
}

/* Each a process that calls it with its NODE_RANK. */
static void two_nodes_are_one_job(void **state)
{
	struct wanted wanted = {.size = 4, .nodes = 2};
	char line[64];
	pid_t node[2];

	snprintf(line, sizeof line, "--devices 2 --nodes 2 -p %d", test_ports() + 1);
	read_line(line);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("TUTTI_SECRET", "0123456789abcdef0123456789abcdef", 1);
	for (int i = 0; i < 2; i++) {
		node[i] = fork();
		assert_true(node[i] >= 0);
		if (node[i] > 0)
			continue;
		setenv("NODE_RANK", i ? "1" : "0", 1);
		setenv("TUTTI_HOST_ID", i ? "one" : "zero", 1);
		int code = -1;
		tutti_train_spawn(&options, joins, &wanted, &code);
		_exit(code);
	}
	for (int i = 0; i < 2; i++) {
		int status = -1;
		assert_int_equal(waitpid(node[i], &status, 0), node[i]);
		assert_int_equal(status, 0);
	}
}

static int never(void *arg)
{
	fail_msg("fn runs");
	return 0;
}

static void refuses(const char *why)
{
	int code = 9;

	read_line("--nodes 2 --devices 2");
	assert_int_equal(tutti_train_spawn(&options, never, NULL, &code), TUTTI_ERR_INVALID);
	if (!strstr(tutti_comm_error(NULL), why))
		fail_msg("no '%s' in '%s'", why, tutti_comm_error(NULL));
	assert_int_equal(code, 9);
}

static void what_nodes_need_is_said(void **state)
{
	refuses("--nodes 2 without a launcher needs NODE_RANK, the number of this node: set it");
	setenv("NODE_RANK", "2", 1);
	refuses("--nodes 2 needs NODE_RANK, the number of this node: '2' is no number from 0 to 1");
	setenv("NODE_RANK", "1x", 1);
	refuses("'1x' is no number");
	setenv("NODE_RANK", "1", 1);
	refuses("needs MASTER_ADDR, an address of the first node");
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	refuses("needs MASTER_PORT, a port of the first node (or --port)");
	setenv("MASTER_PORT", "0", 1);
	refuses("'0' is no number from 1 to 65535");
	setenv("MASTER_PORT", "29500", 1);
	refuses("needs TUTTI_SECRET or TUTTI_SECRET_FILE, the same on each node");
	int code;
	assert_int_equal(tutti_train_spawn(NULL, never, NULL, &code), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_train_spawn(&options, NULL, NULL, &code), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_train_spawn(&options, never, NULL, NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_train_ranks_check(&options, NULL), TUTTI_ERR_INVALID);
}

/* Where a launcher has started the process, flags start nothing, and are compared. */
static void a_launcher_comes_first(void **state)
{
	int code;

	assert_int_equal(tutti_launched(), 0);
	setenv("RANK", "0", 1);
	setenv("WORLD_SIZE", "1", 1);
	setenv("LOCAL_RANK", "0", 1);
	setenv("LOCAL_WORLD_SIZE", "1", 1);
	assert_int_equal(tutti_launched(), 1);
	read_line("--devices 3");
	assert_int_equal(tutti_train_spawn(&options, joins,
					   &(struct wanted){1, 1, 0, NULL, getpid()}, &code),
			 TUTTI_OK);
	assert_int_equal(code, 101);
	assert_non_null(strstr(message,
			       "--devices 3: the launcher has started 1 rank on the node of rank "
			       "0: leave this flag to it."));
	read_line("--devices 1 --nodes 2");
	assert_int_equal(tutti_train_spawn(&options, joins,
					   &(struct wanted){1, 1, 0, NULL, getpid()}, &code),
			 TUTTI_OK);
	assert_non_null(strstr(message, "are 2 ranks, but the launcher has started 1"));
	read_line("--nodes 2");
	assert_int_equal(tutti_train_spawn(&options, joins,
					   &(struct wanted){1, 1, 0, NULL, getpid()}, &code),
			 TUTTI_OK);
	assert_non_null(strstr(message, "--nodes 2: the launcher has started ranks on 1"));
	clear(NULL);
	setenv("TF_CONFIG", "{}", 1);
	assert_int_equal(tutti_launched(), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(flags_start_their_ranks, clear),
		cmocka_unit_test_setup(a_port_is_where_ranks_meet, clear),
		cmocka_unit_test_setup(two_nodes_are_one_job, clear),
		cmocka_unit_test_setup(what_nodes_need_is_said, clear),
		cmocka_unit_test_setup(a_launcher_comes_first, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
