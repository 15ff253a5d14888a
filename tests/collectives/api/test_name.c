/* Without this a message would not say which communicator a call was on, or a name could be one
 * that breaks a line of it. */
#include <tutti/tutti.h>

#include <string.h>

#include "tests/unit.h"

static void expect_words(tutti_comm *comm, const char *words)
{
	if (!strstr(tutti_comm_error(comm), words))
		fail_msg("expected '%s', got: %s", words, tutti_comm_error(comm));
}

/* A child has its parent's name, or that of its own config. */
static void test_in_messages(void **state)
{
	char name[] = "tensor";
	tutti_config config = {.name = name, .transports = "shm"}, own = {.name = "data"}, found;
	tutti_comm *comms[2], *alone, *copy, *child;
	tutti_call soon = {.timeout_ms = 20};
	int x = 0;

	assert_int_equal(tutti_init_all(comms, 2, &config), TUTTI_OK);
	assert_int_equal(tutti_init_all(&alone, 1, &config), TUTTI_OK);
	memset(name, 'x', 6);
	assert_int_equal(tutti_recv(&x, 1, TUTTI_I32, 1, comms[0], &soon), TUTTI_ERR_TIMEOUT);
	expect_words(comms[0], "recv(i32, 1, tag 0) from rank 1 of tensor: ");
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
	assert_int_equal(tutti_init_all(comms, 2, &own), TUTTI_OK);
	assert_int_equal(tutti_all_reduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, comms[0], &soon),
			 TUTTI_ERR_TIMEOUT);
	expect_words(comms[0], "all_reduce #0 of data (");
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
	assert_int_equal(tutti_init_all(comms, 2, &own), TUTTI_OK);
	assert_int_equal(tutti_comm_abort(comms[1]), TUTTI_OK);
	assert_int_equal(tutti_barrier(comms[0], NULL), TUTTI_ERR_ABORTED);
	for (int i = 0; i < 2; i++)
		assert_string_equal(tutti_comm_error(comms[i]),
				    "Communicator data: tutti_comm_abort "
				    "was called on rank 1");
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
	assert_int_equal(tutti_comm_dup(alone, &copy), TUTTI_OK);
	assert_int_equal(tutti_comm_split(alone, 0, 0, &own, &child), TUTTI_OK);
	assert_int_equal(tutti_comm_config(copy, &found), TUTTI_OK);
	assert_string_equal(found.name, "tensor");
	assert_int_equal(tutti_comm_config(child, &found), TUTTI_OK);
	assert_string_equal(found.name, "data");
	tutti_comm_destroy(child);
	tutti_comm_destroy(copy);
	tutti_comm_destroy(alone);
}

/* Both ranks are told by the message of the one that finds out. */
static void test_in_mismatches(void **state)
{
	static const char *const transports[] = {"shm", "tcp"};

	for (int t = 0; t < 2; t++) {
		tutti_config config = {.name = "data", .transports = transports[t]};
		tutti_comm *comms[2];
		tutti_work *works[2];
		int x[2] = {0}, y[2];

		assert_int_equal(tutti_init_all(comms, 2, &config), TUTTI_OK);
		for (int i = 0; i < 2; i++) {
			tutti_call call = {.work = &works[i]};
			assert_int_equal(tutti_all_reduce(&x[i], &y[i], 1, TUTTI_I32,
							  i ? TUTTI_MAX : TUTTI_SUM, comms[i],
							  &call),
					 TUTTI_OK);
		}
		for (int i = 0; i < 2; i++) {
			assert_int_equal(tutti_work_wait(&works[i], 0), TUTTI_ERR_MISMATCH);
			expect_words(comms[i], "Communicator data: The ranks did not make the same "
					       "call: rank 0 called all_reduce(");
		}
		for (int i = 0; i < 2; i++)
			tutti_comm_destroy(comms[i]);
	}
}

/* Of calls that cannot begin, and of those that make communicators or agree. */
static void test_in_other_errors(void **state)
{
	const tutti_config config = {.name = "data", .timeout_ms = 200};
	const tutti_call wrong = {.timeout_ms = -1};
	tutti_comm *comms[3], *made = NULL;
	int x = 0, flag = 0, twice[2] = {0, 0};

	assert_int_equal(tutti_init_all(comms, 3, &config), TUTTI_OK);
	assert_int_equal(tutti_broadcast(&x, &x, 1, TUTTI_I32, 7, comms[0], NULL),
			 TUTTI_ERR_INVALID);
	assert_string_equal(tutti_comm_error(comms[0]),
			    "Communicator data: broadcast: root 7 is not in 0..2");
	assert_int_equal(tutti_all_reduce(&x, NULL, 1, TUTTI_I32, TUTTI_SUM, comms[0], NULL),
			 TUTTI_ERR_INVALID);
	expect_words(comms[0], "Communicator data: all_reduce: recv is NULL");
	assert_int_equal(tutti_send(&x, 1, TUTTI_I32, 1, comms[0], &wrong), TUTTI_ERR_INVALID);
	expect_words(comms[0], "Communicator data: send: ");
	assert_int_equal(tutti_comm_dup(comms[0], NULL), TUTTI_ERR_INVALID);
	expect_words(comms[0], "Communicator data: tutti_comm_dup: ");
	assert_int_equal(tutti_comm_create_from(comms[0], twice, 2, 0, NULL, &made),
			 TUTTI_ERR_INVALID);
	expect_words(comms[0], "Communicator data: tutti_comm_create_from: ");
	tutti_group_begin();
	assert_int_equal(tutti_recv(&x, 1, TUTTI_I32, 3, comms[0], NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_group_end(NULL), TUTTI_ERR_INVALID);
	expect_words(NULL, "Communicator data: recv: peer 3");
	for (int shrinks = 0; shrinks < 2; shrinks++) {
		tutti_status status = shrinks ? tutti_comm_shrink(comms[0], &made)
					      : tutti_comm_agree(comms[0], &flag);
		assert_int_equal(status, TUTTI_ERR_TIMEOUT);
		expect_words(NULL, shrinks ? "Communicator data: tutti_comm_shrink: "
					   : "Communicator data: tutti_comm_agree: ");
		for (int i = 0; i < 3; i++)
			tutti_comm_destroy(comms[i]);
		if (!shrinks)
			assert_int_equal(tutti_init_all(comms, 3, &config), TUTTI_OK);
	}
}

static void test_bad_names(void **state)
{
	static const char *const bad[] = {"", "two\nlines", "\x7f", "n\xc3\xa4me",
					  "of more than thirty-one letters."};
	tutti_config config = {.name = "of no more than thirty letters."};
	tutti_comm *comm;

	assert_int_equal(tutti_init_all(&comm, 1, &config), TUTTI_OK);
	tutti_comm_destroy(comm);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		config.name = bad[i];
		assert_int_equal(tutti_init_all(&comm, 1, &config), TUTTI_ERR_INVALID);
		expect_words(NULL, "config.name");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_messages),
		cmocka_unit_test(test_in_mismatches),
		cmocka_unit_test(test_in_other_errors),
		cmocka_unit_test(test_bad_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
